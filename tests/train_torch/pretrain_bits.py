"""The weights do not depend on how the work was spread and hidden."""
import os
import subprocess
import sys
import unittest

from pretraining import OVERLAPS, PROGRAM, TOOL, PretrainTest

BITS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/bits")


class Bits(PretrainTest):
    def test_every_two_settings_meet_in_runs_of_equal_bits(self):
        done = subprocess.run([sys.executable, BITS, "--pairwise", "--tool", TOOL, "--program",
                               PROGRAM], capture_output=True, text=True, timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout)

    def test_four_ranks_equal_four_micro_batches(self):
        words = ["--train-iters", "5", "--dropout", "0.1"]
        alone = self.train(0, *words)
        self.assertEqual(self.train(4, *words, *OVERLAPS).hash, alone.hash)

    def test_seven_micro_batches_equal_seven_ranks(self):
        words = ["--train-iters", "3", "--micro-batch-size", "1", "--global-batch-size", "7"]
        self.assertEqual(self.train(7, *words, *OVERLAPS).hash, self.train(0, *words).hash)

    def test_definition_order_does_not_matter(self):
        words = ["--train-iters", "4", "--bucket-size", "8192", *OVERLAPS]
        plain = self.train(2, *words)
        shuffled = self.train(2, *words, "--shuffle-definition-order")
        self.assertEqual(shuffled.hash, plain.hash)

    def test_other_seed_gives_other_weights(self):
        words = ["--train-iters", "2"]
        self.assertNotEqual(self.train(0, *words).hash, self.train(0, *words, "--seed", "5").hash)

    def test_delayed_rank_changes_nothing(self):
        words = ["--train-iters", "4", "--bucket-size", "8192", *OVERLAPS]
        delayed = self.train(2, *words, "--inject-delay", "1:30")
        self.assertEqual(delayed.hash, self.train(2, *words).hash)
        # Some step: on a busy machine the other rank may be late as well.
        self.assertGreater(max(step["max"]["skew_s"] for step in delayed.steps), 0.01)


if __name__ == "__main__":
    unittest.main(verbosity=2)
