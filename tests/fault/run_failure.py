"""How a job ends when a rank, the launcher or the user ends it."""
import json
import os
import signal
import time
import unittest

from launching import LIMIT, PROGRAMS, LaunchTest, pids_with, wait_until


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


class ExitCode(LaunchTest):
    def test_all_ranks_well_is_zero_and_silent(self):
        done = self.tutti("run", "-n", "4", "true")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_the_first_failing_rank_decides(self):
        # Rank 2 fails first; rank 0 follows, as ranks that lost a peer do, with another code.
        text = ("if RANK == 2: sys.exit(3)\n"
                "if RANK == 0:\n"
                "  signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
                "  signal.pause()\n")
        done = self.tutti("run", "-n", "3", "--grace", "0.5", *self.script(text))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("rank 2 ", done.stderr)

    def test_the_order_of_deaths_is_known_even_to_a_launcher_that_was_away(self):
        process = self.start("run", "-n", "3", "--grace", "0.2",
                             *self.script("print(RANK, os.getpid())\nsignal.pause()\n"))
        pids = dict(map(int, line.split()) for line in self.read_lines(process, 3))
        process.send_signal(signal.SIGSTOP)
        for rank, number in ((2, signal.SIGKILL), (0, signal.SIGTERM), (1, signal.SIGKILL)):
            os.kill(pids[rank], number)
            wait_until(lambda: state_of(pids[rank]) == "Z", f"rank {rank} is dead")
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 137, err)
        self.assertIn("rank 2 ", err)

    def test_a_killed_rank_is_128_plus_signal(self):
        done = self.tutti("run", "-n", "2",
                          *self.script("if RANK == 1: os.kill(os.getpid(), signal.SIGKILL)"))
        self.assertEqual(done.returncode, 137)

    def test_a_program_that_is_not_there_is_127_in_one_line(self):
        for name in ("no-such-program", "./no-such-program"):
            done = self.tutti("run", "-n", "2", name)
            self.assertEqual(done.returncode, 127)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(name, done.stderr)

    def test_a_file_that_cannot_be_run_is_127(self):
        path = os.path.join(self.folder, "broken")
        with open(path, "w") as file:
            file.write("#!/no/such/interpreter\n")
        os.chmod(path, 0o755)
        done = self.tutti("run", "-n", "2", path)
        self.assertEqual(done.returncode, 127)
        self.assertIn(path, done.stderr)


class Verdict(LaunchTest):
    def test_it_names_rank_pid_code_and_last_lines(self):
        text = ("if RANK == 1:\n"
                "  print('pid', os.getpid())\n"
                "  for i in range(30): print('line', i, file=sys.stderr)\n"
                "  sys.exit(3)\n")
        done = self.tutti("run", "-n", "2", *self.script(text))
        pid = done.stdout.split()[1]
        verdict = done.stderr[done.stderr.index("tutti run:"):]
        host = os.uname().nodename
        self.assertIn(f"rank 1 (host {host}, pid {pid}) exited with code 3", verdict)
        self.assertIn("it had not called tutti", verdict)
        self.assertIn("line 29", verdict)
        self.assertIn("line 20", verdict)
        self.assertNotIn("line 19", verdict)
        self.assertEqual(done.stderr.count("tutti run:"), 1, "one verdict")

    def test_it_names_the_signal(self):
        done = self.tutti("run", "-n", "2",
                          *self.script("if RANK == 0: os.kill(os.getpid(), signal.SIGSEGV)"))
        self.assertEqual(done.returncode, 139)
        self.assertIn("was killed by signal 11 (SIGSEGV)", done.stderr)

    def test_it_names_the_last_operation_of_the_dead_rank(self):
        done = self.tutti("run", "-n", "3", os.path.join(PROGRAMS, "note_and_die"), "1")
        self.assertEqual(done.returncode, 137, done.stderr)
        self.assertIn("it was in all_reduce (4 MiB, f32), the 1042nd operation of group 'world', for ",
                      done.stderr)

    def test_programs_can_read_it(self):
        path = os.path.join(self.folder, "report.json")
        done = self.tutti("run", "-n", "3", "--json", path,
                          os.path.join(PROGRAMS, "note_and_die"), "1")
        with open(path) as file:
            report = json.load(file)
        self.assertEqual((report["format"], report["exit_code"]), ("tutti run 1", done.returncode))
        self.assertEqual(report["first_failure"]["rank"], 1)
        self.assertIn(report["first_failure"]["sentence"], done.stderr)
        rank = report["ranks"][1]
        self.assertEqual((rank["exit_code"], rank["signal"]), (137, "SIGKILL"))
        self.assertEqual(rank["last_operation"], {
            "operation": "all_reduce", "group": "world", "sequence": 1042,
            "operation_bytes": 4 << 20, "dtype": "f32"})
        self.assertEqual(self.tutti("run", "--json", path, "true").returncode, 0)
        with open(path) as file:
            self.assertIsNone(json.load(file)["first_failure"])

    def test_every_prefix_and_program_word_is_kept_as_given(self):
        program = self.script("print(sys.argv[1:])")
        done = self.tutti("run", "-n", "1", "--", *program, "-n", "--", "x y")
        self.assertEqual(done.stdout, "['-n', '--', 'x y']\n")


class Joining(LaunchTest):
    def leave(self, code, *words):
        began = time.monotonic()
        done = self.tutti("run", "-n", "3", "--grace", "20", os.path.join(PROGRAMS, "join_or_leave"),
                          "1", str(code), *words, TUTTI_TUNING="fixed")
        self.assertLess(time.monotonic() - began, 15, "long before --grace and the join timeout")
        return done

    def test_a_rank_that_leaves_before_it_joined_is_told_to_the_others_at_once(self):
        for code in (0, 7):
            done = self.leave(code)
            word = f"rank 1 exited with code {code} before it joined group 'world'"
            self.assertEqual(done.stderr.split("tutti run:")[0].count(word), 2, done.stderr)
            self.assertEqual(done.returncode, code or 9)

    def test_a_rank_that_leaves_while_the_others_link_is_told_to_them_too(self):
        done = self.leave(0, "linked")
        # Who tries to link to it at that very moment may say so before its end is known.
        self.assertRegex(done.stderr.split("tutti run:")[0], r"rank 1 (exited with code 0 before it joined group "
                         r"'world'|\(host \S+, pid \d+\) is gone before it was linked)")
        self.assertEqual(done.returncode, 9)


class Ending(LaunchTest):
    STUBBORN = ("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                "print('ready')\n"
                "while True: signal.pause()\n")

    def test_survivors_of_a_failure_are_ended_even_when_they_ignore_sigterm(self):
        text = "if RANK == 1: sys.exit(7)\n" + self.STUBBORN
        done = self.tutti("run", "-n", "3", "--grace", "0.3", *self.script(text))
        self.assertEqual(done.returncode, 7)

    def test_a_stopped_rank_is_ended_too(self):
        text = "if RANK == 1: sys.exit(7)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
        done = self.tutti("run", "-n", "2", "--grace", "0.3", *self.script(text))
        self.assertEqual(done.returncode, 7)

    def test_survivors_may_end_by_themselves_within_the_grace(self):
        text = ("if RANK == 1: sys.exit(7)\n"
                "signal.signal(signal.SIGTERM, lambda *_: print('hurried'))\n"
                "time.sleep(0.5)\nprint('took my time')\n")
        done = self.tutti("run", "-n", "2", "--grace", "30", *self.script(text))
        self.assertEqual((done.returncode, done.stdout), (7, "took my time\n"))

    def test_signals_are_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            text = (f"signal.signal({int(number)}, lambda *_: (print('got it'), sys.exit(0)))\n"
                    "print('ready')\nsignal.pause()\n")
            process = self.start("run", "-n", "3", *self.script(text))
            self.assertEqual(self.read_lines(process, 3), ["ready"] * 3)
            process.send_signal(number)
            out, err = process.communicate(timeout=LIMIT)
            self.assertEqual((process.returncode, out), (0, "got it\n" * 3), err)
            self.assertIn(number.name, err)

    def test_ranks_that_die_of_the_signal_give_128_plus_it(self):
        process = self.start("run", "-n", "2", *self.script("print('ready')\nsignal.pause()\n"))
        self.read_lines(process, 2)
        process.terminate()
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 143)

    def test_the_second_signal_kills_after_the_grace(self):
        process = self.start("run", "-n", "2", "--grace", "0.3", *self.script(self.STUBBORN))
        self.read_lines(process, 2)
        process.send_signal(signal.SIGINT)
        # The signals must be two: a pending one swallows its like.
        wait_until(lambda: not self.is_pending(process.pid, signal.SIGINT), "the first was taken")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 130)

    def test_who_interrupts_in_vain_is_told_what_to_do(self):
        process = self.start("run", "-n", "2", "--grace", "0", *self.script(self.STUBBORN))
        self.read_lines(process, 2)
        process.send_signal(signal.SIGTERM)
        self.assertIn("2 of 2 ranks go on after SIGTERM", process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 143)

    def is_pending(self, pid, number):
        with open(f"/proc/{pid}/status") as file:
            masks = [line.split()[1] for line in file if line.startswith(("ShdPnd", "SigPnd"))]
        return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

    def test_a_launcher_that_is_killed_takes_ranks_and_their_children_along(self):
        program = self.script("print('ready')\nsignal.pause()\n")
        wrapped = ["bash", "-c", '"$@" & wait', "bash", *program]  # the rank is the shell's child
        for words in (program, wrapped):
            process = self.start("run", "-n", "3", *words)
            self.assertEqual(self.read_lines(process, 3), ["ready"] * 3)
            process.kill()
            process.wait(LIMIT)
            wait_until(lambda: not pids_with(self.mark), "no rank is left")

    def test_what_a_rank_leaves_running_goes_with_it(self):
        done = self.tutti("run", "-n", "2", "bash", "-c", "sleep 1000 & exit 0")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(pids_with(self.mark), [])

    # Left its session, its parent and its streams; and again, from there.
    DAEMON = ("(setsid sh -c 'sleep 1000 & setsid sleep 1000 & wait' </dev/null >/dev/null 2>&1 &) ;"
              " sleep 0.1; ")

    def test_what_left_its_session_goes_too(self):
        for end, code in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)):
            done = self.tutti("run", "-n", "2", "--grace", "0.2", "bash", "-c", self.DAEMON + end)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(pids_with(self.mark), [])

    def test_what_left_its_session_goes_with_a_killed_launcher_too(self):
        process = self.start("run", "-n", "2", "bash", "-c", self.DAEMON + "echo ready; sleep 1000")
        self.read_lines(process, 2)
        self.assertGreaterEqual(len(pids_with(self.mark)), 2 * 4, "ranks and daemons")
        process.kill()
        process.wait(LIMIT)
        wait_until(lambda: not pids_with(self.mark), "no daemon is left")

    def test_a_keeper_that_is_killed_leaves_nothing_either(self):
        process = self.start("run", "-n", "2", "--grace", "0.2", "bash", "-c",
                             self.DAEMON + "echo $PPID; sleep 1000")
        keepers = set(self.read_lines(process, 2))
        self.assertEqual(len(keepers), 1)
        os.kill(int(keepers.pop()), signal.SIGKILL)
        process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, pids_with(self.mark)), (137, []))

    def test_daemons_may_be_left_on_demand(self):
        done = self.tutti("run", "--leave-daemons", "bash", "-c", self.DAEMON)
        left = pids_with(self.mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual((done.returncode, len(left)), (0, 3))

    def test_no_listening_socket_is_left(self):
        text = "print(os.environ['TUTTI_STORE'].rsplit(':')[-1], os.environ['MASTER_PORT'])"
        done = self.tutti("run", "-n", "1", *self.script(text))
        ports = {int(word) for word in done.stdout.split()}
        self.assertEqual(len(ports), 2)
        with open("/proc/net/tcp") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        listening = {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}
        self.assertFalse(ports & listening)


if __name__ == "__main__":
    unittest.main(verbosity=2)
