"""--predict: what is foretold stands beside what was measured, and looking ahead changes no bit."""
import unittest

from pretraining import OVERLAPS, PretrainTest


class Predict(PretrainTest):
    def prediction(self, run):
        found = [line for line in run.log if line.get("event") == "prediction"]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_same_weights_with_and_without_it(self):
        words = ["--train-iters", "4", "--dropout", "0.1", *OVERLAPS]
        self.assertEqual(self.train(2, *words, "--predict").hash, self.train(2, *words).hash)

    def test_predicted_and_measured_are_of_one_kind(self):
        for words in ([], OVERLAPS):
            run = self.train(2, "--train-iters", "8", *words, "--predict")
            self.assertIn("prediction, ms", run.out)
            self.assertIn("predicted: step", run.out)
            line = self.prediction(run)
            # How near is for quiet machines to say (docs/performance.md): told, not judged.
            print(f"step predicted / measured: {line['predicted']['step_s'] / line['measured']['step_s']:.2f}")
            for side in ("predicted", "measured"):
                self.assertGreater(line[side]["wire_s"], 0)
                self.assertLess(line[side]["exposed_s"], line[side]["step_s"])
            self.assertGreater(line["alone_s"], 0)
            self.assertGreater(line["tuner_s"], 0)

    def test_one_rank_has_nothing_to_send(self):
        line = self.prediction(self.train(0, "--train-iters", "4", "--predict"))
        self.assertEqual(line["alone_s"], 0)
        self.assertEqual(line["predicted"]["exposed_s"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
