"""`tutti run --max-restarts`: what failed begins anew, on every host, and nothing of it is left."""
import json
import os
import signal
import unittest

from launching import LIMIT, PROGRAMS, LaunchTest, wait_until
from nodes import NodesTest

# Rank 1 is killed in the first attempts, of which there are as many as the first word says.
FALL = ("restart = int(os.environ['TUTTI_RESTART'])\n"
        "print(RANK, 'begins', restart)\n"
        "if restart < int(sys.argv[1]):\n"
        "  if RANK == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "  signal.pause()\n")


class Restarts(LaunchTest):
    def run_job(self, *words, restarts=3, more=()):
        path = os.path.join(self.folder, "report.json")
        done = self.tutti("run", "-n", "2", "--grace", "0.1", "--max-restarts", str(restarts), *more,
                          "--json", path, *words)
        with open(path) as file:
            return done, json.load(file)

    def test_a_failed_job_begins_anew_and_says_why(self):
        done, report = self.run_job(*self.script(FALL), "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2, done.stderr)
        for number, line in enumerate(lines, 1):
            self.assertRegex(line, r"tutti run: rank 1 .* was killed by signal 9 \(SIGKILL\) after .*; "
                                   f"restart {number} of 3$")
        lines = done.stdout.splitlines()
        self.assertEqual([line for line in lines if line.startswith("1")],
                         ["1 begins 0", "1 begins 1", "1 begins 2"])
        self.assertIn("0 begins 2", lines)
        self.assertEqual([one["exit_code"] for one in report["restarts"]], [137, 137])
        self.assertEqual(report["restarts"][0]["first_failure"]["rank"], 1)
        self.assertEqual((report["exit_code"], report["first_failure"]), (0, None))

    def test_the_last_attempt_decides(self):
        done, report = self.run_job(*self.script(FALL), "9", restarts=1)
        self.assertEqual(done.returncode, 137)
        self.assertEqual(done.stderr.count("restart 1 of 1"), 1)
        self.assertIn("it had not called tutti", done.stderr, "a full verdict at the end")
        self.assertEqual((len(report["restarts"]), report["first_failure"]["rank"]), (1, 1))

    def test_a_group_of_the_next_attempt_meets_in_a_clean_store(self):
        script = os.path.join(self.folder, "once")
        with open(script, "w") as file:
            file.write('#!/bin/sh\n[ $TUTTI_RESTART = 0 ] && exec "$@" 1 3\n'
                       f'exec {PROGRAMS}/join_or_leave none 0\n')
        os.chmod(script, 0o755)
        done, _ = self.run_job(script, os.path.join(PROGRAMS, "lose_a_rank"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("restart "), 1, done.stderr)

    def test_nothing_of_the_last_attempt_is_left_when_the_next_begins(self):
        text = ("import subprocess\n"
                "restart = os.environ['TUTTI_RESTART']\n"
                "if RANK == 1: sys.exit(0)\n"
                "alive = subprocess.run(['pgrep', '-f', f'sleep {sys.argv[1]}'])\n"
                "print('found' if alive.returncode == 0 else 'clean', restart)\n"
                "subprocess.Popen(['sleep', sys.argv[1]], start_new_session=True)\n"
                "if restart == '0': sys.exit(3)\n")
        seconds = f"1000.{os.getpid()}"
        done, _ = self.run_job(*self.script(text), seconds)
        self.assertEqual(done.stdout, "clean 0\nclean 1\n", done.stderr)

    def test_logs_keep_every_attempt(self):
        logs = os.path.join(self.folder, "logs")
        self.run_job(*self.script(FALL), "1", more=("--log-dir", logs))
        with open(os.path.join(logs, "rank1.out")) as file:
            self.assertEqual(file.read(), "1 begins 0\n1 begins 1\n")
        self.assertEqual(os.stat(os.path.join(logs, "rank1.out")).st_mode & 0o777, 0o600)

    def test_a_wrong_command_line_is_not_tried_again(self):
        for code in (2, 126, 127):
            done, report = self.run_job(*self.script(f"sys.exit({code})"))
            self.assertEqual((done.returncode, report["restarts"]), (code, []))

    def test_an_interrupted_job_is_not_restarted(self):
        process = self.start("run", "-n", "2", "--max-restarts", "3",
                             *self.script("print('ready')\nsignal.pause()\n"))
        self.read_lines(process, 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, out), (130, ""), err)
        self.assertNotIn("restart", err)


class NodesRestart(NodesTest):
    RESTARTS = ("--max-restarts", "2")

    def test_the_failure_of_one_node_restarts_all(self):
        for falling in (1, 3):
            results = self.both([*self.script(FALL.replace("RANK == 1", f"RANK == {falling}")), "1"],
                                grace="0.1", more=self.RESTARTS)
            for node, (code, out, err) in enumerate(results):
                self.assertEqual(code, 0, results)
                self.assertRegex(err, f"^tutti run: rank {falling} .*; restart 1 of 2\n$")
                again = sorted(line for line in out.splitlines() if line.endswith("begins 1"))
                self.assertEqual(again, [f"{2 * node} begins 1", f"{2 * node + 1} begins 1"])

    def test_ranks_of_two_nodes_make_a_group_after_a_restart(self):
        lose = os.path.join(PROGRAMS, "lose_a_rank")
        join = os.path.join(PROGRAMS, "join_or_leave")
        text = (f"words = ['{lose}', '3', '3'] if os.environ['TUTTI_RESTART'] == '0' else"
                f" ['{join}', 'none', '0']\nos.execv(words[0], words)\n")
        for code, _, err in self.both(self.script(text), more=self.RESTARTS):
            self.assertEqual(code, 0, err)
            self.assertIn("tutti run: rank 3 ", err)
            self.assertIn("restart 1 of 2", err)

    def test_a_user_who_stops_one_node_stops_all(self):
        program = self.script("print('ready')\nsignal.pause()\n")
        job = [self.start(*self.flags(node, grace="0.2"), *self.RESTARTS, *program)
               for node in range(2)]
        for launcher in job:
            self.read_lines(launcher, 2)
        job[1].send_signal(signal.SIGINT)
        for launcher in job:
            code, _, err = self.finish(launcher)
            self.assertEqual(code, 130, err)
            self.assertNotIn("restart", err)

    def test_a_launcher_that_comes_in_place_of_a_killed_one_joins_the_next_attempt(self):
        program = [*self.script("print('ready', flush=True)\n"
                                "if os.environ['TUTTI_RESTART'] == '0': signal.pause()\n")]
        start = lambda node: self.start(*self.flags(node, grace="0.2"), *self.RESTARTS, *program,
                                        TUTTI_DEAD_AFTER="1")
        first, second = start(0), start(1)
        self.read_lines(first, 2)
        self.read_lines(second, 2)
        second.kill()
        third = start(1)
        for launcher in (first, third):
            code, out, err = self.finish(launcher)
            self.assertEqual((code, out), (0, "ready\nready\n"), err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
