#!/usr/bin/env python3
"""The version stands in include/tutti/version.h and nowhere else; the change log has a section for it.

    version.py SOURCE_DIR     exit 1 with the lines that repeat it
    version.py --self-test    plants some
"""
import re
import sys
import tempfile
from pathlib import Path

HEADER = Path("include/tutti/version.h")
CHANGES = Path("CHANGELOG.md")  # tells of every version, this one too
PART = re.compile(r"^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", re.M)
FOREIGN = {"node_modules", "__pycache__"}
TEXTS = {".c", ".cmake", ".cpp", ".css", ".def", ".h", ".hpp", ".html", ".in", ".js", ".json", ".md", ".py",
         ".pyi", ".sh", ".toml", ".txt", ""}


def version_of(root):
    parts = PART.findall((root / HEADER).read_text(encoding="utf-8"))
    if len(parts) != 3:
        sys.exit(f"{HEADER} does not name a major, a minor and a patch version")
    return ".".join(parts)


def files(root):
    """What belongs to the tree: no build's and no tool's folder."""
    for top in sorted(root.iterdir()):
        if top.name.startswith((".", "build")):
            continue
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            if file.suffix in TEXTS and file.is_file() and not FOREIGN & set(file.parts):
                yield file.relative_to(root)


def breaches(root):
    version = version_of(root)
    repeated = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d.]*\d)")
    if f"## [{version}]" not in (root / CHANGES).read_text(encoding="utf-8"):
        yield f"{CHANGES} has no section '## [{version}]'"
    for path in files(root):
        if path in (HEADER, CHANGES):
            continue
        for number, line in enumerate((root / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if repeated.search(line) or PART.search(line):
                yield f"{path}:{number}: repeats the version: {line.strip()}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        planted = {HEADER: "#define TUTTI_VERSION_MAJOR 3\n#define TUTTI_VERSION_MINOR 1\n"
                           "#define TUTTI_VERSION_PATCH 4\n",
                   CHANGES: "## [3.1.3]\n", Path("a/setup.py"): "version='3.1.4'\n",
                   Path("a/tutti.h"): "#define TUTTI_VERSION_MINOR 2\n",
                   Path("a/fine.md"): "13.1.4, 3.1.41 and 3.1.4.1\n", Path("build-x/a.md"): "3.1.4\n"}
        for path, text in planted.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        found = [line.split(" ")[0] for line in breaches(root)]
    assert found == [str(CHANGES), "a/setup.py:1:", "a/tutti.h:1:"], found
    return []


def main():
    complaints = self_test() if "--self-test" in sys.argv else list(breaches(Path(sys.argv[1])))
    print("\n".join(complaints) or "nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
