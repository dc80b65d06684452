#!/usr/bin/env python3
"""What the tests of this run have skipped, and why; fails where a skip is not allowed on Debian 12.

Usage: skips.py BUILD ALLOWED        after all other tests, from CTest, whose log it reads
       skips.py --self-test ALLOWED

ALLOWED has a line for each kind: regular expressions for test and reason, and why that is right. The list goes to
standard output, and to the descriptor that TUTTI_SKIPS_TO names: CTest shows what a passing test prints to nobody.
Elsewhere than on Debian 12 nobody has said what may be missing: all skips are printed, none fails.
"""
import collections
import os
import re
import sys

Skip = collections.namedtuple("Skip", "test what reason")
Allowed = collections.namedtuple("Allowed", "test reason why")

BLOCK = re.compile(r"^\d+/\d+ Testing: (?P<test>[^\n]*)$.*?^Output:\n-+\n(?P<output>.*?)^<end of output>$",
                   re.MULTILINE | re.DOTALL)
GTEST = re.compile(r"^\S+:\d+: Skipped\n(?P<reason>.*?)\n\[  SKIPPED \] (?P<what>\S+) \(\d+ ms\)$",
                   re.MULTILINE | re.DOTALL)
PYTEST = re.compile(r"^SKIPPED \[(?P<count>\d+)\] (?P<what>\S+?)(:\d+)?: (?P<reason>.*)$", re.MULTILINE)
UNITTEST = re.compile(r"^(?P<what>\w+) \([^\n]*\)(\n[^\n]*)? \.\.\. skipped ['\"](?P<reason>.*)['\"]$", re.MULTILINE)
SCRIPT = re.compile(r"^skipped: (?P<reason>.*)$", re.MULTILINE)
# What the runners count themselves: to be met by what was read above.
TOTALS = [(re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below:$", re.MULTILINE), GTEST),
          (re.compile(r"^\D*?(?:\d+ \w+, )*(\d+) skipped(?:, .*)? in [\d.]+s", re.MULTILINE), PYTEST),
          (re.compile(r"^(?:OK|FAILED) \(.*?skipped=(\d+).*\)$", re.MULTILINE), UNITTEST)]
NESTED = re.compile(r"tests_pass_under_(\w+)")


class Unreadable(Exception):
    """The log does not say what it should."""


def count(match):
    return int(match.groupdict().get("count") or 1)


def skips_in(test, output):
    for total, each in TOTALS:
        said = sum(int(match[1]) for match in total.finditer(output))
        found = sum(count(match) for match in each.finditer(output))
        if said != found:
            raise Unreadable(f"{test} skipped {said} checks and says why for {found}")
    found = []
    for pattern in (GTEST, PYTEST, UNITTEST, SCRIPT):
        for match in pattern.finditer(output):
            what = match.groupdict().get("what") or ""
            reason = " ".join(match["reason"].split())
            found += [Skip(test, os.path.basename(what), reason)] * count(match)
    return found


def read_log(path, label=""):
    with open(path, encoding="utf-8", errors="replace") as file:
        blocks = [(match["test"], match["output"]) for match in BLOCK.finditer(file.read())]
    if not blocks:
        raise Unreadable(f"{path} has no test")
    return [skip for test, output in blocks for skip in skips_in(label + test, output)], [test for test, _ in blocks]


def all_skips(build):
    """Of this run, and of those that ran inside it."""
    folder = os.path.join("Testing", "Temporary")
    skips, tests = read_log(os.path.join(build, folder, "LastTest.log.tmp"))
    for test in tests:
        nested = NESTED.fullmatch(test)
        if nested:
            path = os.path.join(f"{build}-{nested[1]}", folder, "LastTest.log")
            skips += read_log(path, f"{nested[1]}: ")[0]
    return skips


def read_allowed(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    return [Allowed(*[part.strip() for part in line.split(" | ", 2)]) for line in lines]


def why_allowed(skip, allowed):
    return next((entry.why for entry in allowed
                 if re.fullmatch(entry.test, skip.test) and re.fullmatch(entry.reason, skip.reason)), None)


def report(skips, allowed):
    """(lines, how many kinds are not allowed)"""
    kinds = collections.Counter((skip.test, skip.reason, why_allowed(skip, allowed)) for skip in skips)
    names = {(skip.test, skip.reason): skip.what for skip in reversed(skips)}
    lines = [f"{len(skips)} checks were skipped" + (":" if skips else "")]
    for (test, reason, why), number in sorted(kinds.items(), key=lambda kind: (kind[0][2] is not None, kind[0][:2])):
        times = f" ({number} times)" if number > 1 else ""
        lines.append(f"  {test} {names[test, reason]}{times}: {reason}")
        lines.append(f"      {'allowed: ' + why if why else 'NOT EXPECTED'}")
    return lines, sum(why is None for _, _, why in kinds)


def on_debian_12():
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            facts = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    except OSError:
        return False
    return facts.get("ID") == "debian" and facts.get("VERSION_ID", "").strip('"') == "12"


def show(text):
    print(text)
    descriptor = os.environ.get("TUTTI_SKIPS_TO")
    if descriptor:
        os.write(int(descriptor), (text + "\n").encode())


# Every runner's way to say it, a skip that nobody allowed, and one that a runner counts without a reason.
SAMPLES = [
    ("a.cpp:3: Skipped\nno IPv6\n here\n\n[  SKIPPED ] Sockets.six (0 ms)\n[  SKIPPED ] 1 test, listed below:\n",
     [Skip("t", "Sockets.six", "no IPv6 here")]),
    ("SKIPPED [2] tests/torch/test_x.py:14: torch 1.13 is old\n3 passed, 2 skipped, 1 warning in 1.20s\n",
     [Skip("t", "test_x.py", "torch 1.13 is old")] * 2),
    ("test_a (m.C.test_a) ... ok\ntest_b (m.C.test_b)\nSays so. ... skipped 'no clock'\n\nOK (skipped=1)\n",
     [Skip("t", "test_b", "no clock")]),
    ("skipped: there is no node\n", [Skip("t", "", "there is no node")]),
    ("1 skipped in 0.1s\n", None), ("OK (skipped=2)\n", None), ("[  SKIPPED ] 2 tests, listed below:\n", None),
    ("[       OK ] A.b (0 ms)\n12 passed in 3.10s\nOK\n", []),
]


def self_test(allowed):
    for output, expected in SAMPLES:
        try:
            found = skips_in("t", output)
        except Unreadable:
            found = None
        if found != expected:
            print(f"read {found}, not {expected}, in:\n{output}")
            return 1
    block = "{0}/2 Testing: {1}\n{0}/2 Test: {1}\nOutput:\n-----\nskipped: no {1}\n<end of output>\nTest time = 1 sec\n\n"
    tests = [match["test"] for match in BLOCK.finditer(block.format(1, "a") + block.format(2, "b"))]
    if tests != ["a", "b"]:
        print(f"read the tests {tests} where a and b had run")
        return 1
    unheard_of = Skip("unit_core", "A.b", "nobody has ever thought of this")
    if report([unheard_of], allowed)[1] != 1 or "NOT EXPECTED" not in "".join(report([unheard_of], allowed)[0]):
        print("a skip that nobody allowed was not found")
        return 1
    return 0


def main():
    allowed = read_allowed(sys.argv[2])
    if sys.argv[1] == "--self-test":
        return self_test(allowed)
    try:
        lines, unexpected = report(all_skips(sys.argv[1]), allowed)
    except (OSError, Unreadable) as problem:
        print(f"skips cannot be counted: {problem}")
        return 1
    show("\n".join(lines))
    if unexpected and on_debian_12():
        show(f"{unexpected} kinds of them are not in {sys.argv[2]}, which says what may be skipped on Debian 12")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
