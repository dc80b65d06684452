"""Numbers that cannot be right, a rank that dies, and going on from a checkpoint."""
import hashlib
import json
import os
import subprocess
import unittest

from pretraining import OVERLAPS, TOOL, PretrainTest


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

    def test_batch_that_is_masked_as_a_whole_is_no_fault_and_changes_nothing(self):
        # A stream of nothing but ends of documents.
        empty = os.path.join(self.folder, "empty")
        open(empty, "w").close()
        words = [*OVERLAPS, "--eod-mask-loss", "--check-for-nan-in-loss-and-grad",
                 "--strict-loss-check", "--check-for-spiky-loss", "--async-log-allreduce",
                 "--eval-interval", "2"]
        hashes = set()
        for steps in (1, 4):
            run = self.train(2, *words, "--train-iters", str(steps), data=[empty] * 200)
            self.assertEqual([line["outcome"] for line in run.steps], ["empty"] * steps)
            self.assertEqual(run.losses, [None] * steps)
            self.assertEqual({line["tokens"] for line in run.steps}, {0})
            hashes.add(run.hash)
        self.assertEqual(len(hashes), 1)
        self.assertIn("every token", run.out)

    def test_step_that_is_computed_again_keeps_its_number_in_the_trace(self):
        trace = os.path.join(self.folder, "trace")
        self.train(3, *self.CHECK, *OVERLAPS, "--inject-nan-at", "4:2:once", "--trace", trace)
        merged = os.path.join(self.folder, "merged.json")
        subprocess.run([TOOL, "trace", "merge", trace, "-o", merged], check=True,
                       capture_output=True)
        with open(merged) as file:
            events = json.load(file)["traceEvents"]
        for rank in range(3):
            numbers = [event["args"]["step"] for event in events
                       if event.get("pid") == rank and event.get("cat") == "step"]
            self.assertEqual(sorted(numbers), [1, 2, 3, 4, 5, 6])

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

    def checkpoint(self, iteration):
        with open(os.path.join(self.save, f"iter_{iteration:07}", "checkpoint.json")) as file:
            return json.load(file)

    def test_skipped_step_does_not_advance_the_learning_rate(self):
        words = ["--lr-warmup-iters", "3", "--lr-decay-iters", "9", *OVERLAPS]
        plain = self.train(2, *words, "--train-iters", "7")
        rates = [line["lr"] for line in plain.steps]
        self.assertEqual(len(set(rates)), 7)
        fault = ["--inject-inf-at", "3:1"]
        whole = self.train(2, *words, *fault, "--train-iters", "8")
        # Steps 3 and 4 both try the third update.
        self.assertEqual([line["lr"] for line in whole.steps], rates[:3] + rates[2:])
        self.train(2, *words, *fault, "--train-iters", "5", "--save", self.save)
        rest = self.train(2, *words, "--train-iters", "8", "--load", self.save)
        self.assertEqual([line["lr"] for line in rest.steps], rates[4:])
        self.assertEqual(rest.hash, whole.hash)

    def test_other_learning_rates_are_refused_or_chosen(self):
        words = ["--lr-decay-iters", "8", "--train-iters"]
        whole = self.train(2, *words, "8")
        self.train(2, *words, "4", "--save", self.save)
        load = [*words, "8", "--load", self.save]
        for flag, value in [("--lr", "1e-4"), ("--lr-decay-style", "linear"), ("--min-lr", "1e-9"),
                            ("--lr-warmup-iters", "2"), ("--lr-decay-iters", "9")]:
            run = self.start(2, *load, flag, value)
            self.assertEqual(run.code, 2, run.text)
            self.assertIn(flag + " is ", run.err)
        kept = self.train(2, *load, "--lr", "1e-4", "--use-checkpoint-opt-param-scheduler")
        self.assertEqual(kept.hash, whole.hash)
        changed = self.train(2, *load, "--lr", "1e-4", "--override-opt-param-scheduler")
        self.assertLess(changed.steps[0]["lr"], 1e-4)
        # Without --lr-decay-iters they end with the run: a longer one has others.
        run = self.start(2, "--train-iters", "9", "--load", self.save)
        self.assertEqual(run.code, 2, run.text)
        self.assertIn("--lr-decay-iters is 9 here (--train-iters) and was 8", run.err)
        both = self.start(0, "--override-opt-param-scheduler", "--use-checkpoint-opt-param-scheduler")
        self.assertEqual(both.code, 2, both.text)

    def test_constant_rates_have_no_end_that_could_differ(self):
        words = ["--lr-decay-style", "constant", "--train-iters"]
        whole = self.train(0, *words, "3")
        self.train(0, *words, "2", "--save", self.save)
        self.assertEqual(self.train(0, *words, "3", "--load", self.save).hash, whole.hash)

    def test_other_data_of_the_same_size_is_refused(self):
        files = [os.path.join(self.folder, name) for name in "ab"]
        with open("/usr/share/common-licenses/GPL-3", "rb") as file:
            text = file.read()
        for path, part in zip(files, (text[:9000], text[9000:18000])):
            with open(path, "wb") as file:
                file.write(part)
        words = ["--lr-decay-iters", "2", "--train-iters"]
        self.train(0, *words, "1", "--save", self.save, data=files)
        load = [*words, "2", "--load", self.save]
        self.train(0, *load, data=files)

        def refused(data):
            run = self.start(0, *load, data=data)
            self.assertEqual(run.code, 2, run.text)
            self.assertIn("--data-path is other data", run.err)
        refused(files[::-1])
        with open(files[1], "r+b") as file:  # one letter far behind what one step has read
            file.seek(8000)
            file.write(b"#")
        refused(files)

    def test_loss_guard_goes_on_where_it_stood(self):
        words = ["--lr-decay-iters", "8", "--check-for-spiky-loss", "--save", self.save]
        whole = self.train(2, *words, "--train-iters", "4", "--inject-inf-at", "2:0")
        state = self.checkpoint(4)["extra"]["loss_guard"].split()
        self.assertEqual(state[:2] + state[4:], "samples 4 skipped 1 transient 0".split())
        self.assertEqual(float(state[3]), max(whole.losses))
        rest = self.train(2, *words, "--train-iters", "7", "--load", self.save)
        after = self.checkpoint(7)["extra"]["loss_guard"].split()
        self.assertEqual(after[:2] + after[4:], "samples 7 skipped 1 transient 0".split())
        self.assertEqual(float(after[3]), max(whole.losses + rest.losses))

    def test_older_checkpoint_goes_on_and_what_it_lacks_is_told(self):
        words = ["--lr-decay-iters", "6", *OVERLAPS]
        whole = self.train(4, *words, "--train-iters", "6")
        # One rank with four micro-batches: it writes the model into one file, as all did then.
        self.train(1, *words, "--train-iters", "3", "--save", self.save)
        self.make_version_1(3)
        rest = self.train(4, *words, "--train-iters", "6", "--load", self.save,
                          "--check-for-spiky-loss")
        self.assertEqual(rest.hash, whole.hash)
        told = [line["text"] for line in rest.log if line.get("event") == "warning"]
        for words in ("which files", "learning rates", "losses", "updates; by its weights 3 of 3"):
            self.assertTrue(any(words in text for text in told), (words, told))

    def make_version_1(self, iteration):
        """As the build before wrote it: the same files, and a manifest that says less."""
        manifest = self.checkpoint(iteration)
        del manifest["sha256"], manifest["tensors"]
        manifest["version"] = 1
        known = ("consumed_sequences", "seed", "seq_length", "global_batch_size", "data_bytes")
        manifest["extra"] = {name: manifest["extra"][name] for name in known}
        text = json.dumps(manifest, indent=1)[:-2] + ",\n"
        seal = hashlib.sha256(text.encode()).hexdigest()
        with open(os.path.join(self.save, f"iter_{iteration:07}", "checkpoint.json"), "w") as file:
            file.write(f'{text}  "sha256": "{seal}"\n}}\n')

    def test_other_seed_is_refused(self):
        self.train(0, "--train-iters", "1", "--save", self.save)
        run = self.start(0, "--train-iters", "2", "--load", self.save, "--seed", "7")
        self.assertEqual(run.code, 2, run.text)
        self.assertIn("--seed", run.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
