#!/usr/bin/env python3
"""Fails on what STYLE rules out in code: second names for a collective, goto, unfinished business,
and iostreams in the library.

words.py SOURCE_DIR [--self-test]
"""
import re
import sys
from pathlib import Path

PLACES = ("include", "src", "tool", "examples", "bench")  # tests may use a wrong name on purpose
SOURCES = {".hpp", ".h", ".cpp", ".c", ".cu", ".cuh", ".def", ".py", ".sh", ".txt"}
# Not spelled out, so that this file passes its own test.
RULES = [
    # Names of another library, and Megatron's flag, are not ours to choose.
    (re.compile(r"(?<!gloo/)(?<!gloo::)(?<!--async-log-)\b(all)(reduce|gather|toall)\b|\breduce(scatter)\b",
                re.IGNORECASE),
     "has a second name for a collective; the words are all_reduce, all_gather, all_to_all, "
     "reduce_scatter"),
    (re.compile(r"^\s*go" r"to\s+\w+;"), "jumps"),
    (re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"), "is unfinished business"),
    (re.compile(r"\bfor " r"now\b"), "puts something off"),
]
# In src/ alone: see core/files.hpp.
LIBRARY_RULES = [
    (re.compile(r"#include <(fstream|iostream|sstream|istream|ostream|iomanip|locale|regex)>"),
     "uses iostreams, which break beside torch's wheels"),
]


def judge(line, place="src"):
    rules = RULES + (LIBRARY_RULES if place == "src" else [])
    return [complaint for pattern, complaint in rules if pattern.search(line)]


def check(root):
    for place in PLACES:
        for file in sorted((root / place).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file() or file.name == Path(__file__).name:
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for complaint in judge(line, place):
                    yield f"{file.relative_to(root)}:{number}: {complaint}: {line.strip()}"


def self_test():
    bad = ["group->all" "reduce(x);", "  go" "to done;", "// TO" "DO: later", "enough for " "now", "#include <fstream>"]
    good = ["group->all_reduce(x);", "// reduce, scatter", "// goes to done;"]
    return [f"passed: {line}" for line in bad if not judge(line)] + \
           [f"blamed: {line}" for line in good if judge(line)]


def main():
    complaints = self_test() if "--self-test" in sys.argv else list(check(Path(sys.argv[1])))
    print("\n".join(complaints) or "nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
