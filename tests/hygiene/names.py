#!/usr/bin/env python3
"""One name, one meaning: no type is defined under the same name in two rooms.

Reads every header of the rooms and lists the types at namespace level, by room. Names of helpers
inside one .cpp do not count: nobody meets them elsewhere. Exceptions stand in SHARED, with their why.

    names.py SOURCE_DIR          exit 1 with the names that have several meanings
    names.py --self-test         plants one
"""
import pathlib
import re
import sys
import tempfile

# Name: why several rooms may define it.
SHARED = {
    "DataParallel": "the layer, and the same for torch modules: one notion, two languages of tensors",
    "Device": "what memory a buffer is in, and the GPU itself: the one says which the other is",
    "Event": "what a recorder notes, and CUDA's word for a mark in a stream",
    "Fault": "a number that is not finite, and what a kernel found: neither room sees the other's",
    "Meeting": "where ranks of a bench, and where those in kernels meet: one notion, two machines",
    "Memory": "what a job needs of it, and a piece of a GPU's",
    "Place": "where a chunk lies: in a program's spaces, and in a GPU's addresses",
    "Stream": "a message's way, and CUDA's word for a queue of work",
    "Work": "an operation under way, and the same as torch wants it: c10d's own word",
}

ROOTS = ("include", "src", "tool", "apps", "bench", "bindings")
DEFINITION = re.compile(r"^(?:template <[^\n]*>\n)?(?:class|struct|enum class|union)\s+(?:TUTTI_\w+\s+|\[\[\w+\]\]\s+)?(\w+)"
                        r"(?:\s+final)?\s*(?::[^\n;]*)?\{", re.M)


def room_of(path):
    """src/engine/x.hpp → engine; tool/show/x.hpp → tool/show; public headers are one room."""
    parts = path.parts
    if parts[0] == "include":
        return "include"
    if parts[0] == "src":
        return parts[1]
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def namespace_level(text):
    """The text without what stands indented: types inside of types and functions."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(" "))


def definitions(source):
    found = {}
    for root in ROOTS:
        for path in sorted((source / root).rglob("*.h*")):
            if path.suffix not in (".h", ".hpp") or "node_modules" in path.parts:
                continue
            where = path.relative_to(source)
            for name in DEFINITION.findall(namespace_level(path.read_text())):
                found.setdefault(name, {}).setdefault(room_of(where), str(where))
    return found


def breaches(source):
    return [f"{name}: " + ", ".join(sorted(rooms.values()))
            for name, rooms in sorted(definitions(source).items())
            if len(rooms) > 1 and name not in SHARED]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder)
        for room, text in (("engine", "struct Layout {\n  struct Inner {};\n};\n"),
                           ("reduce", "class Inner {\n};\nstruct Other {};\n"),
                           ("tuner", "struct [[nodiscard]] Layout : Base {\n};\n")):
            (source / "src" / room).mkdir(parents=True)
            (source / "src" / room / "a.hpp").write_text(text)
        found = breaches(source)
    assert found == ["Layout: src/engine/a.hpp, src/tuner/a.hpp"], found
    print("a planted name with two meanings is found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = breaches(pathlib.Path(sys.argv[1]))
    if found:
        print("One name has several meanings (rename one, or say in SHARED why not):")
        print("\n".join("  " + line for line in found))
        return 1
    print(f"{len(definitions(pathlib.Path(sys.argv[1])))} types, each name with one meaning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
