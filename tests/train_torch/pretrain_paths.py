"""What pretrain_gpt reads and writes: asked for before it begins, written through, and never lost in silence."""
import os
import stat
import subprocess
import threading
import time
import unittest

from pretraining import LIMIT, MODEL, PROGRAM, TEXT, TOOL, PretrainTest

TINY = ("--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
        "--micro-batch-size 1 --train-iters 3").split()


class Paths(PretrainTest):
    def start_tiny(self, *words, data=TEXT, **more):
        return subprocess.run([PROGRAM, *TINY, "--data-path", data, *words], text=True, timeout=LIMIT,
                              stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **more})

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_paths_that_cannot_be_written_are_refused_before_anything_is_done(self):
        with open(self.path("file"), "w") as file:
            file.write("mine")
        for flag, path in [("--log-json", self.folder), ("--log-json", self.path("none/log")),
                           ("--save", self.path("file")), ("--trace", self.path("file/below")),
                           ("--tensorboard-dir", self.path("file"))]:
            run = self.start_tiny(flag, path)
            self.assertEqual((run.returncode, run.stdout), (2, ""), run)
            self.assertTrue(run.stderr.startswith(f"pretrain_gpt: {flag} {path} cannot be written: "), run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1)
        self.assertEqual(os.listdir(self.folder), ["file"])

    def test_tokens_that_are_cut_short_while_it_trains_end_it_with_a_sentence(self):
        prefix = self.path("tokens")
        subprocess.run([TOOL, "data", "build", "-o", prefix, TEXT], check=True, timeout=LIMIT, capture_output=True)
        log = self.path("log.jsonl")
        running = subprocess.Popen([TOOL, "run", "-n", "2", PROGRAM, *TINY, "--train-iters", "1000000", "--data-path",
                                    prefix, "--split", "1", "--log-json", log], text=True, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        self.addCleanup(running.kill)
        deadline = time.monotonic() + LIMIT
        while not (os.path.exists(log) and '{"step":3,' in open(log).read()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        os.truncate(prefix + ".bin", 100)
        _, err = running.communicate(timeout=LIMIT)
        self.assertEqual(running.returncode, 1, err)
        self.assertRegex(err, r"pretrain_gpt: rank \d: io: .*--data-path \S+/tokens.bin cannot be read: it was cut short "
                              r"while it was in use: it had \d+ bytes, and has 100 now")
        self.assertNotIn("SIGBUS", err)

    def test_a_log_on_a_full_disk_is_an_error_at_the_end(self):
        run = self.start_tiny("--log-json", "/dev/full")
        self.assertEqual(run.returncode, 1, run)
        self.assertIn("step 3/3", run.stdout)  # what was trained is not thrown away
        self.assertIn("--log-json /dev/full cannot be written: No space left on device", run.stderr)
        self.assertNotIn("log in /dev/full", run.stdout)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_a_full_disk_behind_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            run = self.start_tiny(stdout=full)
        self.assertEqual(run.returncode, 1, run)
        self.assertIn("standard output cannot be written: No space left on device", run.stderr)

    def test_links_and_pipes_are_written_through(self):
        os.symlink("real.jsonl", self.path("link"))
        self.assertEqual(self.start_tiny("--log-json", self.path("link")).returncode, 0)
        self.assertTrue(os.path.islink(self.path("link")))
        with open(self.path("real.jsonl")) as file:
            self.assertIn('"event":"end"', file.read())
        os.mkfifo(self.path("pipe"))
        seen = []

        def read():
            with open(self.path("pipe")) as pipe:
                seen.append(pipe.read())
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self.assertEqual(self.start_tiny("--log-json", self.path("pipe")).returncode, 0)
        reader.join(LIMIT)
        self.assertIn('"event":"end"', seen[0])
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_data_that_never_ends_is_refused(self):
        run = self.start_tiny(data="/dev/zero")
        self.assertEqual((run.returncode, run.stdout), (2, ""), run)
        self.assertIn("--data-path /dev/zero is a device", run.stderr)
        with open(self.path("huge"), "w") as file:
            file.truncate(2 << 30)
        run = self.start_tiny(data=self.path("huge"))
        self.assertEqual((run.returncode, run.stdout), (2, ""), run)
        self.assertIn("more than 1 GiB", run.stderr)


class Resuming(PretrainTest):
    def test_it_says_where_it_goes_on_and_when_nothing_is_left(self):
        save = os.path.join(self.folder, "checkpoints")
        words = ["--lr-decay-iters", "4", "--train-iters"]
        first = self.train(2, *words, "3", "--save", save)
        self.assertNotIn("resumed", first.out)
        rest = self.train(2, *words, "4", "--load", save, "--save", save)
        self.assertIn(f"resumed from {save}: 3 of 4 steps are done\n", rest.out)
        done = self.train(2, *words, "4", "--load", save)
        self.assertIn("nothing left to do: --train-iters 4 is reached\n", done.out)
        self.assertEqual((done.steps, done.hash), ([], rest.hash))
        self.assertNotIn("nan", done.text)

    def test_steps_that_are_skipped_again_and_again_end_the_run(self):
        run = self.start(2, "--optimizer", "sgd", "--lr", "1000", "--train-iters", "60", model=MODEL)
        self.assertEqual(run.code, 1, run.text)
        self.assertEqual([line["outcome"] for line in run.steps][-9:], ["skipped"] * 9)
        for rank in range(2):
            self.assertRegex(run.err, f"pretrain_gpt: rank {rank}: aborted: 10 steps in a row")


if __name__ == "__main__":
    unittest.main(verbosity=2)
