"""Runs under `tutti run`: every check_* of the modules named, in one group. Each rank writes down
what passed; the first check that fails ends the job."""
import importlib
import os
import sys
import traceback
from pathlib import Path

import tutti


def checks_of(modules):
    for module in modules:
        for name, value in vars(importlib.import_module(module)).items():
            if name.startswith("check_"):
                yield f"{module}.{name}", value


def main():
    folder, *modules = sys.argv[1:]
    with tutti.init(timeout=60) as group:
        with open(Path(folder) / f"passed.{group.rank}", "w") as passed:
            for name, check in checks_of(modules):
                try:
                    check(group)
                except BaseException:
                    print(f"rank {group.rank} of {group.size}: {name} failed", file=sys.stderr)
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(1)
                print(name, file=passed, flush=True)


if __name__ == "__main__":
    main()
