"""examples/own_model.cpp and own_loss.cpp: a model and a loss of one's own have what pretrain_gpt's loop offers."""
import json
import math
import os
import subprocess
import unittest

from pretraining import LIMIT, MODEL, OVERLAPS, TEXT, TOOL, PretrainTest, Run

OWN_MODEL, OWN_LOSS = os.environ.get("OWN_MODEL"), os.environ.get("OWN_LOSS")
WAVES = "--train-iters 60 --lr 1e-2 --micro-batch-size 4 --global-batch-size 16 --print-weight-hash".split()
TEXTS = [*MODEL, "--data-path", TEXT, "--train-iters", "3"]


@unittest.skipUnless(OWN_MODEL, "the examples are not built")
class Own(PretrainTest):
    def run_program(self, program, ranks, *words):
        log = os.path.join(self.folder, "log.jsonl")
        launcher = [TOOL, "run", "-n", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, program, "--log-json", log, *words], capture_output=True, text=True,
                              timeout=LIMIT)
        lines = []
        if os.path.exists(log):
            with open(log) as file:
                lines = [json.loads(line) for line in file]
            os.remove(log)
        return Run(done, lines)

    def succeed(self, *arguments):
        run = self.run_program(*arguments)
        self.assertEqual(run.code, 0, run.text)
        self.assertIsNotNone(run.hash, run.text)
        return run

    def test_an_own_model_learns_with_the_same_bits_in_every_mode(self):
        one = self.succeed(OWN_MODEL, 0, *WAVES, "--eval-interval", "60")
        self.assertLess(one.losses[-1], 0.5 * one.losses[0])
        self.assertLess([line["loss"] for line in one.log if line.get("event") == "validation"][-1],
                        0.5 * one.losses[0])
        self.assertIn("own_model of ", one.out)
        self.assertIn(" samples/s  step ", one.out)
        self.assertNotIn("token", one.out)
        for line in one.steps:
            self.assertEqual(line["counted"], 16)
            self.assertAlmostEqual(line["samples_per_s"], 16 / line["max"]["step_s"], delta=1e-6 * line["samples_per_s"])
            self.assertFalse({"tokens", "tokens_per_s"} & line.keys())
        for flags in ([], OVERLAPS, ["--zero-stage", "1", "--overlap-grad-reduce"]):
            with self.subTest(flags=flags):
                self.assertEqual(self.succeed(OWN_MODEL, 4, *WAVES, *flags).hash, one.hash)

    def test_an_own_model_goes_on_from_its_checkpoint_on_other_ranks(self):
        whole = self.succeed(OWN_MODEL, 0, *WAVES)
        save = ["--save", os.path.join(self.folder, "saved"), "--load", "latest", "--lr-decay-iters", "60"]
        self.succeed(OWN_MODEL, 4, *WAVES, *save, "--train-iters", "25", *OVERLAPS)
        rest = self.succeed(OWN_MODEL, 0, *WAVES, *save)
        self.assertEqual(len(rest.steps), 35)
        self.assertEqual(rest.hash, whole.hash)

    def test_an_own_model_has_the_guard_and_no_flags_that_are_not_its_own(self):
        run = self.run_program(OWN_MODEL, 2, *WAVES, "--check-for-nan-in-loss-and-grad", "--inject-nan-at", "5:1")
        self.assertEqual(run.code, 1)
        self.assertIn("rank 1", run.err)
        for words in (["--num-layers", "3"], ["--load-hf", "here"], ["--tensor-model-parallel-size", "2"]):
            run = self.run_program(OWN_MODEL, 0, *words)
            self.assertEqual((run.code, run.out), (2, ""))
            self.assertEqual(run.err, f"own_model: there is no '{words[0]}'; see own_model --help\n")
        self.assertIn("--zero-stage", self.run_program(OWN_MODEL, 0, "--help").out)

    def test_a_log_that_cannot_be_written_is_said_by_the_program_that_runs(self):
        run = subprocess.run([OWN_MODEL, *WAVES, "--train-iters", "2", "--log-json", "/dev/full"],
                             capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 1)
        self.assertTrue(run.stderr.startswith("own_model: warning: --log-json /dev/full cannot be written"), run.stderr)
        self.assertNotIn("pretrain_gpt", run.stderr)

    def test_an_own_loss_counts_in_every_layout(self):
        plain = self.start(0, "--train-iters", "3")
        one = self.succeed(OWN_LOSS, 0, *TEXTS)
        # Scores are small at first: then it is cross entropy, and the price of log v.
        self.assertAlmostEqual(one.losses[0] - plain.losses[0], 1e-4 * math.log(257) ** 2, delta=3e-3)
        self.assertGreater(one.losses[0], plain.losses[0])
        self.assertEqual(self.succeed(OWN_LOSS, 4, *TEXTS, *OVERLAPS).hash, one.hash)
        for flags in ("--pipeline-model-parallel-size 2", "--context-parallel-size 2"):
            other = self.succeed(OWN_LOSS, 2, *TEXTS, *flags.split())
            self.assert_close(other.losses, one.losses, 1e-5)
        run = self.run_program(OWN_LOSS, 2, *TEXTS, "--tensor-model-parallel-size", "2")
        self.assertEqual(run.code, 2)
        self.assertIn("--tensor-model-parallel-size cuts the scores", run.err)


if __name__ == "__main__":
    unittest.main()
