"""Every fault that a sanitizer is there for, planted in every kind of rank, ends red and with the report.

Usage: planted_faults.py asan|tsan PROGRAM TOOL

PROGRAM is of a build with that sanitizer, as ./test makes it; TOOL starts it as ranks. The same program without a
fault has to pass, so that red means the fault and nothing else.
"""
import os
import subprocess
import sys

# fault -> what its report says; leaks are looked for at a process's end, to which the doomed do not come.
REPORTS = {
    "asan": {"overflow": "heap-buffer-overflow", "leak": "detected memory leaks",
             "undefined": "signed integer overflow"},
    "tsan": {"race": "data race"},
}
PLACES = ["in_a_forked_rank", "in_a_thread_rank", "in_a_doomed_rank"]
MARKS = {"asan": b"__asan_init", "tsan": b"__tsan_init"}


def cases(sanitizer, program, tool):
    """(name, command, what the report has to say or None where it has to pass)"""
    for place in PLACES:
        for fault, report in [("none", None), *REPORTS[sanitizer].items()]:
            if (fault, place) != ("leak", "in_a_doomed_rank"):
                test = f"Planted/PlantedFault.{place}/{fault}"
                yield test, [program, f"--gtest_filter={test}"], report
    for fault, report in [("none", None), *REPORTS[sanitizer].items()]:
        test = f"Planted/PlantedFault.in_this_process/{fault}"
        yield (f"{fault} under tutti run", [tool, "run", "-n", "2", program, f"--gtest_filter={test}"], report)
    if sanitizer == "tsan":
        test = "PlantedRace.between_thread_ranks"
        yield test, [program, f"--gtest_filter={test}"], "data race"


def fixed_addresses():
    """Thread sanitizer cannot start where the kernel scatters addresses too widely."""
    try:
        return ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"]).returncode == 0 else []
    except FileNotFoundError:
        return []


def complaint(command, report):
    """What is wrong with its outcome; None when it is as it should be."""
    # No files: the report has to come where the test's own output goes.
    environment = {name: value for name, value in os.environ.items() if not name.endswith("SAN_OPTIONS")}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=120, env=environment, text=True, errors="replace")
    if report is None:
        return None if done.returncode == 0 else f"fails without a fault ({done.returncode}):\n{done.stdout}"
    if done.returncode == 0:
        return f"passes in spite of its fault:\n{done.stdout}"
    if report not in done.stdout:
        return f"fails ({done.returncode}), but does not say '{report}':\n{done.stdout}"
    return None


def main():
    sanitizer, program, tool = sys.argv[1:]
    for needed in (program, tool):
        if not os.access(needed, os.X_OK):
            print(f"skipped: there is no {needed}; ./test without arguments builds it")
            return 77
    with open(program, "rb") as file:
        if MARKS[sanitizer] not in file.read():
            print(f"{program} was built without {sanitizer}")
            return 1
    wrong, prefix = 0, fixed_addresses()
    for name, command, report in cases(sanitizer, program, tool):
        said = complaint(prefix + command, report)
        print(f"{name}: {said or 'as it should be'}", flush=True)
        wrong += said is not None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
