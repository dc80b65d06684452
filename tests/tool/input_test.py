"""Numbers, words and variables that cannot be: each is refused by name, in one line, with code 2."""
import os
import shutil
import subprocess
import unittest

from launching import TOOL, LaunchTest

MODEL = ("plan", "model", "--preset", "llama3-8b")
SEARCH = ("plan", "search", "--preset", "llama3-8b")
COLLECTIVE = ("plan", "collective", "all_reduce")
BENCH = ("bench", "all_reduce")
COMPARE = ("bench", "compare")
CALIBRATE = ("plan", "calibrate", "-o", "/dev/null")
SHOW = ("show", "all_reduce")
WHOLE = ("0", "-1", "nan", "99999999999999999999", "1.5", "")
SIZE = ("0", "-1", "nan", "inf", "1e300")
TIME = ("0", "-1", "nan", "1e300")

# command, its flag, what the flag does not take; others that it needs besides.
REFUSED = [(BENCH, "-n", WHOLE), (BENCH, "--iters", WHOLE), (BENCH, "-b", SIZE), (BENCH, "-e", SIZE),
           (BENCH, "-f", ("0", "1", "-2", "nan", "inf")), (BENCH, "--root", ("-1", "nan", "9999")),
           (BENCH, "--budget", TIME), (COMPARE, "--runs", WHOLE), (COMPARE, "-n", WHOLE),
           (COMPARE, "--limit", TIME), (COMPARE, "--budget", TIME),
           (COLLECTIVE, "-n", WHOLE + ("1",)), (COLLECTIVE, "--stride", WHOLE),
           (COLLECTIVE, "--bytes", SIZE), (CALIBRATE, "-n", WHOLE + ("1", "65")),
           ((*CALIBRATE, "-n", "2"), "--time", TIME + ("1",)),
           ((*CALIBRATE, "-n", "2"), "--peak", ("0 GFLOP/s", "-1 GFLOP/s", "nan GFLOP/s", "90")),
           (("plan", "validate", "--cluster", "summit"), "-n", WHOLE + ("1",)),
           (SHOW, "-n", WHOLE + ("1025",)), (SHOW, "--root", ("-1", "nan")), (SHOW, "--bytes", SIZE),
           (("show", "job"), "--interval", TIME + ("1ms",)),
           (MODEL, "--efficiency", ("0", "nan", "-0.5", "1.5", "inf")), (MODEL, "--zero", ("-1", "4")),
           (MODEL, "--bucket-bytes", SIZE), (SEARCH, "--gpus", WHOLE),
           (("run",), "-n", (*WHOLE, "4097")), (("run",), "--nnodes", WHOLE), (("run",), "--node-rank", ("-1", "nan", "")),
           (("run",), "--max-restarts", ("-1", "nan", "")), (("run",), "--hosts", ("",)), (("doctor",), "--hosts", ("",)),
           (CALIBRATE, "--hosts", ("",)), (("switch",), "-n", (*WHOLE, "1")),
           ((*SEARCH, "--gpus", "8"), "--most-tp", WHOLE), ((*SEARCH, "--gpus", "8"), "--top", WHOLE)]
REFUSED += [(MODEL, flag, WHOLE) for flag in (
    "--dp", "--tp", "--pp", "--cp", "--virtual-stages", "--micro-batch", "--seq", "--global-batch",
    "--layers", "--hidden", "--heads", "--kv-heads", "--head-dim", "--ffn", "--vocab",
    "--max-positions")]
# The long name of a short one, by which it may be called.
LONG = {"-n": "--ranks"}


class Input(LaunchTest):
    def refused(self, words, *culprits, **more):
        done = self.tutti(*words, **more)
        self.assertEqual(done.returncode, 2, (words, done.stdout[-200:], done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1, (words, done.stderr))
        for culprit in culprits:
            self.assertIn(culprit, done.stderr, words)
        self.assertEqual(done.stdout, "", words)
        return done.stderr

    def test_numbers_that_cannot_be_are_refused_by_name(self):
        for command, flag, values in REFUSED:
            for value in values:
                line = self.refused((*command, f"{flag}={value}" if flag.startswith("--") else flag,
                                     *(() if flag.startswith("--") else (value,))))
                self.assertTrue(flag in line or LONG.get(flag, flag) in line, (command, flag, value, line))

    def test_more_memory_than_there_is_is_refused(self):
        self.refused((*BENCH, "-n", "2", "-e", "4000000G"), "-e", "this host has")

    def test_a_mistake_points_to_the_help_of_its_own_command(self):
        for words, command in (((), "tutti"), (("foo",), "tutti"), (("plan",), "tutti plan"),
                               (("plan", "foo"), "tutti plan"), (("plan", "model"), "tutti plan model"),
                               (("plan", "model", "--foo"), "tutti plan model"),
                               (("plan", "search"), "tutti plan search"), (("trace",), "tutti trace"),
                               (("trace", "merge"), "tutti trace merge"),
                               (("bench", "compare", "--foo"), "tutti bench compare"),
                               (("bench", "foo"), "tutti bench"), (("show", "foo"), "tutti show"),
                               (("show", "job", "--foo"), "tutti show job"), (("run",), "tutti run")):
            self.refused(words, f"see {command} --help")
        self.assertNotIn("measure", self.refused(("plan", "foo"), "calibrate"))

    def test_a_variable_that_there_is_not_is_told_once_with_the_nearest(self):
        for words in (("info",), ("show", "all_reduce"),
                      ("bench", "barrier", "-n", "3", "--budget", "1ms")):
            done = self.tutti(*words, TUTTI_TUNING="fixed", TUTTI_TIMEOTU="3")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("TUTTI_TIMEOTU"), 1, (words, done.stderr))
            self.assertIn("is TUTTI_TIMEOUT meant", done.stderr)

    def test_a_comparison_without_peers_or_hosts_says_what_to_do(self):
        alone = os.path.join(self.folder, "tutti")  # no peer's program lies beside it
        shutil.copy(TOOL, alone)
        done = subprocess.run([alone, "bench", "compare", "-n", "2"], capture_output=True, text=True,
                              env=self.environment())
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in ("apt-get install", "libopenmpi-dev", "libgloo-dev", "cmake --build"):
            self.assertIn(word, done.stderr)
        if not os.path.exists("/run/netns/bh0") and \
                "no other library" not in self.tutti("bench", "compare", "--json", "/nowhere/x").stderr:
            self.refused(("bench", "compare", "-n", "2", "--hosts"), "bh0", "bench/hosts up 2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
