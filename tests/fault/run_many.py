"""Many ranks over tcp: each has few links, and a rank that dies among them is named by all."""
import os
import signal
import unittest

from launching import PROGRAMS, LaunchTest

MANY = os.path.join(PROGRAMS, "many_ranks")
RANKS = 40


class Many(LaunchTest):
    def test_of_many_ranks_each_needs_few_descriptors(self):
        done = self.tutti("run", "-n", str(RANKS), MANY, TUTTI_TRANSPORT="tcp",
                          TUTTI_TUNING="fixed")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(len(lines), RANKS)
        self.assertEqual({line[-1] for line in lines}, {"right"})
        descriptors = [int(line[line.index("descriptors") + 1]) for line in lines]
        self.assertLessEqual(max(descriptors), 40, "78 sockets would be one for every rank, twice")

    def test_all_name_one_that_dies(self):
        victim = 23
        process = self.start("run", "-n", str(RANKS), "--grace", "5", MANY, "wait",
                             TUTTI_TRANSPORT="tcp", TUTTI_TUNING="fixed")
        pids = {}
        while len(pids) < RANKS:
            words = process.stdout.readline().split()
            pids[int(words[1])] = int(words[words.index("pid") + 1])
        os.kill(pids[victim], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        named = [line for line in errors.splitlines() if "peer_lost" in line and f"rank {victim} (" in line]
        self.assertGreaterEqual(len(named), RANKS - 1, errors)


if __name__ == "__main__":
    unittest.main()
