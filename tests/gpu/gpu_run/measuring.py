"""What the table of tests/gpu/run bench is made from: runs of `tutti bench` and of bench/torch_compare.py."""
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from . import machine
from .machine import PROGRAMS, ROOT

LEAST_S = 5  # a program that has less than this left is not started


class NotMeasured(Exception):
    """Why, in one line."""


class Machine:
    """Runs programs within what is left of the budget, and keeps their outputs."""

    def __init__(self, budget_s, environment, logs):
        self.last = time.monotonic() + budget_s
        self.environment = machine.environment(TUTTI_TUNING="fixed", **environment)
        self.logs = logs

    def run(self, name, command, limit_s, **environment):
        """The JSON that the command writes where its last word says."""
        limit = min(limit_s, self.last - time.monotonic())
        if limit < LEAST_S:
            raise NotMeasured("no time was left")
        with tempfile.TemporaryDirectory(prefix="gpu_bench_") as folder:
            path = Path(folder, "out.json")
            with open(self.logs / f"{name}.log", "wb") as log, subprocess.Popen(
                    ["timeout", "-s", "KILL", f"{limit:.0f}", *map(str, command), str(path)], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                    env={**self.environment, **environment}) as process:
                try:
                    code = process.wait(limit + 10)
                except subprocess.TimeoutExpired:
                    code = None
                finally:
                    try:
                        os.killpg(process.pid, signal.SIGKILL)
                    except OSError:
                        pass  # all of it has ended
            if code:
                tail = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise NotMeasured(f"{name}: exit code {code}: {tail[-1] if tail else ''}")
            return json.loads(path.read_text(encoding="utf-8"))


class Collectives:
    """Cells of `tutti bench`, by ranks, collective, bytes and memory; each the median of its rounds."""
    ROUNDS = 2

    def __init__(self, runner, scale):
        self.runner = runner
        self.scale = scale
        self.cells = {}
        self.failed = {}
        self.ceilings = {}

    def measure(self, ranks, collectives, first, last, memories):
        for turn in range(self.ROUNDS):
            for memory in memories:
                name = f"bench_{'_'.join(collectives)}_{ranks}_{memory}_{turn}"
                command = [PROGRAMS / "bin/tutti", "bench", ",".join(collectives), "--device", "cuda", "-n", ranks,
                           "-b", first, "-e", last, "-f", 4, "--placement", "common", "--memory", memory,
                           *self.scale.effort, "--json"]
                try:
                    found = self.runner.run(name, command, 90)
                except NotMeasured as why:
                    self.failed[ranks, memory] = str(why)
                    continue
                self.ceilings.setdefault(ranks, []).append(found["machine"]["copy_ceiling_gbs"])
                for row in found["results"]:
                    self.cells.setdefault((ranks, row["collective"], row["bytes"], memory), []).append(row)

    def get(self, ranks, collective, size, memory, pick):
        rows = self.cells.get((ranks, collective, size, memory))
        if not rows:
            raise NotMeasured(self.failed.get((ranks, memory), "no such cell"))
        if any(row["wrong"] for row in rows):
            raise NotMeasured("wrong elements")
        return statistics.median(pick(row) for row in rows)

    def time_us(self, *cell):
        return self.get(*cell, lambda row: row["time_us"]["median"])

    def percent(self, *cell):
        return self.get(*cell, lambda row: 100 * (row["floor_share"] or 0))

    def host_us(self, *cell):
        return self.get(*cell, lambda row: row["host_us"])


class HandOver:
    """New weights for one receiver: what share of the copy ceiling is reached."""
    # The program writes to standard output.
    SHELL = '"$1" run -n 2 "$2" --device cuda --bytes "$3" --json > "$4"'

    def __init__(self, runner):
        self.runner = runner
        self.found = None
        self.failed = "not asked for"

    def measure(self, nbytes):
        command = ["sh", "-c", self.SHELL, "sh", PROGRAMS / "bin/tutti", PROGRAMS / "bin/bench_hand_over", nbytes]
        try:
            self.found = self.runner.run("hand_over", command, 60)
        except NotMeasured as why:
            self.failed = str(why)

    def percent(self):
        if self.found is None:
            raise NotMeasured(self.failed)
        return max(row["percent_of_ceiling"] for row in self.found["rows"])


class Training:
    """What share of the communication hides when gradients and weights travel beside compute, by dtype."""

    def __init__(self, runner, scale):
        self.runner = runner
        self.scale = scale
        self.hidden = {}
        self.failed = "not asked for"

    def measure(self):
        if machine.trainer() is None:
            self.failed = "pretrain_gpt was not built"
            return
        try:
            found = self.runner.run("training", machine.train_modes("--modes", "distributed, overlap both", "--steps",
                                                                    self.scale.steps, "--json"), 100)
        except NotMeasured as why:
            self.failed = str(why)
            return
        self.hidden = {row["dtype"]: row["hidden_percent"] for row in found["rows"] if row["mode"].endswith("overlap both")}

    def percent(self, dtype):
        if dtype not in self.hidden:
            raise NotMeasured(self.failed)
        return self.hidden[dtype]


class Torch:
    """torch.distributed on tutti beside gloo, by ranks."""

    def __init__(self, runner, scale):
        self.runner = runner
        self.scale = scale
        self.rows = {}
        self.failed = {}

    def measure(self, ranks, sizes, with_ddp):
        path = machine.module_path()
        if path is None:
            self.failed[ranks] = "tutti_torch was not built"
            return
        command = [machine.python(), ROOT / "bench/torch_compare.py", "--device", "cuda", "-n", ranks, "--collectives",
                   "all_reduce", "--sizes", ",".join(map(str, sizes)), "--rounds", 1, "--budget", self.scale.torch_budget,
                   *([] if with_ddp else ["--no-ddp"]), "--json"]
        try:
            found = self.runner.run(f"torch_{ranks}", command, 180, PYTHONPATH=str(path), PYTHONDONTWRITEBYTECODE="1")
        except NotMeasured as why:
            self.failed[ranks] = str(why)
            return
        for row in found["rows"]:
            self.rows[ranks, row["operation"], row["size"] if row["operation"] != "ddp" else ""] = row

    def get(self, ranks, operation, size, field):
        row = self.rows.get((ranks, operation, size))
        if row is None or row[field] is None:
            raise NotMeasured(self.failed.get(ranks, "gloo has no such thing"))
        return row[field]
