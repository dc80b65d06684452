#!/usr/bin/env python3
"""Fails when code that a page quotes is not in the file that it names.

A line that ends with a path in backquotes and a colon names the file of the code block below it. The
block must stand in that file, line by line, as it is; `…` on a line of its own leaves lines out.

quoted_code.py SOURCE_DIR PAGE...   checks the pages
quoted_code.py --self-test          plants wrong quotations and expects each to be found
"""
import re
import sys
import tempfile
from pathlib import Path

QUOTED = re.compile(r"`(?P<path>[\w./-]+)`:\n\n```\w*\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^```", re.MULTILINE)


def complaints_of(root, page):
    """What is wrong with the quotations of a page; a page without any is wrong, too."""
    text = page.read_text(encoding="utf-8")
    quoted = list(QUOTED.finditer(text))
    if not quoted:
        yield f"{page.name}: quotes no file"
    if 2 * len(quoted) != len(FENCE.findall(text)):
        yield f"{page.name}: has a code block without the name of its file"
    for match in quoted:
        file = root / match["path"]
        if not file.is_file():
            yield f"{page.name}: {match['path']} does not exist"
            continue
        source = file.read_text(encoding="utf-8")
        at = 0
        for part in re.split(r"^\s*…\n", match["code"], flags=re.MULTILINE):
            at = source.find(part, at)
            if at < 0:
                first = part.splitlines()[0] if part.splitlines() else ""
                yield f"{page.name}: {match['path']} does not say what begins with '{first}'"
                break


GOOD = "See `a.cpp`:\n\n```cpp\nint one;\n…\nint three;\n```\n"
BAD = {
    "changed": GOOD.replace("int one", "int uno"),
    "out of order": "See `a.cpp`:\n\n```cpp\nint three;\n…\nint one;\n```\n",
    "missing file": GOOD.replace("a.cpp", "b.cpp"),
    "nameless block": GOOD + "\n```cpp\nint two;\n```\n",
    "nothing quoted": "words\n",
}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "a.cpp").write_text("int one;\nint two;\nint three;\n")
        page = root / "page.md"
        page.write_text(GOOD)
        wrong = [f"was blamed wrongly: {line}" for line in complaints_of(root, page)]
        for name, text in BAD.items():
            page.write_text(text)
            if not list(complaints_of(root, page)):
                wrong.append(f"was not found: {name}")
        return wrong


def main():
    if "--self-test" in sys.argv:
        found = self_test()
    else:
        root = Path(sys.argv[1])
        found = [line for page in sys.argv[2:] for line in complaints_of(root, root / page)]
    print("\n".join(found) or "nothing to complain about")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
