"""The losses are those of a plain loop with torch::optim::AdamW."""
import unittest

from pretraining import MODEL, OVERLAPS, PretrainTest


class Reference(PretrainTest):
    def test_fifty_steps_follow_torch(self):
        # At three times this rate a last bit in the norm has grown to 1e-3 after forty steps.
        words = ["--train-iters", "50", "--lr", "1e-3", "--clip-grad", "1", "--weight-decay", "0.1",
                 "--lr-warmup-iters", "5"]
        wanted = self.reference(*words)
        self.assertLess(wanted[-1], 0.8 * wanted[0])  # it learns
        one_micro_batch = ["--micro-batch-size", "8"]
        self.assert_close(self.train(0, *words, *one_micro_batch).losses, wanted, 1e-5)
        self.assert_close(self.train(4, *words, *OVERLAPS).losses, wanted, 1e-5)

    def test_every_schedule_at_once_follows_torch(self):
        words = ["--train-iters", "30", "--lr", "1e-3", "--clip-grad", "1", "--lr-decay-style", "WSD",
                 "--lr-wsd-decay-iters", "8", "--lr-wsd-decay-style", "minus_sqrt", "--lr-warmup-fraction", "0.1",
                 "--lr-warmup-init", "1e-4", "--weight-decay-incr-style", "cosine", "--start-weight-decay", "0.01",
                 "--end-weight-decay", "0.5", "--global-batch-size", "24", "--rampup-batch-size", "8", "8", "120"]
        wanted = self.reference(*words)
        run = self.train(4, *words, *OVERLAPS)
        self.assert_close(run.losses, wanted, 1e-5)
        # 8 up to 60 sequences, 16 up to 120, then all 24.
        self.assertEqual([line["batch_size"] for line in run.steps], [8] * 8 + [16] * 4 + [24] * 18)
        self.assertEqual([line["tokens"] for line in run.steps], [32 * line["batch_size"] for line in run.steps])
        self.assertAlmostEqual(run.steps[14]["weight_decay"], 0.255, 9)
        self.assertEqual(run.steps[29]["weight_decay"], 0.5)
        self.assertEqual([run.steps[at]["lr"] for at in (2, 21, 29)], [1e-3, 1e-3, 0])

    def test_larger_micro_batch_gives_the_same_losses(self):
        words = ["--train-iters", "20"]
        large = self.train(0, *words, "--micro-batch-size", "8")
        self.assert_close(self.train(4, *words, *OVERLAPS).losses, large.losses, 1e-4)

    def test_untied_head_and_masked_tokens_follow_torch(self):
        licences = "/usr/share/common-licenses/"
        data = [licences + name for name in ("BSD", "Artistic", "GPL-1")]
        model = [*MODEL, "--untie-embeddings-and-output-weights", "--eod-mask-loss"]
        words = ["--train-iters", "30"]
        wanted = self.reference(*words, model=model, data=data)
        run = self.train(2, *words, *OVERLAPS, model=model, data=data)
        self.assert_close(run.losses, wanted, 1e-5)
        # An end of document is met sometimes, and does not count.
        self.assertTrue(any(line["tokens"] == 8 * 32 - 1 for line in run.steps))


if __name__ == "__main__":
    unittest.main(verbosity=2)
