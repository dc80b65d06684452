"""tutti doctor on this host, in a job, and on emulated hosts of which one is slow."""
import json
import os
import unittest

import emulated_hosts
from launching import TOOL, LaunchTest

SHORT = ("--time", "20 ms")


class OneHost(LaunchTest):
    def test_a_host_that_is_well_is_told_so(self):
        done = self.tutti("doctor", "-n", "3", *SHORT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"^host +ranks +cores")
        self.assertIn("nothing has to be mended", done.stdout)

    def test_programs_get_every_pair(self):
        done = self.tutti("doctor", "-n", "3", "--json", *SHORT)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["fine"])
        self.assertEqual([host["ranks"] for host in report["hosts"]], [3])
        self.assertEqual(sorted((path["from"], path["to"]) for path in report["paths"]),
                         [(a, b) for a in range(3) for b in range(3) if a != b])
        for path in report["paths"]:
            self.assertGreater(path["latency_s"], 0)
            self.assertGreater(path["bytes_per_s"], 0)

    def test_inside_a_job_rank_0_reports(self):
        done = self.tutti("run", "-n", "2", TOOL, "doctor", "--json", *SHORT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["paths"]), 2)

    def test_too_few_open_files_are_to_be_mended(self):
        limited = ["sh", "-c", f"ulimit -n 36 && exec {TOOL} doctor --time '20 ms'"]
        done = self.tutti("run", "-n", "2", *limited)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^mend: \S+: a process may open 36 files, and so many ranks need \d+$")
        self.assertIn("ulimit -Hn", done.stdout)

    def test_bad_input_is_named(self):
        for words, culprit in ((["-n", "0"], "--ranks"), (["--time", "0"], "--time"), (["--hosts", "a:0"], "a:0"),
                               (["--hostfile", "/no/file"], "/no/file"),
                               (["--hosts", "a", "--hostfile", "b"], "--hostfile")):
            done = self.tutti("doctor", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(culprit, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = self.tutti("run", "-n", "2", TOOL, "doctor", "--hosts", "a,b")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--hosts", done.stderr)


class SeveralHosts(LaunchTest):
    USUAL, SLOW = 200, 20  # Mbit/s: little enough for a busy machine

    def setUp(self):
        why = emulated_hosts.unavailable()
        if why:
            self.skipTest(why)
        super().setUp()
        self.hosts = emulated_hosts.Hosts(["a", "b", "c", "d"])
        self.addCleanup(self.hosts.close)
        for name in self.hosts.names:
            self.hosts.shape(name, self.SLOW if name == "c" else self.USUAL)

    def doctor(self, *words):
        ssh = self.hosts.remote_shell(self.environment())
        return self.tutti("doctor", "--hosts", "a,b,c,d", "--ssh", ssh, "--time", "100 ms", *words)

    def test_a_slow_host_is_named(self):
        done = self.doctor()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for verb in ("sends", "receives"):
            self.assertRegex(done.stdout, rf"(?m)^mend: c: {verb} \S+ .B/s at its best, where the others reach ")
        self.assertNotRegex(done.stdout, r"(?m)^mend: [abd]: (sends|receives)")
        self.assertEqual(done.stderr, "")

    def test_hosts_that_cannot_be_reached_are_named(self):
        done = self.tutti("doctor", "--hosts", "a,nowhere", "--ssh", self.hosts.remote_shell(self.environment()))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("nowhere", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
