"""Tables fit the window: what they leave out is said, and --wide shows it."""
import fcntl
import os
import pty
import struct
import subprocess
import termios
import unittest

from launching import TOOL, LaunchTest

BENCH = ("bench", "all_reduce,reduce_scatter", "-n", "2", "--transport", "inproc", "-e", "64",
         "--budget", "1ms")


class Tables(LaunchTest):
    def in_window(self, columns, *words):
        """The lines that it prints on a terminal of that width."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        environment = self.environment(TUTTI_TUNING="fixed")
        environment.pop("COLUMNS", None)
        process = subprocess.Popen([TOOL, *words], stdout=theirs, stderr=subprocess.DEVNULL,
                                   env=environment)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 65536):
                text += piece
        except OSError:
            pass  # the other end is closed
        os.close(ours)
        self.assertEqual(process.wait(timeout=60), 0)
        return text.decode().replace("\r", "").splitlines()

    def check(self, lines, columns):
        for line in lines:
            self.assertLessEqual(len(line), columns, line)
        self.assertTrue(any("--wide" in line for line in lines), lines)
        self.assertTrue(any("busbw" in line for line in lines), lines)

    def test_a_benchmark_fits_the_terminal(self):
        for columns in (80, 120):
            self.check(self.in_window(columns, *BENCH), columns)

    def test_a_plan_fits_the_window(self):
        model = ("plan", "model", "--preset", "llama2-70b", "--dp", "8", "--tp", "8", "--pp", "4")
        search = ("plan", "search", "--preset", "llama2-7b", "--gpus", "8")
        for words, table, last in ((model, "traffic", "hidden by"), (search, "rank", "binds")):
            lines = self.tutti(*words, COLUMNS="80").stdout.splitlines()
            first = next(i for i, line in enumerate(lines) if line.startswith(table))
            end = next(i for i, line in enumerate(lines) if line.startswith("(--wide adds: "))
            for line in lines[first:end + 1]:
                self.assertLessEqual(len(line), 80, line)
            self.assertIn(last, lines[end])
            self.assertIn(last, self.tutti(*words, "--wide").stdout)

    def test_COLUMNS_counts_and_a_file_gets_100(self):
        for columns, more in ((90, {"COLUMNS": "90"}), (100, {})):
            self.check(self.tutti(*BENCH, TUTTI_TUNING="fixed", **more).stdout.splitlines(), columns)

    def test_wide_shows_all(self):
        text = self.tutti(*BENCH, "--wide", TUTTI_TUNING="fixed", COLUMNS="80").stdout
        for name in ("collective", "count", "redop", "algorithm", "predicted", "p99", "CPU", "wrong"):
            self.assertIn(name, text)
        self.assertNotIn("--wide", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
