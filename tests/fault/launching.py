"""What the tests of `tutti run` share: starting it, waiting for facts, finding what is left."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

TOOL = os.environ["TUTTI_TOOL"]
PROGRAMS = os.environ.get("TUTTI_TEST_PROGRAMS", "")
LIMIT = 60  # seconds; only against hangs


def pids_with(mark):
    """Live processes that inherited the environment variable MARK=mark; the launcher is one."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            pass
    return found


def wait_until(fact, what):
    deadline = time.monotonic() + LIMIT
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {LIMIT} s still not: {what}")
        time.sleep(0.01)


class LaunchTest(unittest.TestCase):
    """Each test has a folder of its own and leaves no process behind."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.mark = uuid.uuid4().hex
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self):
        try:
            wait_until(lambda: not pids_with(self.mark), "all processes of the job are gone")
        finally:
            for pid in pids_with(self.mark):
                os.kill(pid, signal.SIGKILL)

    def environment(self, **more):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        return {**clean, "MARK": self.mark, **more}

    def script(self, text, name="rank.py"):
        """A Python program for the ranks; returns the words that run it."""
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write("import os, sys, signal, socket, time\n"
                       "RANK = int(os.environ.get('RANK', 0))\n" + text)
        return [sys.executable, "-u", path]

    def tutti(self, *words, input="", **more):
        """Runs `tutti words…` to its end."""
        return subprocess.run([TOOL, *words], input=input, capture_output=True, text=True,
                              timeout=LIMIT, env=self.environment(**more))

    def start(self, *words, **more):
        """Starts `tutti words…`; stdout is a pipe to read progress from."""
        process = subprocess.Popen([TOOL, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.environment(**more))
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def read_lines(self, process, count):
        return [process.stdout.readline().rstrip("\n") for _ in range(count)]
