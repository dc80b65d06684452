"""f16 with a scaled loss, and gradients that cross in bf16: the same bits in every mode, near those of f32."""
import os
import unittest

from pretraining import OVERLAPS, PretrainTest

# Powers of two; a small window, so that it grows within a few steps.
FP16 = ["--fp16", "--initial-loss-scale", "65536", "--loss-scale-window", "3"]


class Precision(PretrainTest):
    def scales(self, run):
        return [step["loss_scale"] for step in run.steps]

    def test_fp16_has_the_same_bits_in_every_mode_and_learns_what_f32_learns(self):
        words = ["--train-iters", "5", "--micro-batch-size", "2", "--global-batch-size", "4", "--dropout", "0.1"]
        plain = self.train(2, *words, *FP16)
        ways = {"overlapped": OVERLAPS, "ZeRO-2": ["--zero-stage", "2"], "ZeRO-3": ["--zero-stage", "3"],
                "computed again": ["--recompute-granularity", "full", "--recompute-method", "uniform",
                                   "--recompute-num-layers", "1"]}
        for name, way in ways.items():
            run = self.train(2, *words, *FP16, *way)
            self.assertEqual((run.hash, run.losses), (plain.hash, plain.losses), name)
        self.assertEqual(self.train(0, *words, *FP16).hash, plain.hash)
        self.assertEqual(self.scales(plain), [65536] * 3 + [131072] * 2)
        self.assertIn("loss scale 131072", plain.out)
        self.assert_close(plain.losses, self.train(2, *words).losses, 5e-3)

    def test_fp16_of_split_models_and_llama_is_near_f32(self):
        llama = ["--position-embedding-type", "rope", "--normalization", "RMSNorm", "--swiglu", "--disable-bias-linear"]
        ways = [(2, ["--tensor-model-parallel-size", "2", "--sequence-parallel", *llama]),
                (2, ["--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-h1"]),
                (2, ["--context-parallel-size", "2"])]
        for ranks, way in ways:
            words = ["--train-iters", "3", *way]
            self.assert_close(self.train(ranks, *words, *FP16).losses, self.train(ranks, *words).losses, 5e-3)

    def test_a_scale_that_is_too_large_falls_on_all_ranks_alike_and_no_update_is_made_until_it_fits(self):
        words = ["--fp16", "--train-iters", "24", "--hysteresis", "2"]
        run = self.train(2, *words, "--initial-loss-scale", str(2.0**36))
        skipped = [step["outcome"] == "skipped" for step in run.steps]
        count = skipped.index(False)
        self.assertGreater(count, 10)  # more than end a run that has no scale to blame
        self.assertEqual(sum(skipped), count)
        # The first skip is forgiven.
        wanted = [2.0**36, 2.0**36, *(2.0**(36 - i) for i in range(1, count))]
        self.assertEqual(self.scales(run)[:count + 1], wanted[:count + 1])
        self.assertEqual(len({step["lr"] for step in run.steps[:count + 1]}), 1)
        self.assertIn(f"{count} steps skipped", run.out)

    def test_an_overflow_on_one_rank_skips_the_step_everywhere_and_a_fixed_scale_stays(self):
        words = ["--train-iters", "4", "--inject-inf-at", "2:1", *OVERLAPS]
        run = self.train(2, *FP16, "--hysteresis", "1", *words)
        self.assertEqual([step["outcome"] for step in run.steps], ["updated", "skipped", "updated", "updated"])
        self.assertEqual(self.scales(run), [65536, 65536, 32768, 32768])
        fixed = self.train(2, "--fp16", "--loss-scale", "4096", *words)
        self.assertEqual(self.scales(fixed), [4096] * 4)
        self.assert_close(fixed.losses, run.losses, 1e-3)

    def test_a_checkpoint_keeps_the_scale(self):
        words = [*FP16, "--inject-inf-at", "2:0", "--lr-decay-iters", "6"]
        folder = os.path.join(self.folder, "saved")
        straight = self.train(2, *words, "--train-iters", "6", *OVERLAPS)
        self.train(2, *words, "--train-iters", "4", "--save", folder, *OVERLAPS)
        gone_on = self.train(2, *words, "--train-iters", "6", "--load", folder, "--zero-stage", "0")
        self.assertEqual(gone_on.hash, straight.hash)
        self.assertEqual(self.scales(gone_on), self.scales(straight)[4:])
        self.assertEqual(self.scales(straight), [65536] * 5 + [131072])

    def test_gradients_in_bf16_take_half_the_bytes_and_learn_the_same(self):
        words = ["--train-iters", "4", "--bucket-size", "8192"]
        half = ["--grad-reduce-in-bf16"]
        plain = self.train(2, *words, *half)
        for way in (OVERLAPS, ["--overlap-grad-reduce", "--bucket-size", "100000"]):
            run = self.train(2, *words, *half, *way)
            self.assertEqual((run.hash, run.losses), (plain.hash, plain.losses), way)
        wide = self.train(2, *words)
        self.assertNotEqual(plain.hash, wide.hash)
        self.assert_close(plain.losses, wide.losses, 1e-3)
        stages = [self.train(2, *words, *half, "--zero-stage", stage).hash for stage in "23"]
        self.assertEqual(stages[0], stages[1])

    def test_what_does_not_fit_together_is_named(self):
        for words, said in ((["--bf16", "--fp16"], "--bf16 and --fp16"), (["--loss-scale", "8"], "needs --fp16"),
                            (["--fp16", "--check-for-nan-in-loss-and-grad"], "--loss-scale"),
                            (["--fp16", "--min-loss-scale", "1e20"], "--initial-loss-scale"),
                            (["--recompute-granularity", "full"], "--recompute-method"),
                            (["--recompute-num-layers", "1"], "--recompute-granularity full")):
            run = self.start(0, *words)
            self.assertEqual(run.code, 2, run.text)
            self.assertIn(said, run.text)
            self.assertEqual(len(run.text.strip().splitlines()), 1, run.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
