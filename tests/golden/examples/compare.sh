#!/bin/bash
# Runs a program and compares what it says with a golden, whatever order its ranks speak in.
# Usage: compare.sh GOLDEN COMMAND...   Lines of the golden are sorted as `LC_ALL=C sort` does;
# a line "~ PATTERN" stands for any number of lines that match the extended regular expression.
set -uo pipefail
golden=$1
shift
said=$(mktemp)
trap 'rm -f "$said"' EXIT

"$@" >"$said"
code=$?
if [ $code -ne 0 ]; then
  echo "'$*' ended with $code, having said:" >&2
  cat "$said" >&2
  exit 1
fi

# Lines that a pattern stands for must be there, and are then left out of the comparison.
rest=$(cat "$said")
while read -r pattern; do
  grep -qE -- "$pattern" <<<"$rest" || { echo "no line matches '$pattern'" >&2; exit 1; }
  rest=$(grep -vE -- "$pattern" <<<"$rest")
done < <(sed -n 's/^~ //p' "$golden")

if ! diff -u --label expected --label said <(grep -v '^~ ' "$golden" | LC_ALL=C sort) \
    <(printf '%s\n' "$rest" | sed '/^$/d' | LC_ALL=C sort); then
  echo "'$*' did not say what $golden expects" >&2
  exit 1
fi
