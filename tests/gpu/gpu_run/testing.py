"""tests/gpu/run test: every row of suite.py under a time limit, several at once, and a line for each."""
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import machine
from .machine import Problem
from .suite import every_test, missing_programs

TAIL = 25  # lines of a failure's output that are shown


@dataclass
class Outcome:
    word: str  # passed, failed or skipped
    seconds: float
    why: str = ""
    tail: str = ""


class Runs:
    """Starts tests and takes no longer than the budget for all of them."""

    def __init__(self, budget_s, environment, logs):
        self.last = time.monotonic() + budget_s
        self.environment = environment
        self.logs = logs
        self.lock = threading.Lock()
        self.groups = set()  # of processes that are under way

    def run(self, test):
        if test.skip:
            return Outcome("skipped", 0, test.skip)
        if shutil.which(test.command[0]) is None:
            word = "skipped" if test.skipped_if else "failed"
            return Outcome(word, 0, f"{test.command[0]} is not there")
        limit = min(test.limit_s, self.last - time.monotonic())
        if limit < 1:
            return Outcome("failed", 0, "not run: no time was left")
        log = self.logs / (re.sub(r"[^\w.]+", "_", test.name) + ".log")
        began = time.monotonic()
        with open(log, "wb") as output:
            code = self.wait(test, limit, output)
        return judge(test, code, time.monotonic() - began, log.read_text(encoding="utf-8", errors="replace"), limit)

    def wait(self, test, limit, output):
        """The exit code of a process group of its own, of which nothing is left afterwards; None: it took too long."""
        with subprocess.Popen(["timeout", "-s", "KILL", f"{limit:.0f}", *test.command], stdin=subprocess.DEVNULL,
                              stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                              env=machine.environment(**{**self.environment, **test.environment})) as process:
            with self.lock:
                self.groups.add(process.pid)
            began = time.monotonic()
            try:
                code = process.wait(limit + 10)
                return None if code in (137, -signal.SIGKILL) and time.monotonic() - began > limit - 1 else code
            except subprocess.TimeoutExpired:
                return None
            finally:
                self.end(process.pid)

    def end(self, group):
        with self.lock:
            self.groups.discard(group)
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass  # all of it has ended

    def end_all(self):
        for group in list(self.groups):
            self.end(group)


def judge(test, code, seconds, text, limit):
    tail = "\n".join(text.splitlines()[-TAIL:])
    if code == machine.SKIPPED:
        return Outcome("skipped", seconds, text.strip().splitlines()[-1] if text.strip() else "exit code 77")
    if code is None:
        return Outcome("failed", seconds, f"ended after {limit:.0f} s", tail)
    if code and test.skipped_if and re.search(test.skipped_if, text) and "ERROR SUMMARY" not in text:
        return Outcome("skipped", seconds, "does not work here", tail)
    if code:
        return Outcome("failed", seconds, first_failure(text) or f"exit code {code}", tail)
    ran = re.findall(r"^\[==========\] (\d+) tests? from .* ran", text, re.MULTILINE)
    if ran and int(ran[-1]) == 0:
        return Outcome("failed", seconds, "its filter matches no test", tail)
    if ran and (skipped := re.findall(r"^\[  SKIPPED \] (\d+) test", text, re.MULTILINE)) and skipped[-1] == ran[-1]:
        return Outcome("skipped", seconds, f"all of its {ran[-1]} tests", tail)
    return Outcome("passed", seconds, counted(text, ran))


def first_failure(text):
    """What a runner of tests says that it is."""
    found = re.search(r"^\[  FAILED  \] (\S+)|^FAILED (\S+)|^failed +[\d.]+ s +(\S+)", text, re.MULTILINE)
    return found and next(group for group in found.groups() if group)


def counted(text, ran):
    skipped = re.findall(r"^\[  SKIPPED \] (\d+) test", text, re.MULTILINE)
    if ran:
        return f"{ran[-1]} tests" + (f", {skipped[-1]} of them skipped" if skipped else "")
    found = re.findall(r"\d+ passed.*", text)
    return found[-1].strip("= ")[:60] if found else ""


def print_line(test, outcome):
    print(f"{test.name:34} {outcome.word:8} {outcome.seconds:7.1f} s  {outcome.why}", flush=True)
    if outcome.word == "failed" and outcome.tail:
        print("    | " + outcome.tail.replace("\n", "\n    | "), flush=True)


def run_all(tests, runs, jobs):
    """Outcomes, in the order in which they come; longest limits first."""
    outcomes = []
    lock = threading.Lock()

    def one(test):
        outcome = runs.run(test)
        with lock:
            outcomes.append((test, outcome))
            print_line(test, outcome)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        try:
            for done in [pool.submit(one, test) for test in sorted(tests, key=lambda test: -test.limit_s)]:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runs.end_all()
            raise
    return outcomes


def test(options):
    tests = every_test(options.mps, options.only)
    if options.list:
        print("\n".join(each.name for each in tests))
        return 0
    names, why = machine.gpus()
    if not names:
        print(f"skipped: {why}")
        return machine.SKIPPED
    if not tests:
        raise Problem(f"no test has a name with {' or '.join(options.only)}")
    if missing := missing_programs():
        raise Problem(f"{machine.PROGRAMS} has no {', '.join(missing)}: tests/gpu/run build")
    logs = options.logs or machine.LOGS
    logs.mkdir(parents=True, exist_ok=True)
    print(machine.headline("tests/gpu/run test", names, options.mps), flush=True)
    began = time.monotonic()
    outcomes = []
    # A rank that dies may take a daemon's other clients along: those tests get a daemon of their own.
    for alone in (False, True):
        part = [each for each in tests if each.alone == alone]
        if not part:
            continue
        with machine.mps_daemon(options.mps) as environment:
            runs = Runs(options.budget - (time.monotonic() - began), environment, logs)
            outcomes += run_all(part, runs, 1 if alone else options.jobs or (2 if options.mps else 4))
    count = {word: sum(outcome.word == word for _, outcome in outcomes) for word in ("passed", "failed", "skipped")}
    print(f"# {', '.join(f'{number} {word}' for word, number in count.items())} in {time.monotonic() - began:.0f} s; "
          f"outputs: {os.path.relpath(logs)}")
    if not count["passed"] and not count["failed"]:
        print("nothing was tested")
        return 1
    return 1 if count["failed"] else 0
