"""tutti bench as people use it: table, JSON, exit codes, threads, inside a job."""
import json
import os
import re
import unittest

from launching import TOOL, LaunchTest, pids_with

NUMBER = (int, float)
# docs/formats/bench.md: every field of a result, and what it may hold.
RESULT = {"collective": str, "ranks": int, "transport": str, "memory": str, "algorithm": str,
          "dtype": str, "op": str, "order": str, "bytes": int, "count": int, "in_place": bool, "time_us": dict,
          "algbw_gbs": NUMBER, "busbw_gbs": NUMBER, "predicted_us": (*NUMBER, type(None)),
          "floor_share": (*NUMBER, type(None)), "cpu_s_per_gb": (*NUMBER, type(None)),
          "wrong": int,
          "device": str, "meeting": type(None), "host_us": type(None)}
QUICK = ("-b", "4", "-e", "4K", "-f", "32", "--budget", "2ms")


class Bench(LaunchTest):
    def measured(self, *words, **more):
        """Runs it with --json and returns the checked document."""
        path = os.path.join(self.folder, "bench.json")
        done = self.tutti("bench", *words, "--json", path, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.table = done.stdout
        with open(path) as file:
            document = json.load(file)
        self.check_shape(document)
        return document["results"]

    def check_shape(self, document):
        self.assertEqual(set(document), {"machine", "date", "results"})
        self.assertRegex(document["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("processor", document["machine"])
        self.assertTrue(document["results"])
        for row in document["results"]:
            self.assertEqual(set(row), set(RESULT))
            for name, kind in RESULT.items():
                self.assertIsInstance(row[name], kind, (name, row))
            self.assertEqual(set(row["time_us"]), {"median", "p99", "min"})
            time = row["time_us"]
            self.assertTrue(0 < time["min"] <= time["median"] <= time["p99"], time)
            self.assertEqual(row["wrong"], 0, row)

    def test_a_small_check_gives_a_table_and_json(self):
        results = self.measured("all_reduce", "-n", "2", "-b", "4", "-e", "4K", "-f", "4", "--check",
                                "--budget", "5ms", "--wide")
        self.assertEqual([(r["bytes"], r["in_place"]) for r in results],
                         [(4 ** k, form) for k in range(1, 7) for form in (False, True)])
        for row in results:
            self.assertEqual(row["count"] * 4, row["bytes"])
            self.assertEqual((row["ranks"], row["transport"], row["memory"], row["op"]),
                             (2, "shm", "symmetric", "sum"))
            self.assertGreater(row["floor_share"], 0)
            self.assertAlmostEqual(row["algbw_gbs"],
                                   row["bytes"] / row["time_us"]["median"] / 1e3)
        lines = [line for line in self.table.splitlines() if not line.startswith("#")]
        self.assertEqual([int(line.split()[1]) for line in lines], [4 ** k for k in range(1, 7)])
        for word in ("out of place", "in place", "algbw", "busbw", "floor", "predicted", "wrong"):
            self.assertIn(word, self.table)

    def test_every_collective_is_right_on_threads(self):
        results = self.measured("all", "-n", "3", "--transport", "inproc", "--memory", "plain",
                                "--check", *QUICK)
        self.assertEqual(len({row["collective"] for row in results}), 11)
        self.assertIn("best busbw", self.table)

    def test_types_and_operations_are_checked_exactly(self):
        for dtype, op in (("bf16", "sum"), ("f8e4m3", "max"), ("i16", "avg"), ("bool", "sum"),
                          ("f16", "premul_sum"), ("u32", "bxor"), ("f64", "prod")):
            with self.subTest(dtype=dtype, op=op):
                self.measured("all_reduce,scan" if op != "avg" else "all_reduce", "-n", "3",
                              "--transport", "inproc", "--dtype", dtype, "--op", op, *QUICK)

    def test_all_algorithms_stand_beside_the_choice(self):
        results = self.measured("all_reduce", "-n", "4", "--transport", "inproc", "--algorithm",
                                "all", "--placement", "in", *QUICK)
        words = {row["algorithm"] for row in results}
        self.assertTrue({"automatic", "ring", "halving_doubling"} <= words, words)

    def test_a_forced_algorithm_is_what_the_table_names(self):
        results = self.measured("all_reduce", "-n", "2", "--algorithm", "ring", "--warm", *QUICK)
        self.assertEqual({row["algorithm"] for row in results}, {"ring"})

    def test_it_uses_the_job_that_it_is_in(self):
        path = os.path.join(self.folder, "job.json")
        done = self.tutti("run", "-n", "3", TOOL, "bench", "broadcast,barrier", "--root", "2", *QUICK,
                          "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as file:
            results = json.load(file)["results"]
        self.assertEqual({row["ranks"] for row in results}, {3})
        self.assertEqual(len(re.findall("# tutti bench: 3 ranks", done.stdout)), 1)

    def test_tcp_has_a_floor_of_its_own(self):
        results = self.measured("all_gather", "-n", "2", "--transport", "tcp", "--memory", "plain",
                                *QUICK)
        self.assertEqual({row["transport"] for row in results}, {"tcp"})
        self.assertGreater(results[0]["floor_share"], 0)

    def test_json_can_go_to_standard_output(self):
        done = self.tutti("bench", "barrier", "-n", "2", "--budget", "1ms", "--json", "-")
        self.check_shape(json.loads(done.stdout))

    def test_wrong_words_end_with_2_and_one_line(self):
        for words, culprit in (((), "collective"), (("all_rong",), "all_rong"),
                               (("all_reduce", "-n", "-1"), "--ranks: -1"),
                               (("all_reduce", "-b", "8", "-e", "4"), "-b 8 B"),
                               (("all_reduce", "--algorithm", "rong"), "rong"),
                               (("all_gather", "-n", "3", "--algorithm", "hypercube"), "hypercube"),
                               (("broadcast", "-n", "2", "--root", "2"), "--root 2"),
                               (("all_reduce", "--op", "bxor"), "bxor"),
                               (("all_reduce", "--json", "/proc/none/x"), "/proc/none/x"),
                               (("all_reduce", "--bogus"), "--bogus"),
                               (("compare", "-n", "two"), "two"),
                               (("compare", "--peers", "rccl"), "rccl")):
            done = self.tutti("bench", *words)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(culprit, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_a_rank_that_dies_ends_it_with_1(self):
        process = self.start("bench", "all_reduce", "-n", "2", "-b", "4M", "-e", "4M", "--iters",
                             "4000", "--budget", "60s")
        self.read_lines(process, 4)  # the table's head: both ranks are at work
        victims = [pid for pid in pids_with(self.mark)
                   if b"--as-rank" in open(f"/proc/{pid}/cmdline", "rb").read()]
        os.kill(victims[1], 9)
        self.assertEqual(process.wait(timeout=30), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
