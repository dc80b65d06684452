"""Starts real ranks for the tests: under `tutti run`, or as plain processes that meet in a file."""
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("TUTTI_BUILD_DIR", HERE.parent.parent / "build"))
TOOL = os.environ.get("TUTTI_TOOL", str(BUILD / "bin" / "tutti"))
LIMIT = 120  # seconds; only against hangs


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    paths = [str(BUILD / "python"), str(HERE)]
    return {**clean, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1",
            "TUTTI_TUNING": "fixed", **more}


def tutti_run(n, *words, **more):
    """Runs `tutti run -n N words…` to its end."""
    return subprocess.run([TOOL, "run", "-n", str(n), *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT, env=environment(**more))


class Ranks:
    """N processes with a folder in common. Each runs function(rank, size, folder) of its module,
    and hands back what that returns, as JSON."""

    def __init__(self, n, function, **more):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti_python_")
        self.n = n
        words = [sys.executable, "-u", str(HERE / "jobs.py"), function.__module__,
                 function.__name__]
        self.processes = [
            subprocess.Popen([*words, str(rank), str(n), self.folder.name],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, env=environment(**more))
            for rank in range(n)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
        self.folder.cleanup()

    def flag(self, name):
        """A file by which a rank tells the test, or the test a rank, that something is so."""
        return Path(self.folder.name) / name

    def answers(self):
        """What each rank handed back; None for one that was killed."""
        said = [process.communicate(timeout=LIMIT)[0] for process in self.processes]
        answers = []
        for rank, process in enumerate(self.processes):
            path = self.flag(f"answer.{rank}")
            if process.returncode == 0:
                answers.append(json.loads(path.read_text()))
            elif process.returncode == -signal.SIGKILL:
                answers.append(None)
            else:
                raise AssertionError(f"rank {rank} ended with {process.returncode}:\n{said[rank]}")
        return answers


def run_ranks(n, function, **more):
    with Ranks(n, function, **more) as ranks:
        return ranks.answers()


def wait_for(fact, what):
    """Waits in small steps for a fact that another process makes."""
    import time
    deadline = time.monotonic() + LIMIT
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {LIMIT} s still not: {what}")
        time.sleep(0.005)


def main():
    module, function, rank, size, folder = sys.argv[1:]
    body = getattr(importlib.import_module(module), function)
    try:
        answer = body(int(rank), int(size), folder)
    except SystemExit:  # of a child
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    (Path(folder) / f"answer.{rank}").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
