"""The tutti command as people type it: help, wrong words, show, info."""
import json
import subprocess
import unittest

from launching import LIMIT, TOOL, LaunchTest


class CommandLine(LaunchTest):
    def refused(self, *words):
        done = self.tutti(*words)
        self.assertEqual(done.returncode, 2, (words, done.stderr))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_version_and_help_are_not_errors(self):
        self.assertRegex(self.tutti("--version").stdout, r"^tutti \d+\.\d+\.\d+\n$")
        for words in ((), ("run",), ("show",), ("info",), ("bench",), ("bench", "compare")):
            done = self.tutti(*words, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("Example", done.stdout)

    def test_wrong_words_are_named_with_exit_code_2(self):
        self.assertIn("run show info doctor bench plan trace switch data", self.refused())
        self.assertIn("'bogus'", self.refused("bogus"))
        self.assertIn("'--bogus'", self.refused("--bogus"))
        self.assertIn("--bogus", self.refused("run", "--bogus", "true"))
        self.assertIn("--bogus", self.refused("show", "all_reduce", "--bogus"))
        self.assertIn("--bogus", self.refused("info", "--bogus"))
        self.assertIn("--ranks: 0", self.refused("run", "-n", "0", "true"))
        self.assertIn("x", self.refused("run", "-n", "x", "true"))
        self.assertIn("soon", self.refused("run", "--grace", "soon", "true"))
        self.assertIn("/proc/nowhere", self.refused("run", "--log-dir", "/proc/nowhere", "true"))
        self.assertIn("program", self.refused("run", "-n", "2"))
        self.assertIn("program", self.refused("run", "-n", "2", "--"))
        for number in ("0", "-1", "nan", "1e3", "99999999999"):
            self.assertIn(number, self.refused("run", "-n", number, "true"))
        for flag in ("--grace", "--join-timeout"):
            for number in ("-1", "nan", "inf", "1e300"):
                word = self.refused("run", flag, number, "true")
                self.assertIn(flag, word)
                self.assertIn("tutti run --help", word)
        self.assertIn("/proc/nowhere", self.refused("run", "--json", "/proc/nowhere", "true"))

    def test_too_many_ranks_are_refused_before_they_are_started(self):
        # 4096 ranks beside each other need terabytes; no descriptors are not enough for 64.
        self.assertIn("4096 ranks do not fit on this host", self.refused("run", "-n", "4096", "true"))
        done = subprocess.run(["bash", "-c", 'ulimit -n 128; "$@"', "bash", TOOL, "run", "-n", "64", "echo", "x"],
                              capture_output=True, text=True, timeout=LIMIT, env=self.environment())
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("needs 288 open files and may have 128", done.stderr)
        # Enough for the launcher, and the program makes no group.
        done = self.tutti("run", "-n", "8", "--no-group", "echo", "x")
        self.assertEqual(done.stdout, "x\n" * 8)


    def test_a_wrong_variable_is_told_once_before_anything_starts(self):
        done = self.tutti("run", "-n", "4", "true", TUTTI_ALGORITHM="all_reduce:rong")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in ("TUTTI_ALGORITHM", "rong", "ring", "double_binary_tree"):
            self.assertIn(word, done.stderr)


class Show(LaunchTest):
    def test_a_schedule_is_printed_after_it_was_verified(self):
        done = self.tutti("show", "all_reduce", "--algorithm", "ring", "-n", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        for rank in range(4):
            self.assertIn(f"program all_reduce ring rank {rank} of 4", done.stdout)
        self.assertIn("# verified: 6 steps, 24 messages", done.stdout)

    def test_json_carries_the_same(self):
        done = self.tutti("show", "all_reduce", "--algorithm", "ring", "-n", "4", "--json")
        document = json.loads(done.stdout)
        self.assertEqual(document["report"]["steps"], 6)
        self.assertEqual(document["report"]["messages"], 24)
        self.assertFalse(document["report"]["rank_ordered"])
        self.assertEqual([program["rank"] for program in document["programs"]], [0, 1, 2, 3])

    def test_variants_differ(self):
        plain = self.tutti("show", "all_reduce", "-a", "direct", "-n", "4").stdout
        for flags in (["--form", "message"], ["--in-place"], ["--bytes", "64"], ["--memory", "symmetric"]):
            done = self.tutti("show", "all_reduce", "-a", "direct", "-n", "4", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotEqual(done.stdout, plain, flags)

    def test_root_and_hosts_are_used(self):
        done = self.tutti("show", "broadcast", "-a", "linear", "-n", "5", "--root", "2")
        self.assertIn("root 2", done.stdout)
        done = self.tutti("show", "all_reduce", "-a", "hierarchical", "--hosts", "2x3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 5 of 6", done.stdout)

    def test_an_order_is_kept_or_refused(self):
        words = ("show", "all_reduce", "--hosts", "2x4")
        done = self.tutti(*words, "-a", "hierarchical", "--order", "tree")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("folds in tree order, from partial folds", done.stdout)
        done = self.tutti("show", "all_reduce", "-a", "direct", "-n", "5", "--order", "tree")
        self.assertIn("((x0 x1) (x2 x3)) x4", done.stdout)
        done = self.tutti(*words, "-a", "chain", "--order", "rank")
        self.assertIn("folds in rank order, from partial folds", done.stdout)
        done = self.tutti(*words, "-a", "ring", "--order", "tree")
        self.assertEqual(done.returncode, 2)
        self.assertIn("does not fold in tree order", done.stderr)
        done = self.tutti(*words, "--order", "best")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tree", done.stderr)

    def test_all_algorithms_are_listed(self):
        done = self.tutti("show", "all_reduce", "-n", "8", "--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("direct", "ring", "double_binary_tree", "halving_doubling"):
            self.assertIn(name, done.stdout)
        done = self.tutti("show", "all_reduce", "-n", "8", "--list", "--json")
        rows = {row["algorithm"]: row for row in json.loads(done.stdout)["algorithms"]}
        ring = rows["ring"]
        self.assertEqual((ring["steps"], ring["messages_per_rank"]), (14, 14))

    def test_wrong_names_list_the_right_ones(self):
        done = self.tutti("show", "all_reduce", "--algorithm", "rung", "-n", "4")
        self.assertEqual(done.returncode, 2)
        self.assertIn("rung", done.stderr)
        self.assertIn("ring", done.stderr)
        done = self.tutti("show", "allreduce")
        self.assertEqual(done.returncode, 2)
        self.assertIn("all_reduce", done.stderr)
        done = self.tutti("show", "all_reduce", "--algorithm", "bruck")
        self.assertEqual(done.returncode, 2)
        self.assertIn("ring", done.stderr)

    def test_wrong_numbers_are_named(self):
        for flags, culprit in ((["-n", "4", "--root", "4"], "root 4"),
                               (["--hosts", "2"], "'2'"),
                               (["-n", "5", "--hosts", "2x2"], "-n 5")):
            done = self.tutti("show", "broadcast", "-a", "linear", *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(culprit, done.stderr)


class Info(LaunchTest):
    def test_every_variable_is_listed_with_meaning_default_and_value(self):
        document = json.loads(self.tutti("info", "--json", TUTTI_TIMEOUT="17").stdout)
        rows = {row["name"]: row for row in document["variables"]}
        for name in ("TUTTI_TRANSPORT", "TUTTI_ALGORITHM", "TUTTI_DEBUG", "TUTTI_STORE",
                     "TUTTI_RENDEZVOUS", "TUTTI_SECRET_FILE"):
            self.assertTrue(rows[name]["meaning"], name)
        timeout = rows["TUTTI_TIMEOUT"]
        self.assertEqual((timeout["value"], timeout["default"]), ("17", "300"))

    def test_build_and_machine_are_told(self):
        document = json.loads(self.tutti("info", "--json").stdout)
        self.assertRegex(document["build"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertIn("tcp", document["build"]["transports"])
        self.assertGreaterEqual(document["machine"]["cores"], 1)
        self.assertIn("lo", [row["name"] for row in document["interfaces"]])

    def test_the_text_form_has_the_same_parts(self):
        text = self.tutti("info", TUTTI_TIMEOUT="17").stdout
        for word in ("tutti ", "transports", "machine", "interfaces", "TUTTI_TIMEOUT", "17"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
