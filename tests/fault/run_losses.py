"""Jobs that go on although a rank was lost, and who is blamed for one that does not."""
import json
import os
import subprocess
import unittest

from launching import LIMIT, PROGRAMS, TOOL, LaunchTest
from nodes import NodesTest

LOSE = os.path.join(PROGRAMS, "lose_a_rank")
REGAIN = os.path.join(PROGRAMS, "regain_a_rank")


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


class Returning(NodesTest):
    """Ranks that keep their places, and one that comes back after them."""

    def regain(self, victim, times, restarts):
        path = os.path.join(self.folder, "report.json")
        done = self.tutti("run", "-n", "3", "--max-restarts", str(restarts), "--json", path, REGAIN, victim, times,
                          TUTTI_TUNING="fixed")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(path) as file:
            report = json.load(file)
        return sorted(done.stdout.splitlines()), done.stderr, (report["returned_ranks"], report["lost_ranks"])

    def test_a_lost_rank_is_started_again_alone_and_joins_the_others(self):
        out, err, report = self.regain("0", "2", restarts=3)
        self.assertEqual(out, ["rank 0 is 2 of 3", "rank 1 is 0 of 3", "rank 2 is 1 of 3"])
        for number in (1, 2):
            self.assertIn(f"tutti run: rank 0 is started again, to join the others: restart {number} of 3\n", err)
        self.assertEqual((err.count("\n"), report), (4, ([0, 0], [])), err)

    def test_when_restarts_are_used_up_the_others_go_on_without(self):
        out, err, report = self.regain("1", "2", restarts=1)
        self.assertEqual(out, ["rank 0 is 0 of 2", "rank 2 is 1 of 2"])
        self.assertEqual((err.count("started again"), report), (1, ([1], [1])), err)
        self.assertIn("tutti run: the job ended with 2 of 3 ranks\n", err)

    def test_when_nobody_is_left_the_whole_job_is_started_again(self):
        out, err, _ = self.regain("-1", "1", restarts=3)
        # Before those there may be ranks that came back and found nobody.
        self.assertEqual(out[-3:], [f"rank {rank} is {rank} of 3" for rank in range(3)])
        self.assertIn("was killed by signal 9 (SIGKILL)", err)
        self.assertRegex(err, r"; restart \d of 3\n")

    def test_on_two_hosts_the_others_go_on_without(self):
        results = self.both([REGAIN, "3", "1"], ranks=(2, 2), more=("--max-restarts", "1"))
        for code, _, err in results:
            self.assertEqual(code, 0, results)
            self.assertIn("tutti run: rank 3 ", err)
            self.assertNotIn("started again", err)
        self.assertEqual(sorted("".join(out for _, out, _ in results).splitlines()),
                         [f"rank {rank} is {rank} of 3" for rank in range(3)])


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


def own_memory_group():
    """The folder of this process's memory cgroup, and the file of its limit; None where there is none."""
    with open("/proc/self/cgroup") as file:
        rows = [line.rstrip("\n").split(":", 2) for line in file]
    for _, names, path in rows:
        if "memory" in names.split(","):
            return "/sys/fs/cgroup/memory" + path.rstrip("/"), "memory.limit_in_bytes"
    return "/sys/fs/cgroup" + rows[-1][2].rstrip("/"), "memory.max"


class Memory(LaunchTest):
    def setUp(self):
        super().setUp()
        folder, limit = own_memory_group()
        self.group = f"{folder}/tutti-{os.getpid()}"
        try:
            os.mkdir(self.group)
            self.addCleanup(os.rmdir, self.group)
            with open(os.path.join(self.group, limit), "w") as file:
                file.write(str(64 << 20))
        except OSError as error:
            self.skipTest(f"no memory cgroup can be made here: {error}")

    def test_a_rank_that_was_killed_for_want_of_memory_is_said_to_be(self):
        inside = ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs; exec "$@"', "sh"]
        for end, told in (("bytearray(200 << 20)", True),
                          ("os.kill(os.getpid(), signal.SIGKILL)", False)):
            program = self.script(f"if RANK == 1: {end}\nsignal.pause()\n")
            done = subprocess.run([*inside, TOOL, "run", "-n", "2", "--grace", "0.1", *program],
                                  capture_output=True, text=True, timeout=LIMIT,
                                  env=self.environment())
            self.assertEqual(done.returncode, 137, done.stderr)
            word = "the kernel killed it for want of memory (its control group may have 64 MiB)"
            self.assertEqual(word in done.stderr, told, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
