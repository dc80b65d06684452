"""The C program, alone and on four ranks, calls every function of tutti/tutti.h: the dynamic linker says which
it was asked for.

Usage: whole_api.py HEADER TOOL PROGRAM

PROGRAM is linked lazily, so that a function is looked up when it is called first, not when it is only named.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

BINDING = re.compile(r"binding file \S*capi_program \S+ to \S+ \S+: normal symbol `(tutti_\w+)'")


def declared(header):
    command = ["cc", "-std=c99", "-E", "-P", "-I", os.path.dirname(os.path.dirname(header)), header]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\b(tutti_\w+)\s*\(", text))


def called(tool, program):
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": f"{folder}/log"}
        for command in ([program], [tool, "run", "-n", "4", program]):
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"the program failed:\n{done.stdout}{done.stderr}")
        found = set()
        for path in glob.glob(f"{folder}/log.*"):
            with open(path, encoding="utf-8", errors="replace") as file:
                found.update(BINDING.findall(file.read()))
        return found


def main():
    header, tool, program = sys.argv[1:]
    all_functions, used = declared(header), called(tool, program)
    missing = sorted(all_functions - used)
    print(f"{len(all_functions)} functions, {len(used)} called; not called: {', '.join(missing) or 'none'}")
    return 1 if missing or not all_functions else 0


if __name__ == "__main__":
    sys.exit(main())
