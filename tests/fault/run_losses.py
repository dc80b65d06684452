"""Jobs that go on although a rank was lost, and who is blamed for one that does not."""
import json
import os
import unittest

from launching import PROGRAMS, LaunchTest

LOSE = os.path.join(PROGRAMS, "lose_a_rank")


class Surviving(LaunchTest):
    def lose(self, *words):
        path = os.path.join(self.folder, "report.json")
        done = self.tutti("run", "-n", "4", "--grace", "0.3", "--json", path, LOSE, *words,
                          TUTTI_TUNING="fixed")
        with open(path) as file:
            return done, json.load(file)

    def test_a_job_whose_ranks_all_say_so_goes_on_without_one(self):
        done, report = self.lose("2", "0", "survive")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("was killed by signal 9 (SIGKILL)", done.stderr)
        self.assertIn("the job goes on with 3 of 4 ranks", done.stderr)
        self.assertIn("the job ended with 3 of 4 ranks", done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"rank {rank} lost rank 2" for rank in (0, 1, 3)])
        self.assertEqual((report["lost_ranks"], report["first_failure"]), ([2], None))

    def test_one_that_does_not_say_so_ends_it(self):
        done, report = self.lose("2", "5", "survive", "0")
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertNotIn("goes on", done.stderr)
        self.assertEqual((report["lost_ranks"], report["first_failure"]["rank"]), ([], 2))

    def test_where_nobody_ends_well_the_first_loss_decides(self):
        done, _ = self.lose("1", "6", "survive")
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertIn("tutti run: rank 1 ", done.stderr.splitlines()[-1])


class Blame(LaunchTest):
    def test_ranks_that_ended_because_another_was_lost_are_not_blamed(self):
        # The sockets of a killed process are closed before its death is announced.
        done = self.tutti("run", "-n", "3", os.path.join(PROGRAMS, "note_and_die"), "1", "followed")
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertIn("tutti run: rank 1 ", done.stderr)

    def test_the_killed_rank_is_blamed_every_time(self):
        for run in range(20):
            done = self.tutti("run", "-n", "3", LOSE, str(run % 3), "3", TUTTI_TUNING="fixed")
            self.assertEqual(done.returncode, 137, done.stderr)
            self.assertIn(f"tutti run: rank {run % 3} ", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
