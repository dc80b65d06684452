#!/usr/bin/env python3
"""`tutti show job`: what it sees of a running job, who may look, and that looking harms nothing."""
import json
import os
import signal
import socket
import stat
import subprocess
import time
import unittest

from launching import LIMIT, PROGRAMS, TOOL, LaunchTest, wait_until

PROGRAM = os.path.join(PROGRAMS, "late_rank")


class JobTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.gate = os.path.join(self.folder, "gate")

    def environment(self, **more):
        # A folder of its own: other jobs on this machine are none of its business.
        return super().environment(**{"XDG_RUNTIME_DIR": self.folder, "TUTTI_TUNING": "fixed", **more})

    def start_job(self, ranks=3, calls=50):
        return self.start("run", "-n", str(ranks), PROGRAM, str(calls), self.gate)

    def open_gate(self):
        with open(self.gate, "w"):
            pass

    def sockets(self):
        try:
            return [os.path.join(self.folder, "tutti", name)
                    for name in os.listdir(os.path.join(self.folder, "tutti"))]
        except FileNotFoundError:
            return []

    def look(self, *words):
        answer = self.tutti("show", "job", "--once", "--json", *words)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def wait_for_waiting(self):
        """Until the job has come to the point where everybody waits for the last rank."""
        wait_until(self.sockets, "the launcher listens")
        view = {}

        def waiting():
            view.update(self.look())
            return view["ranks"] and all(rank["waits_for"] for rank in view["ranks"][:-1])
        wait_until(waiting, "the others wait for the last rank")
        return view

    def test_names_who_waits_for_whom(self):
        job = self.start_job()
        view = self.wait_for_waiting()
        self.assertEqual(view["format"], "tutti job 1")
        self.assertEqual(view["launcher_pid"], job.pid)
        self.assertEqual(view["program"], "late_rank")
        self.assertEqual([rank["rank"] for rank in view["ranks"]], [0, 1, 2])
        for rank in view["ranks"][:2]:
            self.assertEqual(rank["waits_for"], [2])
            self.assertEqual((rank["operation"], rank["group"], rank["state"]),
                             ("all_reduce", "world", "running"))
        late = view["ranks"][2]
        self.assertEqual(late["waits_for"], [])
        self.assertLess(late["sequence"], view["ranks"][0]["sequence"])
        # 51 calls of 4 KiB each; groups make a few of their own.
        self.assertGreaterEqual(view["ranks"][0]["calls"], 51)
        self.assertGreaterEqual(view["ranks"][0]["bytes"], 51 * 4096)
        self.assertEqual(self.look()["ranks"][0]["calls_per_s"], 0)  # stuck by now
        table = self.tutti("show", "job", "--once").stdout
        self.assertRegex(table, r"ranks 0, 1 wait for rank 2\n")
        self.assertRegex(table, r"running +[\d.]+ m?s +all_reduce #\d+ +world +2 ")
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)

    def test_a_call_that_comes_after_another_waits(self):
        job = self.start("run", "-n", "2", PROGRAM, "5", self.gate, "held")
        view = self.wait_for_waiting()
        self.assertEqual(view["ranks"][0]["waits_for"], [1])
        held = view["ranks"][1]
        self.assertEqual((held["state"], held["operation"], held["sequence"], held["waits_for"]),
                         ("waiting", "all_reduce", view["ranks"][0]["sequence"], []))
        self.assertRegex(self.tutti("show", "job", "--once").stdout, r"waiting +[\d.]+ m?s +all_reduce #6")
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)

    def test_a_busy_job_shows_its_throughput(self):
        job = self.start_job(ranks=2, calls=1000000000)
        wait_until(self.sockets, "the launcher listens")
        wait_until(lambda: all(rank.get("calls_per_s", 0) > 0 for rank in self.look()["ranks"]),
                   "calls are counted")
        rank = self.look()["ranks"][0]
        self.assertGreater(rank["bytes_per_s"], rank["calls_per_s"] * 1000)
        job.terminate()
        job.wait(LIMIT)

    def test_only_the_user_may_look_and_nothing_stays(self):
        job = self.start_job()
        self.wait_for_waiting()
        path, = self.sockets()
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
        if os.geteuid() == 0:
            self.refuses_strangers(path)
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)
        self.assertFalse(os.path.exists(os.path.dirname(path)))

    def refuses_strangers(self, path):
        """Nobody, let in by a descriptor that was opened before it became nobody."""
        os.chmod(self.folder, 0o755)
        os.chmod(os.path.dirname(path), 0o755)
        os.chmod(path, 0o666)
        program = ("import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
                   "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b'snapshot\\n')\n"
                   "print(len(s.recv(100)))")
        try:
            answer = subprocess.run(["/usr/bin/python3", "-c", program, path], capture_output=True,
                                    text=True, timeout=LIMIT)
        finally:
            os.chmod(os.path.dirname(path), 0o700)
        self.assertTrue(answer.stdout == "0\n" or "ConnectionReset" in answer.stderr
                        or "BrokenPipe" in answer.stderr, answer)

    def test_a_killed_launcher_leaves_no_socket(self):
        job = self.start_job()
        self.wait_for_waiting()
        os.kill(job.pid, signal.SIGKILL)
        job.wait(LIMIT)
        wait_until(lambda: not os.path.exists(os.path.join(self.folder, "tutti")), "the keeper tidied up")
        answer = self.tutti("show", "job")
        self.assertEqual(answer.returncode, 1)
        self.assertIn("no job of this user runs on this host", answer.stderr)

    def test_rude_clients_do_not_disturb_the_job(self):
        job = self.start_job()
        self.wait_for_waiting()
        path, = self.sockets()
        clients = []
        for number in range(40):  # more than are kept
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            client.settimeout(LIMIT)
            clients.append(client)
            try:
                if number % 3 == 0:
                    client.sendall(b"snapshot\n" * 1000)  # and never reads
                elif number % 3 == 1:
                    client.sendall(b"x" * 100000)
                else:
                    client.sendall(b"rm -rf\n")
            except OSError:
                pass  # shown the door already
        self.assertEqual(len(self.look()["ranks"]), 3)
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)
        for client in clients:
            client.close()

    def test_a_crowd_at_the_door_is_waited_for(self):
        job = self.start_job()
        self.wait_for_waiting()
        path, = self.sockets()
        os.kill(job.pid, signal.SIGSTOP)
        crowd = []
        try:
            while True:
                crowd.append(socket.socket(socket.AF_UNIX))
                crowd[-1].setblocking(False)
                crowd[-1].connect(path)
        except BlockingIOError:
            pass  # no room left
        looker = self.start("show", "job", "--once", "--json")
        time.sleep(0.2)  # it finds the door crowded; were it later, it would merely find it free
        os.kill(job.pid, signal.SIGCONT)
        answer, complaint = looker.communicate(timeout=LIMIT)
        for client in crowd:
            client.close()
        self.assertEqual(looker.returncode, 0, complaint)
        self.assertEqual(len(json.loads(answer)["ranks"]), 3)
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)

    def test_a_secret_is_not_told(self):
        job = self.start_job()
        self.wait_for_waiting()
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.sockets()[0])
        client.sendall(b"snapshot\n")
        text = client.makefile().readline()
        client.close()
        self.assertEqual(set(json.loads(text)), {
            "format", "job", "launcher_pid", "host", "program", "node", "nodes", "ranks_in_job", "up_s",
            "time_s", "ranks"})
        self.assertNotIn(self.gate, text)  # arguments stay where they are
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)

    def test_several_jobs_are_listed(self):
        jobs = [self.start_job(ranks=2), self.start_job(ranks=2)]
        wait_until(lambda: len(self.sockets()) == 2, "both launchers listen")
        wait_until(lambda: len(self.look().get("jobs", [])) == 2, "both answer")
        listed = self.look()
        self.assertEqual(sorted(job["launcher_pid"] for job in listed["jobs"]),
                         sorted(job.pid for job in jobs))
        text = self.tutti("show", "job")
        self.assertEqual(text.returncode, 0)
        self.assertIn("say which one: tutti show job", text.stdout)
        one = listed["jobs"][0]
        self.assertEqual(self.look(one["job"][:8])["launcher_pid"], one["launcher_pid"])
        self.assertEqual(self.look(str(one["launcher_pid"]))["job"], one["job"])
        stranger = self.tutti("show", "job", "zzz")
        self.assertEqual(stranger.returncode, 1)
        self.assertIn("no running job is called 'zzz'", stranger.stderr)
        self.open_gate()
        for job in jobs:
            self.assertEqual(job.wait(LIMIT), 0)

    def test_the_live_view_follows_until_the_end(self):
        job = self.start_job()
        self.wait_for_waiting()
        view = self.start("show", "job", "--json", "--interval", "50ms")
        times = [json.loads(view.stdout.readline())["time_s"] for _ in range(3)]
        self.assertLess(times[0], times[1])
        self.assertLess(times[1], times[2])
        self.open_gate()
        self.assertEqual(job.wait(LIMIT), 0)
        view.stdout.read()
        self.assertEqual(view.wait(LIMIT), 0)

    def test_a_job_runs_where_no_socket_can_be(self):
        os.chmod(self.folder, 0o755)
        with open(os.path.join(self.folder, "tutti"), "w"):
            pass  # in the way
        self.open_gate()
        job = self.start_job()
        self.assertEqual(job.wait(LIMIT), 0)
        answer = self.tutti("show", "job")
        self.assertEqual(answer.returncode, 1)
        self.assertIn("is not a folder that only this user may enter", answer.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
