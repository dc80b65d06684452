"""Where hosts stand decides in what order rings and trees take the ranks. A script stands for ssh; each host is
this one under a name of its own, with a rank that has tcp alone."""
import os
import subprocess
import unittest

from launching import TOOL, LaunchTest

SHELL = """#!/bin/sh
host=$1; shift; cd /
exec 3<&0
setsid env -i PATH="$PATH" MARK=$MARK unshare -u sh -c "hostname $host; $*" <&3 3<&- &
exec 3<&- </dev/null
wait $!
"""


@unittest.skipUnless(subprocess.run(["unshare", "-u", "true"], capture_output=True).returncode == 0,
                     "skipped: a host name of one's own needs root")
class Racks(LaunchTest):
    def setUp(self):
        super().setUp()
        self.shell = os.path.join(self.folder, "shell")
        with open(self.shell, "w") as file:
            file.write(SHELL)
        os.chmod(self.shell, 0o755)

    def ring(self, racks):
        path = os.path.join(self.folder, "racks")
        with open(path, "w") as file:
            file.write(racks)
        return self.tutti("run", "--hosts", "a:1,b:1,c:1,d:1", "--ssh", self.shell, "--rendezvous",
                          "127.0.0.1:0", "--grace", "0.3", "--", TOOL, "bench",
                          "all_reduce,all_gather,reduce_scatter,broadcast", "-b", "4K", "-e", "4K",
                          "--algorithm", "ring", "--check", "--budget", "1ms", TUTTI_RACKS=path,
                          TUTTI_TRANSPORT="tcp", TUTTI_TUNING="fixed", TUTTI_DEBUG="INFO",
                          TUTTI_DEBUG_SUBSYS="INIT")

    def test_rings_stay_inside_a_rack_while_they_can(self):
        done = self.ring("one: a c\ntwo: b d\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("in the order 0 2 1 3", done.stderr)

    def test_a_host_in_no_rack_is_named_and_does_not_stop_the_job(self):
        done = self.ring("one: a b c\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("names no rack of host d", done.stderr)

    def test_a_file_that_cannot_be_read_ends_the_job_and_is_named(self):
        done = self.ring("one: a\ntwo: a\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("line 2: host a was in rack one in line 1", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
