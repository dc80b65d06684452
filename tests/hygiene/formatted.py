#!/usr/bin/env python3
"""Fails on C and C++ that is not as clang-format 14 writes it, and on comments that a formatter has damaged.

formatted.py SOURCE_DIR code          what .clang-format says, tables (.def) aside; another version, which formats
                                      otherwise, is a skip
formatted.py SOURCE_DIR comments      namespaces' ends name their namespace; a section begins with `// ---- title`
formatted.py SOURCE_DIR --self-test
"""
import os
import re
import subprocess
import sys
from pathlib import Path

PLACES = ("include", "src", "tool", "apps", "bindings", "examples", "bench", "tests")
CODE = {".hpp", ".h", ".cpp", ".c", ".cu", ".cuh"}
COMMENTED = CODE | {".def", ".py", ".sh", ".js", ".cmake", ".txt"}
SKIPPED = 77

OPENED = re.compile(r"^\s*(?:inline )?namespace(?: \[\[[^\]]*\]\])?(?: ([\w:]+))?(?: __attribute__\(\(.*\)\))? \{",
                    re.MULTILINE)
CLOSED = re.compile(r"^\s*\}\s*// namespace ?(.*)$")
RULER = re.compile(r"^\s*(?://|#) ?(?:-{3,}|[─━═]{2})")
SECTION = re.compile(r"^\s*(?://|#) ---- [^-\s].*[^-\s]$")
LINE = 100  # columns


def files(root, suffixes):
    for place in PLACES:
        for file in sorted((root / place).rglob("*")):
            if file.suffix in suffixes and file.is_file():
                yield file


def damaged_comments(text):
    """(line number, what is wrong with it)"""
    opened = {name or "" for name in OPENED.findall(text)}
    for number, line in enumerate(text.splitlines(), 1):
        closed = CLOSED.match(line)
        if closed and closed[1] not in opened:
            yield number, f"ends a namespace that does not begin here: {line.strip()}"
        elif RULER.match(line) and not SECTION.match(line):
            yield number, f"is no section; they are written `// ---- title`: {line.strip()}"
        elif RULER.match(line) and len(line) > LINE:
            yield number, f"is a section's title of more than {LINE} columns: {line.strip()}"


def check_comments(root):
    return [f"{file.relative_to(root)}:{number}: {complaint}" for file in files(root, COMMENTED)
            for number, complaint in damaged_comments(file.read_text(encoding="utf-8"))]


def check_code(root):
    command = os.environ.get("CLANG_FORMAT", "clang-format")
    try:
        version = subprocess.run([command, "--version"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return skip("there is no clang-format")
    found = re.search(r"version (\d+)", version)
    if not found or found[1] != "14":
        return skip(f"this is no clang-format 14: {version.strip()}")
    names = [str(file.relative_to(root)) for file in files(root, CODE)]
    done = subprocess.run([command, "--dry-run", *names], cwd=root, capture_output=True, text=True)
    return sorted({line.split(": ")[0] + ": is not formatted; clang-format -i mends it"
                   for line in done.stderr.splitlines() if "warning:" in line})


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def self_test(_):
    good = ["namespace a::b {\n}  // namespace a::b\n", "namespace {\n}  // namespace\n", "// ---- lanes\n",
            "# ---- what is left\n", "//   0 ----> 1\n", "inline namespace v1 __attribute__((visibility(\"default\"))) {\n"
            "}  // namespace v1\n", "/* ---- status ---- */\n"]
    bad = ["namespace a {\n}  // namespace gnu::visibility(\"default\")\n", "namespace a {\n}  // namespace b\n",
           "// ---- lanes ----------------\n", "// ── lanes ───\n", "// --------------------\n", "// ---- " + "x" * LINE + "\n",
           "#---- half\n"]
    return [f"blamed: {text}" for text in good if list(damaged_comments(text))] + \
           [f"passed: {text}" for text in bad if not list(damaged_comments(text))]


def main():
    check = {"code": check_code, "comments": check_comments, "--self-test": self_test}[sys.argv[2]]
    complaints = check(Path(sys.argv[1]))
    print("\n".join(complaints) or "nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
