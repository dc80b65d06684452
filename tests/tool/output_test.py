"""What `tutti` writes: files are replaced whole, everything else is written through, and what cannot be
written is a failure."""
import os
import stat
import subprocess
import threading
import unittest

from launching import TOOL, LaunchTest

SHOW = ("show", "all_reduce", "-n", "3", "--svg")


class Output(LaunchTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def test_a_link_stays_and_its_target_is_written(self):
        os.mkdir(self.path("there"))
        os.symlink("there/target", self.path("link"))  # nothing is there yet
        for _ in range(2):
            self.assertEqual(self.tutti(*SHOW, self.path("link")).returncode, 0)
            self.assertTrue(os.path.islink(self.path("link")))
            with open(self.path("there/target")) as file:
                self.assertIn("<svg", file.read())
        self.assertEqual(os.listdir(self.path("there")), ["target"])

    def test_a_pipe_is_written_through(self):
        os.mkfifo(self.path("pipe"))
        got = []

        def read():
            with open(self.path("pipe")) as pipe:
                got.append(pipe.read())
        reader = threading.Thread(target=read)
        reader.start()
        self.assertEqual(self.tutti(*SHOW, self.path("pipe")).returncode, 0)
        reader.join()
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))
        self.assertIn("</svg>", got[0])

    def test_a_device_is_written_through_and_a_full_one_is_a_failure(self):
        done = self.tutti(*SHOW, "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/dev/full cannot be written: No space left", done.stderr)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_a_page_can_go_to_standard_output(self):
        with open(self.path("out"), "w") as out:
            subprocess.run([TOOL, *SHOW, "/dev/stdout"], stdout=out, check=True)
        with open(self.path("out")) as file:
            self.assertTrue(file.read().startswith("<svg"))

    def test_a_file_with_two_names_stays_one(self):
        with open(self.path("a"), "w") as file:
            file.write("old")
        os.link(self.path("a"), self.path("b"))
        self.assertEqual(self.tutti(*SHOW, self.path("a")).returncode, 0)
        with open(self.path("b")) as file:
            self.assertTrue(file.read().startswith("<svg"))

    def test_a_report_on_standard_output_leaves_what_stands_there(self):
        with open(self.path("log"), "w") as file:
            file.write("before\n")
        with open(self.path("log"), "a") as out:
            subprocess.run([TOOL, "run", "-n", "1", "--json", "/dev/stdout", "echo", "said"], stdout=out, check=True)
        with open(self.path("log")) as file:
            lines = file.read().split("\n", 2)
        self.assertEqual(lines[:2], ["before", "said"])
        self.assertIn('"exit_code"', lines[2])

    def test_outputs_are_looked_at_before_the_work(self):
        """All of it bad input: the folder with traces, the libraries and the time are not asked for."""
        wrong = self.path("none/x")
        for words in (("plan", "calibrate", "-n", "2", "-o", wrong),
                      ("plan", "calibrate", "-n", "2", "-o", self.path("x"), "--machine", wrong),
                      ("bench", "all_reduce", "-n", "2", "--json", wrong),
                      ("trace", "merge", self.path("no traces"), "-o", wrong),
                      ("trace", "report", self.path("no traces"), "--html", wrong),
                      (*SHOW, wrong)):
            done = self.tutti(*words)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(wrong, done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_standard_output_on_a_full_disk_is_a_failure(self):
        for words in (("--version",), ("--help",), ("info",), ("show", "all_reduce"),
                      ("plan", "collective", "all_reduce"), ("plan", "model", "--preset", "llama3-8b"),
                      ("bench", "barrier", "-n", "2", "--transport", "inproc", "--budget", "1ms")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TOOL, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                      env=self.environment(TUTTI_TUNING="fixed"), timeout=60)
            self.assertEqual(done.returncode, 1, (words, done.stderr))
            self.assertIn("standard output cannot be written", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        bench = ("bench", "all_reduce", "-n", "2", "-e", "4K", "--budget", "20ms")
        for words in (("info",), ("show", "all_reduce", "-n", "64"), bench,
                      (*bench, "--transport", "inproc")):
            process = self.start(*words, TUTTI_TUNING="fixed")
            process.stdout.readline()
            process.stdout.close()
            process.wait(timeout=60)
            self.assertEqual(process.stderr.read(), "", words)

    def test_an_endless_file_is_read_up_to_a_limit(self):
        for words in (("plan", "collective", "all_reduce", "--cluster", "/dev/zero"),
                      ("plan", "model", "--preset", "llama3-8b", "--cluster", "/dev/zero"),
                      ("show", "all_reduce", "-n", "2", "--tuning", "/dev/zero")):
            done = self.tutti(*words)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("more than 64 MiB", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
