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

    def test_every_zero_stage_with_one_micro_batch_a_step(self):
        words = ["--train-iters", "4", "--micro-batch-size", "2", "--global-batch-size", "4", "--dropout", "0.1",
                 "--eval-interval", "2", "--eval-iters", "1"]
        runs = {stage: self.train(2, *words, "--zero-stage", str(stage)) for stage in (0, 1, 2, 3)}
        for stage, run in runs.items():
            self.assertEqual(run.hash, runs[0].hash, f"--zero-stage {stage}")
            losses = [line["loss"] for line in run.log if line.get("event") == "validation"]
            self.assertEqual(losses, [line["loss"] for line in runs[0].log if line.get("event") == "validation"])
            self.assertEqual(len(losses), 2)

    def test_zero_stages_2_and_3_alike_with_several_and_across_a_checkpoint(self):
        words = ["--micro-batch-size", "1", "--global-batch-size", "4"]
        folder = os.path.join(self.folder, "saved")
        straight = self.train(2, *words, "--train-iters", "4", "--zero-stage", "2")
        self.train(2, *words, "--train-iters", "2", "--zero-stage", "2", "--save", folder, "--save-interval", "2",
                   "--lr-decay-iters", "4")
        gone_on = self.train(2, *words, "--train-iters", "4", "--zero-stage", "3", "--load", folder)
        self.assertEqual(gone_on.hash, straight.hash)
        self.assertIn("exposed in a step of rank 0", gone_on.out)

    def test_a_batch_that_grows_on_other_ranks_and_across_a_checkpoint(self):
        ramp = ["--global-batch-size", "16", "--rampup-batch-size", "4", "4", "40", "--dropout", "0.1",
                "--weight-decay-incr-style", "linear", "--start-weight-decay", "0", "--end-weight-decay", "1",
                "--lr-decay-iters", "9"]
        words = [*ramp, "--train-iters", "9"]
        folder = os.path.join(self.folder, "saved")
        whole = self.train(2, *words, *OVERLAPS, "--save", folder, "--save-interval", "4")
        self.assertEqual([line["batch_size"] for line in whole.steps], [4, 4, 4, 4, 8, 8, 12, 16, 16])
        resumed = ["--load", os.path.join(folder, "iter_0000004")]
        self.assertEqual(self.train(2, *words, *OVERLAPS, *resumed).hash, whole.hash)
        # As long as a rank has one micro-batch a step, one rank that has them all has the same bits.
        begin = [*words, "--train-iters", "4"]
        alone = self.train(0, *begin)
        self.assertEqual(alone.hash, self.train(2, *begin, *OVERLAPS).hash)
        self.assert_close(self.train(0, *words, *resumed).losses, whole.losses[4:], 1e-5)
        pipeline = self.train(2, *words, "--pipeline-model-parallel-size", "2")
        self.assert_close(pipeline.losses, whole.losses, 1e-5)
        for other, said in (
                (["--rampup-batch-size", "4", "4", "50"], "--rampup-batch-size is 4 4 50 here and was 4 4 40"),
                (["--end-weight-decay", "2"], "--end-weight-decay is 2 here and was 1"),
                (["--train-iters", "10"], "--train-iters")):
            run = self.start(0, *words, *resumed, *other)
            self.assertEqual((run.code, run.err.count("\n")), (2, 1), run.text)
            self.assertIn(said, run.err)
        kept = self.train(2, *words, *OVERLAPS, *resumed, "--rampup-batch-size", "4", "4", "50",
                          "--use-checkpoint-opt-param-scheduler")
        self.assertEqual(kept.hash, whole.hash)
        other = self.train(0, *words, *resumed, "--rampup-batch-size", "4", "12", "1000",
                           "--override-opt-param-scheduler")
        self.assertEqual([line["batch_size"] for line in other.steps], [4] * 5)

    def test_layers_that_are_computed_again_whatever_is_split_and_kept_in_shards(self):
        full = ["--recompute-granularity", "full", "--recompute-num-layers"]
        uniform, block = [*full, "2", "--recompute-method", "uniform"], [*full, "1", "--recompute-method", "block"]
        selective = ["--recompute-granularity", "selective"]
        words = ["--train-iters", "3", "--dropout", "0.1", "--num-layers", "4"]
        stages = ["--pipeline-model-parallel-size", "2", "--pipeline-schedule"]
        cases = {  # for each row the runs have the weights of one that keeps everything
            "four ranks": (4, OVERLAPS, [uniform, block]),
            "ZeRO-3": (2, ["--zero-stage", "3"], [uniform, [*full, "1", "--recompute-method", "uniform"], selective]),
            "zb-h1": (2, [*stages, "zb-h1"], [uniform, selective]),
            "interleaved": (2, [*stages, "interleaved", "--num-layers-per-virtual-pipeline-stage", "1"], [block]),
            "split": (4, ["--tensor-model-parallel-size", "2", "--sequence-parallel", "--tp-comm-overlap",
                          "--context-parallel-size", "2"], [uniform, block]),
        }
        for name, (ranks, way, again) in cases.items():
            kept = self.train(ranks, *words, *way)
            for more in again:
                run = self.train(ranks, *words, *way, *more)
                self.assertEqual(run.hash, kept.hash, f"{name}: {' '.join(more)}")
                self.assertEqual(run.losses, kept.losses)

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
