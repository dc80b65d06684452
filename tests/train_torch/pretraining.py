"""What the tests of pretrain_gpt share: starting it on some ranks and reading what it said."""
import json
import os
import re
import subprocess
import tempfile
import unittest

TOOL = os.environ["TUTTI_TOOL"]
PROGRAM = os.environ["PRETRAIN_GPT"]
REFERENCE = os.environ.get("TORCH_REFERENCE", "")
LIMIT = 240  # seconds; only against hangs
TEXT = "/usr/share/common-licenses/GPL-3"
MODEL = ("--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 "
         "--micro-batch-size 2 --global-batch-size 8 --lr 3e-3 --print-weight-hash").split()
OVERLAPS = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather".split()


class Run:
    """A run that has ended."""

    def __init__(self, done, log):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.text = done.stdout + done.stderr
        self.log = log
        found = re.search(r"weights sha256 (\w+)", self.out)
        self.hash = found[1] if found else None
        self.steps = [line for line in log if "event" not in line]
        self.losses = [line["loss"] for line in self.steps]


class PretrainTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, ranks, *words, model=MODEL, data=(TEXT,), environment=None, launch=()):
        """Trains on so many ranks; 0: without a launcher. `launch`: words for `tutti run` itself."""
        log = os.path.join(self.folder, "log.jsonl")
        if os.path.exists(log):
            os.remove(log)
        launcher = [TOOL, "run", "-n", str(ranks), *launch] if ranks else []
        command = [*launcher, PROGRAM, *model, "--data-path", *data, "--log-json", log, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT,
                              env={**os.environ, **(environment or {})})
        lines = []
        if os.path.exists(log):
            with open(log) as file:
                lines = [json.loads(line) for line in file]
        return Run(done, lines)

    def train(self, *arguments, **more):
        """The same, and it must go well."""
        run = self.start(*arguments, **more)
        self.assertEqual(run.code, 0, run.text)
        self.assertIsNotNone(run.hash, run.text)
        return run

    def reference(self, *words, model=MODEL, data=(TEXT,)):
        """The losses of the plain torch loop."""
        done = subprocess.run([REFERENCE, *model, "--data-path", *data, *words], capture_output=True,
                              text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line)["loss"] for line in done.stdout.splitlines()]

    def assert_close(self, got, wanted, tolerance):
        self.assertEqual(len(got), len(wanted))
        for step, (a, b) in enumerate(zip(got, wanted), 1):
            self.assertLessEqual(abs(a - b), tolerance * abs(b), f"step {step}: {a} and {b}")
