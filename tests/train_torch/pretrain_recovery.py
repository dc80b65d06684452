"""Runs that are interrupted, in any way, and go on as if nothing had been."""
import json
import os
import random
import signal
import subprocess
import time
import unittest

from pretraining import LIMIT, MODEL, OVERLAPS, PROGRAM, TEXT, TOOL, PretrainTest


class RecoveryTest(PretrainTest):
    def setUp(self):
        super().setUp()
        self.save = os.path.join(self.folder, "checkpoints")
        self.latest = ["--save", self.save, "--load", "latest"]

    def begin(self, ranks, *words, launch=()):
        """Starts it and leaves it running."""
        launcher = [TOOL, "run", "-n", str(ranks), *launch] if ranks else []
        self.log_path = os.path.join(self.folder, "begun.jsonl")
        running = subprocess.Popen([*launcher, PROGRAM, *MODEL, "--data-path", TEXT, "--log-json", self.log_path,
                                    *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: running.poll() is None and running.kill())
        return running

    def ranks_of(self, running):
        """Their process ids: the children of the launcher's keeper."""
        def children(parent):
            return subprocess.run(["pgrep", "-P", parent], capture_output=True, text=True).stdout.split()
        return [int(rank) for rank in children(*children(str(running.pid)))]

    def wait_for_step(self, step):
        self.wait_for(f'{{"step":{step},')

    def wait_for(self, text):
        """Until the log has it."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            if os.path.exists(self.log_path):
                with open(self.log_path) as file:
                    if text in file.read():
                        return
            time.sleep(0.005)
        self.fail(f"{text} did not come")

    def leftovers(self):
        return [name for _, folders, files in os.walk(self.save) for name in [*folders, *files] if ".tmp" in name]

    def manifest(self, step):
        with open(os.path.join(self.save, f"iter_{step:07}", "checkpoint.json")) as file:
            return json.load(file)


class Latest(RecoveryTest):
    def test_the_same_command_begins_goes_on_and_ends_with_the_same_bits(self):
        words = ["--train-iters", "6", "--bucket-size", "8192", *OVERLAPS]
        whole = self.train(2, *words)
        words = [*words, *self.latest, "--save-interval", "2"]
        first = self.start(2, *words, "--die-at", "4:1")
        self.assertNotEqual(first.code, 0)
        self.assertIn(f"no checkpoint in {self.save} yet: the run begins anew\n", first.out)
        os.mkdir(os.path.join(self.save, ".tmp_iter_0000004"))  # as a kill in the next save leaves it
        open(os.path.join(self.save, ".tmp_latest"), "w").close()
        os.truncate(os.path.join(self.save, "latest"), 0)       # and a disk that was full
        rest = self.train(2, *words)
        self.assertIn(f"resumed from {self.save}/iter_0000002: 2 of 6 steps are done\n", rest.out)
        self.assertEqual([line["step"] for line in rest.steps], [3, 4, 5, 6])
        self.assertEqual((rest.hash, rest.losses), (whole.hash, whole.losses[2:]))
        self.assertEqual(self.leftovers(), [])

    def test_a_job_that_tutti_run_restarts_ends_with_the_same_bits(self):
        words = ["--train-iters", "5", *OVERLAPS]
        whole = self.train(2, *words)
        run = self.train(2, *words, *self.latest, "--save-interval", "2", "--die-at", "4:1",
                         launch=["--max-restarts", "2"])
        self.assertIn(f"resumed from {self.save}/iter_0000002: 2 of 5 steps are done\n", run.out)
        self.assertEqual(run.hash, whole.hash)

    def test_one_that_is_not_whole_is_passed_over(self):
        words = ["--train-iters", "3", *self.latest, "--save-interval", "1"]
        whole = self.train(0, *words)
        os.truncate(os.path.join(self.save, "iter_0000003", "model.safetensors"), 100)
        rest = self.train(0, *words)
        self.assertIn("iter_0000002: 2 of 3 steps are done\n", rest.out)
        self.assertEqual(rest.hash, whole.hash)

    def test_latest_needs_a_folder(self):
        run = self.start(0, "--load", "latest")
        self.assertEqual((run.code, run.err), (2, "pretrain_gpt: --load latest needs --save: it means the newest "
                                                  "checkpoint there\n"))

    def test_kills_at_any_moment_leave_the_last_whole_one(self):
        words = ["--train-iters", "30", "--save-interval", "1", "--keep", "2"]
        whole = self.train(0, "--train-iters", "30")
        seed = int(os.environ.get("TUTTI_TEST_SEED", time.time_ns() % 10**6))
        print("TUTTI_TEST_SEED", seed)
        dice = random.Random(seed)
        for at, more in (3, []), (12, ["--async-save"]), (22, []):
            running = self.begin(0, *words, *self.latest, *more)
            self.wait_for_step(at)
            time.sleep(dice.random() * 0.1)  # most of the time is spent in saving
            running.kill()
            out, err = running.communicate(timeout=LIMIT)
            self.assertEqual((running.returncode, err), (-signal.SIGKILL, ""), out)
        rest = self.train(0, *words, *self.latest)
        self.assertEqual(rest.hash, whole.hash)
        self.assertEqual(self.leftovers(), [])
        self.assertEqual(sorted(os.listdir(self.save)), ["iter_0000029", "iter_0000030", "latest"])


class Beside(RecoveryTest):
    WORDS = ["--train-iters", "5", "--save-interval", "2", "--async-save", *OVERLAPS]

    def test_saving_beside_training_changes_no_bit(self):
        words = ["--train-iters", "5", *OVERLAPS]
        whole = self.train(2, *words)
        run = self.train(2, *self.WORDS, "--save", self.save)
        self.assertEqual((run.hash, run.losses), (whole.hash, whole.losses))
        told = [line for line in run.log if line.get("event") == "checkpoint"]
        self.assertEqual([line["step"] for line in told], [2, 4, 5])
        for line in told:
            self.assertGreaterEqual(line["took_s"], 0)
        rest = self.train(2, *words, "--load", os.path.join(self.save, "iter_0000002"))
        self.assertEqual((rest.hash, rest.losses), (whole.hash, whole.losses[2:]))
        self.assertEqual(self.leftovers(), [])

    def test_what_cannot_be_written_ends_the_run_on_every_rank(self):
        os.mkdir(self.save)
        with open(os.path.join(self.save, "iter_0000002"), "w") as file:
            file.write("in the way")
        run = self.start(2, *self.WORDS, "--save", self.save, "--train-iters", "100000")
        self.assertEqual(run.code, 1, run.text)
        for rank in range(2):
            self.assertRegex(run.err, f"pretrain_gpt: rank {rank}: io: saving a checkpoint: rank 0: .*iter_0000002")


class Shrinking(RecoveryTest):
    SHRINK = ["--on-failure", "shrink", "--global-batch-size", "12", "--train-iters", "8"]

    def go_on(self, ranks, *words, lost, at=5):
        """Loses a rank at that step, goes on with the others; the same from a checkpoint of where they went on."""
        kept = ["--save", self.save, "--save-interval", "1"]
        run = self.start(ranks, *self.SHRINK, *words, *kept, "--die-at", f"{at}:{lost}")
        self.assertIsNotNone(run.hash, run.text)
        told = [line for line in run.log if line.get("event") == "shrunk"]
        self.assertEqual([(line["before"], line["ranks"]) for line in told], [(ranks, ranks - 1)], run.text)
        self.assertIn(f"rank {lost} ", told[0]["why"])
        step = told[0]["step"]
        self.assertIn(step, (at - 1, at - 2))
        after = run.log[run.log.index(told[0]):]
        losses = [line["loss"] for line in after if "event" not in line]
        self.assertEqual(len(losses), 8 - step)
        rest = self.train(ranks - 1, *self.SHRINK, *words, "--load", os.path.join(self.save, f"iter_{step:07}"))
        self.assertEqual((run.hash, losses), (rest.hash, rest.losses))
        return run, step

    def test_plain_data_parallelism_goes_on_from_the_last_step_with_batches_that_do_not_divide(self):
        run, step = self.go_on(3, "--global-batch-size", "10", lost=1)
        self.assertEqual(step, 4)

    def test_shards_come_back_from_the_buddy_when_rank_0_is_lost(self):
        self.go_on(3, *OVERLAPS, "--buddy", "--async-log-allreduce", lost=0)

    def test_a_lost_shard_is_loaded_from_the_last_checkpoint(self):
        words = [*self.SHRINK, *OVERLAPS]
        run = self.start(3, *words, "--save", self.save, "--save-interval", "3", "--die-at", "5:1")
        self.assertIsNotNone(run.hash, run.text)
        self.assertIn("kept is lost with it", run.out)
        self.assertIn("iter_0000003: 3 of 8 steps are done", run.out)
        rest = self.train(2, *words, "--load", os.path.join(self.save, "iter_0000003"))
        self.assertEqual(run.hash, rest.hash)

    def test_a_second_loss_before_the_next_step_finds_copies_again(self):
        running = self.begin(3, *self.SHRINK, *OVERLAPS, "--buddy", "--inject-delay", "0:100", "--train-iters", "4")
        self.wait_for('{"step":1,')
        victims = self.ranks_of(running)[1:]
        os.kill(victims[0], signal.SIGKILL)
        self.wait_for('"ranks":2')
        os.kill(victims[1], signal.SIGKILL)
        out, err = running.communicate(timeout=LIMIT)
        self.assertIn("weights sha256", out, err)

    def test_without_a_checkpoint_a_lost_shard_ends_the_run(self):
        run = self.start(3, *self.SHRINK, *OVERLAPS, "--die-at", "5:1")
        self.assertIsNone(run.hash)
        for rank in (0, 2):
            self.assertRegex(run.err, f"pretrain_gpt: rank {rank}: peer_lost: .*rank 1 kept is lost with it")


class Returning(RecoveryTest):
    """A lost rank that `tutti run` starts again is taken in between two steps."""
    WORDS = ["--on-failure", "shrink", "--global-batch-size", "12", "--lr-decay-iters", "100"]

    def regain(self, ranks, *words, die):
        """Loses that rank and gets it back; ends some steps later, with the bits that all ranks get from there."""
        keep = ["--save", self.save, "--save-interval", "1", "--check-weight-hash-across-dp-replicas-interval", "1"]
        running = self.begin(ranks, *self.WORDS, *words, *keep, "--train-iters", "100000", "--die-at", die,
                             "--inject-delay", "0:60", launch=["--max-restarts", "1"])
        self.wait_for('"event":"grown"')
        with open(self.log_path) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        told = {line["event"]: line for line in lines if "event" in line}
        self.assertEqual([(told[event]["before"], told[event]["ranks"]) for event in ("shrunk", "grown")],
                         [(ranks, ranks - 1), (ranks - 1, ranks)])
        self.wait_for_step(told["grown"]["step"] + 2)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=LIMIT)
        self.assertEqual(running.returncode, 0, out + err)
        self.assertIn(f"the job goes on with {ranks - 1} of {ranks} ranks\n", err)
        self.assertIn(f"rank {die.split(':')[1]} is started again, to join the others: restart 1 of 1\n", err)
        self.assertIn(f"1 rank is back after step {told['grown']['step']}: going on with {ranks}\n", out)
        self.assertNotIn("the job ended with", err)
        with open(self.log_path) as file:
            lines = [json.loads(line) for line in file]
        losses = [line["loss"] for line in lines[lines.index(told["grown"]):] if "event" not in line]
        last = lines[-1]["step"]
        rest = self.train(ranks, *self.WORDS, *words, "--train-iters", str(last), "--load",
                          os.path.join(self.save, f"iter_{told['grown']['step']:07}"))
        self.assertEqual((losses, f"weights sha256 {rest.hash}" in out), (rest.losses, True), out)

    def test_plain_data_parallelism_takes_back_rank_0(self):
        self.regain(2, die="3:0")

    def test_shards_are_cut_anew_for_a_rank_that_is_back(self):
        self.regain(3, *OVERLAPS, "--buddy", "--async-log-allreduce", "--bucket-size", "8192", die="3:1")

    def test_one_that_comes_back_too_late_is_not_waited_for(self):
        run = self.train(2, *self.WORDS, "--train-iters", "4", "--die-at", "4:1", launch=["--max-restarts", "1"])
        self.assertIn("came back and was not taken in: peer_lost: no rank is left", run.err)
        self.assertIn("tutti run: the job ended with 1 of 2 ranks\n", run.err)


class Signals(RecoveryTest):
    def test_the_first_signal_ends_with_a_checkpoint_after_the_same_step_on_every_rank(self):
        words = ["--train-iters", "30", "--async-log-allreduce", *OVERLAPS]
        whole = self.train(2, *words)
        running = self.begin(2, *words, *self.latest)
        self.wait_for_step(3)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=LIMIT)
        self.assertEqual((running.returncode, err), (0, "tutti run: stopped by SIGINT\n"), out)
        self.assertRegex(out, r"stopped after step \d+ by a signal, and saved")
        rest = self.train(2, *words, *self.latest)
        self.assertEqual(rest.hash, whole.hash)
        self.assertEqual(rest.losses, whole.losses[-len(rest.losses):])
        self.assertLess(len(rest.losses), 28)

    def test_a_signal_to_one_rank_ends_them_all_well(self):
        running = self.begin(2, "--train-iters", "100000", "--inject-delay", "0:5")
        self.wait_for_step(3)
        ranks = self.ranks_of(running)
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[1], signal.SIGTERM)
        out, err = running.communicate(timeout=LIMIT)
        self.assertEqual((running.returncode, err), (0, ""), out)
        self.assertIn("without --save: nothing is kept", out)

    def test_the_second_signal_ends_it_at_once(self):
        running = self.begin(0, "--train-iters", "100", "--inject-delay", "0:20000", *self.latest,
                             "--global-batch-size", "2")
        while not self.is_handled(running.pid, signal.SIGTERM):
            time.sleep(0.01)
        began = time.monotonic()
        for _ in range(2):  # one wish, delivered twice: by a service manager, and by a launcher
            running.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        self.assertIsNone(running.poll())
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=LIMIT)
        self.assertEqual(running.returncode, 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(self.leftovers(), [])

    @staticmethod
    def is_handled(pid, number):
        with open(f"/proc/{pid}/status") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) & 1 << number - 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
