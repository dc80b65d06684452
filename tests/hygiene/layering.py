#!/usr/bin/env python3
"""Fails when a room includes what docs/map.md does not allow it.

layering.py SOURCE_DIR              checks the tree
layering.py SOURCE_DIR --self-test  plants breaches in a copy of the rules and expects each to be found
"""
import re
import sys
import tempfile
from pathlib import Path

VOCABULARY = {"cpp20.hpp", "status.hpp", "types.hpp", "dtypes.hpp", "shape.hpp", "buffer.hpp", "work.hpp", "config.hpp",
              "version.h",
              "algorithms.def", "collectives.def", "dtypes.def", "transports.def"}
PURE_ROOMS = {"topology", "schedule", "tuner", "pipeline", "plan"}
LOOKS_AT_THE_MACHINE = {"src/topology/discover.cpp", "src/topology/interfaces.cpp"}
IMPURE_HEADERS = re.compile(
    r"thread|mutex|shared_mutex|condition_variable|fstream|filesystem|unistd\.h|sys/.*|fcntl\.h|"
    r"netinet/.*|arpa/.*|ctime|time\.h")
# Each with the folders that may include it. Our own room of that name is "cuda/…".
FOREIGN_HEADERS = ((re.compile(r"cuda[^/]*\.h"), ("src/cuda/", "examples/")),
                   (re.compile(r"nccl\.h|rdma/.*|torch/.*"), ("src/transport/ofi/", "bindings/", "apps/")))
ONE_FOLDER = {"examples", "apps", "bindings"}  # programs of one folder may name a neighbour barely
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".h", ".cpp", ".c", ".def", ".cu", ".cuh"}


class Rules:
    """The two tables of docs/map.md."""

    def __init__(self, text):
        self.rooms = {}    # room -> rooms it may include
        self.public = {}   # room -> public headers beyond the vocabulary, or None for all
        for left, right in table(text, "room", "may include, besides itself"):
            allowed, everything_public = self.parse(right)
            for room in words(left):
                self.rooms[room] = allowed
                self.public[room] = None if everything_public else set()
        for header, rooms in table(text, "public header", "may be included by"):
            for room in words(rooms):
                if self.public[room] is not None:
                    self.public[room].add(header)

    def parse(self, cell):
        """'core, reduce (never store: …)' or 'all above but plan' or '`include/tutti` only: …'."""
        cell = re.sub(r"\(.*?\)", "", cell).split(":")[0]
        everything_public = "include/tutti" in cell
        if cell.strip() == "nothing":
            return set(), False
        if all_above := re.match(r"\s*all above but (.*)", cell):
            return set(self.rooms) - set(words(all_above.group(1))), False
        cell = cell.replace("`include/tutti`", "").replace("only", "")
        return set(words(cell)), everything_public


def words(cell):
    return re.findall(r"\w+", cell)


def table(text, *heads):
    """The rows of the table that has these column heads."""
    head = r"\|\s*" + r"\s*\|\s*".join(map(re.escape, heads)) + r"\s*\|\n\|[-| ]+\|\n"
    found = re.search(head + r"((?:\|.*\|\n)+)", text)
    if not found:
        sys.exit(f"docs/map.md has no table with the columns {heads}")
    for row in found.group(1).splitlines():
        yield [cell.strip() for cell in row.strip("|").split("|")]


def room_of(path, rooms):
    parts = path.parts
    name = parts[1] if parts[0] == "src" else parts[0]
    return name if name in rooms else None


def breaches(root, rules):
    places = [root / "src"] + [root / name for name in rules.rooms if (root / name).is_dir()]
    places.append(root / "include")
    for file in sorted(f for place in places for f in place.rglob("*") if f.suffix in SOURCES):
        path = file.relative_to(root)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if include := INCLUDE.match(line):
                if complaint := judge(path, include.group(1) == '"', include.group(2), rules):
                    yield f"{path}:{number}: {complaint}"


def judge(path, quoted, target, rules):
    """What is wrong with `path` including `target`, or None."""
    for headers, homes in FOREIGN_HEADERS:
        if headers.fullmatch(target) and not str(path).startswith(homes):
            return f"<{target}> belongs into {', '.join(homes)} alone"
    if path.parts[0] == "include":
        if quoted and not target.startswith("tutti/"):
            return f"a public header includes \"{target}\", which is not installed"
        return None
    room = room_of(path, rules.rooms)
    if room is None:
        return f"room '{path.parts[1]}' is not in docs/map.md"
    if not quoted:
        exempt = str(path) in LOOKS_AT_THE_MACHINE
        if room in PURE_ROOMS and not exempt and IMPURE_HEADERS.fullmatch(target):
            return f"room {room} is pure and includes <{target}>"
        return None
    return judge_quoted(path, room, target, rules)


def judge_quoted(path, room, target, rules):
    first, _, rest = target.partition("/")
    if first == "tutti":
        public = rules.public[room]
        if public is None or rest in VOCABULARY or rest in public:
            return None
        return f"room {room} may not include the public header {target}"
    if not rest:
        return None if room in ONE_FOLDER else f"\"{target}\" is not named from src/ or include/"
    if first == room or first in rules.rooms[room]:
        return None
    return f"room {room} may not include {target}; it may include {sorted(rules.rooms[room])}"


PLANTED = {  # file -> (text, what the complaint must say)
    "src/engine/planted.cpp": ('#include "tuner/choose.hpp"\n', "engine may not include tuner"),
    "src/transport/planted.cpp": ('#include "store/table.hpp"\n', "transport may not include store"),
    "src/schedule/planted.cpp": ("#include <thread>\n", "schedule is pure"),
    "src/capi/planted.cpp": ('#include "core/check.hpp"\n', "capi may not include core"),
    "src/core/planted.cpp": ('  #  include "tutti/group.hpp"\n', "core may not include the public"),
    "src/attic/planted.cpp": ('#include "core/check.hpp"\n', "'attic' is not in docs/map.md"),
    "examples/planted.cpp": ('#include "engine/engine.hpp"\n', "examples may not include engine"),
    "include/tutti/planted.hpp": ('#include "core/check.hpp"\n', "which is not installed"),
    "src/group/planted.cpp": ("#include <cuda_runtime.h>\n", "belongs into src/cuda/"),
    "src/engine/planted_too.cpp": ("#include <cuda.h>\n", "belongs into src/cuda/"),
    "src/cuda/planted.cu": ('#include "engine/engine.hpp"\n', "cuda may not include engine"),
    "src/reduce/planted.cpp": ('#include "cuda/device.hpp"\n', "reduce may not include cuda"),
}
HARMLESS = {
    "src/group/fine.cpp": '#include "engine/engine.hpp"\n#include "tutti/group.hpp"\n',
    "src/train/fine.cpp": '#include "tutti/group.hpp"\n#include "reduce/fold.hpp"\n',
    "src/cuda/fine.cpp": '#include <cuda.h>\n#include "cuda/device.hpp"\n#include "reduce/fold.hpp"\n',
    "src/engine/fine.cpp": '#include "cuda/device.hpp"\n',
    "src/tuner/fine.cpp": '#include "schedule/schedule.hpp"\n#include <vector>\n',
}


def self_test(rules):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        texts = {name: text for name, (text, _) in PLANTED.items()} | HARMLESS
        for name, text in texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        found = list(breaches(root, rules))
    missed = [name for name, (_, complaint) in PLANTED.items()
              if not any(line.startswith(name) and complaint in line for line in found)]
    blamed = [line for line in found if line.split(":")[0] in HARMLESS]
    return [f"planted breach was not found: {name}" for name in missed] + \
           [f"was blamed wrongly: {line}" for line in blamed]


def main():
    root = Path(sys.argv[1])
    rules = Rules((root / "docs/map.md").read_text(encoding="utf-8"))
    complaints = self_test(rules) if "--self-test" in sys.argv else list(breaches(root, rules))
    print("\n".join(complaints) or "nothing to complain about")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
