"""Numbers that cannot be right, a rank that dies, and going on from a checkpoint."""
import os
import unittest

from pretraining import OVERLAPS, PretrainTest


class Numbers(PretrainTest):
    CHECK = ["--check-for-nan-in-loss-and-grad", "--global-batch-size", "6", "--train-iters", "6"]

    def test_planted_nan_is_named_on_every_rank(self):
        run = self.start(3, *self.CHECK, *OVERLAPS, "--inject-nan-at", "4:2")
        self.assertNotEqual(run.code, 0)
        for rank in range(3):
            lines = [line for line in run.err.splitlines()
                     if line.startswith(f"pretrain_gpt: rank {rank}:")]
            self.assertEqual(len(lines), 1, run.text)
            self.assertIn("rank 2", lines[0].split(f"rank {rank}:", 1)[1])
            self.assertIn("step 4", lines[0])
            self.assertIn("persistent", lines[0])
        self.assertEqual([line["step"] for line in run.steps][-1], 3)  # not one step further

    def test_loss_is_judged_with_the_step_when_strict(self):
        run = self.start(3, *self.CHECK, "--strict-loss-check", "--inject-loss-nan-at", "2:1")
        self.assertNotEqual(run.code, 0)
        self.assertIn("rank 1: loss", run.err)
        self.assertEqual([line["step"] for line in run.steps], [1])

    def test_loss_comes_one_step_late_when_not_strict(self):
        run = self.start(3, *self.CHECK, "--inject-loss-nan-at", "2:1", "--async-log-allreduce")
        self.assertNotEqual(run.code, 0)
        for rank in range(3):
            self.assertRegex(run.err, f"pretrain_gpt: rank {rank}: .*step 2")
        self.assertEqual([line["step"] for line in run.steps], [1, 2])
        self.assertIsNone(run.losses[-1])

    def test_transient_nan_is_computed_again(self):
        clean = self.train(3, *self.CHECK, *OVERLAPS)
        run = self.train(3, *self.CHECK, *OVERLAPS, "--inject-nan-at", "4:2:once")
        self.assertIn("transient", run.out)
        self.assertEqual(run.hash, clean.hash)

    def test_step_that_is_not_finite_is_skipped_and_counted(self):
        words = ["--train-iters", "6", *OVERLAPS]
        run = self.train(2, *words, "--inject-inf-at", "3:1")
        self.assertEqual([line["outcome"] for line in run.steps],
                         ["updated"] * 2 + ["skipped"] + ["updated"] * 3)
        self.assertIn("1 step skipped", run.out)
        plain = self.train(2, "--train-iters", "6", "--inject-inf-at", "3:1")
        self.assertEqual(run.hash, plain.hash)


class Checkpoints(PretrainTest):
    def setUp(self):
        super().setUp()
        self.save = os.path.join(self.folder, "checkpoints")

    def test_run_goes_on_bit_by_bit(self):
        words = ["--dropout", "0.1", "--lr-decay-iters", "8", *OVERLAPS]
        whole = self.train(2, *words, "--train-iters", "8")
        self.train(2, *words, "--train-iters", "5", "--save", self.save, "--save-interval", "2")
        rest = self.train(2, *words, "--train-iters", "8", "--load", self.save)
        self.assertEqual([line["step"] for line in rest.steps], [6, 7, 8])
        self.assertEqual(rest.losses, whole.losses[5:])
        self.assertEqual(rest.hash, whole.hash)
        from_4 = os.path.join(self.save, "iter_0000004")
        again = self.train(2, *words, "--train-iters", "8", "--load", from_4)
        self.assertEqual(again.hash, whole.hash)

    def test_killed_rank_ends_the_run_and_the_checkpoint_goes_on(self):
        words = ["--train-iters", "8", "--bucket-size", "8192", "--async-log-allreduce", *OVERLAPS]
        whole = self.train(4, *words)
        run = self.start(4, *words, "--save", self.save, "--save-interval", "3", "--keep", "1",
                         "--die-at", "5:2")
        self.assertNotEqual(run.code, 0)
        self.assertIn("rank 2", run.err)
        self.assertIn("SIGKILL", run.err)
        for rank in (0, 1, 3):
            self.assertRegex(run.err, f"pretrain_gpt: rank {rank}: peer_lost: .*rank 2")
        # Step 4 was done: the line of step 3 is there.
        self.assertEqual([line["step"] for line in run.steps], [1, 2, 3])
        rest = self.train(4, *words, "--load", self.save)
        self.assertEqual([line["step"] for line in rest.steps], [4, 5, 6, 7, 8])
        self.assertEqual(rest.hash, whole.hash)

    def test_other_number_of_ranks_goes_on(self):
        words = ["--lr-decay-iters", "8"]
        whole = self.train(4, *words, *OVERLAPS, "--train-iters", "8")
        self.train(4, *words, *OVERLAPS, "--train-iters", "4", "--save", self.save)
        for ranks in (1, 2):
            rest = self.train(ranks, *words, "--train-iters", "8", "--load", self.save)
            self.assert_close(rest.losses, whole.losses[4:], 1e-5)

    def test_bf16_goes_on_bit_by_bit(self):
        words = ["--bf16", "--lr-decay-iters", "6", *OVERLAPS]
        whole = self.train(2, *words, "--train-iters", "6")
        self.train(2, *words, "--train-iters", "3", "--save", self.save)
        self.assertEqual(self.train(2, *words, "--train-iters", "6", "--load", self.save).hash,
                         whole.hash)

    def test_other_seed_is_refused(self):
        self.train(0, "--train-iters", "1", "--save", self.save)
        run = self.start(0, "--train-iters", "2", "--load", self.save, "--seed", "7")
        self.assertEqual(run.code, 2, run.text)
        self.assertIn("--seed", run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
