"""What is printed and logged, and that looking changes nothing."""
import os
import re
import unittest

from pretraining import OVERLAPS, PretrainTest


class Log(PretrainTest):
    def printed(self, run):
        """Step, loss, norm and rate of every line: what does not depend on time."""
        return re.findall(r"^step (\d+)/\d+  loss (\S+)  grad norm (\S+)  lr (\S+)", run.out, re.M)

    def test_synchronous_and_asynchronous_logs_are_equal(self):
        words = ["--train-iters", "6", *OVERLAPS]
        waited, late = self.train(3, *words, "--global-batch-size", "6"), \
            self.train(3, *words, "--global-batch-size", "6", "--async-log-allreduce")
        self.assertEqual(len(self.printed(waited)), 6)
        self.assertEqual(self.printed(waited), self.printed(late))
        for name in ("step", "loss", "grad_norm", "lr", "tokens", "outcome"):
            self.assertEqual([line[name] for line in waited.steps],
                             [line[name] for line in late.steps])

    def test_validation_between_steps_changes_no_bit(self):
        words = ["--train-iters", "5", "--dropout", "0.1", *OVERLAPS]
        quiet = self.train(2, *words)
        looking = self.train(2, *words, "--eval-interval", "2", "--eval-iters", "2",
                             "--check-weight-hash-across-dp-replicas-interval", "1")
        self.assertEqual(looking.hash, quiet.hash)
        found = [line for line in looking.log if line.get("event") == "validation"]
        self.assertEqual([line["step"] for line in found], [2, 4])
        self.assertTrue(all(4 < line["loss"] < 6 for line in found), found)

    def test_table_and_place_of_the_log_come_at_the_end(self):
        run = self.train(2, "--train-iters", "3", *OVERLAPS)
        for words in ("exposed communication", "hidden share", "bound of the step", "tokens/s",
                      "log in " + self.folder):
            self.assertIn(words, run.out)
        for line in run.steps:
            for side in ("mean", "max"):
                self.assertLessEqual(line[side]["hidden"], 1)
                self.assertGreater(line[side]["step_s"], 0)
                self.assertAlmostEqual(line["mean"]["wait_s"],
                                       line["mean"]["skew_s"] + line["mean"]["exposed_s"], 6)

    def test_memory_is_told_by_kind_beside_what_arithmetic_says(self):
        run = self.train(2, "--train-iters", "2", *OVERLAPS)
        memory = next(line for line in run.log if line.get("event") == "memory")
        self.assertIn("memory of a rank at most", run.out)
        self.assertEqual(memory["device"], "cpu")
        self.assertEqual(len(memory["ranks"]), 2)
        for kind, most in memory["measured"].items():
            self.assertEqual(max(rank[kind] for rank in memory["ranks"]), most)
        self.assertGreater(memory["measured"]["activations"], 0)
        self.assertGreater(memory["predicted"]["activations"], 0)
        for kind in ("weights", "gradients", "optimizer"):
            measured, predicted = memory["measured"][kind], memory["predicted"][kind]
            self.assertGreaterEqual(measured, predicted)
            self.assertLess(measured, 1.2 * predicted)  # parameters and buckets are filled up

    def test_use_of_the_devices_is_told_of_a_peak_that_is_given_or_measured(self):
        given = self.train(2, "--train-iters", "3", "--peak-flops", "1e9", "--tensorboard-dir",
                           os.path.join(self.folder, "events"))
        told = next(line for line in given.log if line.get("event") == "compute")
        # 2 layers of 12·32² and 257·32 weights, 2·32·32 for scores: forward once, backward twice.
        self.assertEqual(told, {"event": "compute", "peak_flops": 1e9, "measured": False,
                                "token_flops": 3 * (2 * (2 * 12 * 32**2 + 257 * 32) + 2 * 2 * 32 * 32)})
        for line in given.steps:
            used = 8 * 32 * told["token_flops"] / (line["max"]["step_s"] * 2 * 1e9)
            self.assertAlmostEqual(line["mfu"], used, 9)
        self.assertIn("MFU", given.out)
        with open(*[entry.path for entry in os.scandir(os.path.join(self.folder, "events"))], "rb") as file:
            events = file.read()
        for tag in (b"throughput/mfu", b"optimizer/weight_decay", b"batch/sequences", b"throughput/tokens_per_s"):
            self.assertIn(tag, events)
        measured = self.train(2, "--train-iters", "3")
        told = next(line for line in measured.log if line.get("event") == "compute")
        self.assertTrue(told["measured"])
        self.assertGreater(told["peak_flops"], 1e7)
        self.assertTrue(all(line["mfu"] > 0 for line in measured.steps))

    def test_memory_of_the_third_stage_is_a_share_and_the_pool(self):
        run = self.train(2, "--train-iters", "2", "--zero-stage", "3")
        memory = next(line for line in run.log if line.get("event") == "memory")
        for kind in ("weights", "gradients", "optimizer"):
            self.assertLess(memory["measured"][kind], 1.2 * memory["predicted"][kind])
        self.assertGreater(memory["measured"]["pool"], 0)
        units = next(line for line in run.log if line.get("event") == "units")
        self.assertGreater(len(units["exposed"]), 2)

    def test_optimizer_sgd_learns(self):
        run = self.train(2, "--train-iters", "30", "--optimizer", "sgd", "--lr", "0.1", *OVERLAPS)
        self.assertLess(run.losses[-1], 0.8 * run.losses[0])


class Refusals(PretrainTest):
    def refused(self, ranks, *words, **more):
        run = self.start(ranks, *words, **more)
        self.assertEqual(run.code, 2, run.text)
        return run.err

    def test_gather_without_the_other_two(self):
        error = self.refused(0, "--overlap-param-gather")
        self.assertIn("--overlap-param-gather needs --use-distributed-optimizer and "
                      "--overlap-grad-reduce", error)
        self.assertEqual(len(error.splitlines()), 1)

    def test_zero_stages_that_contradict_other_flags(self):
        for stage in ("0", "2", "3"):
            error = self.refused(0, "--use-distributed-optimizer", "--zero-stage", stage)
            self.assertIn("--use-distributed-optimizer is --zero-stage 1", error)
        error = self.refused(0, "--zero-stage", "2", "--pipeline-model-parallel-size", "2")
        self.assertIn("--pipeline-model-parallel-size 2", error)
        self.assertIn("--on-failure shrink", self.refused(0, "--zero-stage", "3", "--on-failure", "shrink"))
        self.assertIn("--zero-stage", self.refused(0, "--zero-stage", "4"))
        self.assertIn("--predict", self.refused(0, "--zero-stage", "3", "--predict"))

    def test_cuda_where_torch_has_none(self):
        run = self.start(0, "--device", "cuda", "--train-iters", "1",
                         environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(run.code, 2, run.text)
        self.assertIn("--device cuda: torch", run.err)
        self.assertEqual(len(run.err.splitlines()), 1)

    def test_batch_that_does_not_divide(self):
        error = self.refused(3)
        self.assertIn("--global-batch-size 8", error)
        self.assertIn("--micro-batch-size 2", error)

    def test_data_that_cannot_be_read(self):
        self.assertIn("/no/such/file", self.refused(0, data=["/no/such/file"]))
        self.assertIn("is a folder", self.refused(0, data=["/usr"]))
        empty = os.path.join(self.folder, "empty")
        open(empty, "w").close()
        self.assertIn(empty, self.refused(0, data=[empty]))

    def test_flags_that_do_not_exist_or_fit(self):
        self.assertIn("--no-such-flag", self.refused(0, "--no-such-flag"))
        self.assertIn("--hidden-size", self.refused(0, "--num-attention-heads", "5"))
        self.assertIn("--dropout", self.refused(0, "--dropout", "1"))
        self.assertIn("--train-iters", self.refused(0, "--train-iters", "many"))

    def test_log_that_cannot_be_written(self):
        error = self.refused(2, "--log-json", "/no/such/folder/log.jsonl")
        self.assertIn("--log-json /no/such/folder/log.jsonl", error)

    def test_nothing_to_load(self):
        self.assertIn(self.folder, self.refused(2, "--load", self.folder))

    def test_help_shows_an_example(self):
        run = self.start(0, "--help")
        self.assertEqual(run.code, 0)
        self.assertIn("tutti run -n 4 pretrain_gpt", run.out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
