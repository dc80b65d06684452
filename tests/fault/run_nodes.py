"""One job from two launchers, as on two hosts, over loopback."""
import os
import socket
import subprocess
import sys
import time
import unittest

from launching import PROGRAMS, TOOL
from nodes import NodesTest

sys.path.append(os.path.join(os.path.dirname(__file__), "matrix"))
import wire  # noqa: E402

TELL = ("print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'],"
        " os.environ['LOCAL_WORLD_SIZE'], os.environ['NODE_RANK'])\n")


class Nodes(NodesTest):
    def test_ranks_are_numbered_node_by_node(self):
        results = self.both(self.script(TELL))
        self.assertEqual([code for code, _, _ in results], [0, 0], results)
        self.assertEqual(sorted(results[0][1].splitlines()), ["0 4 0 2 0", "1 4 1 2 0"])
        self.assertEqual(sorted(results[1][1].splitlines()), ["2 4 0 2 1", "3 4 1 2 1"])

    def test_hosts_may_have_different_numbers_of_ranks(self):
        results = self.both(self.script(TELL), ranks=(1, 3))
        self.assertEqual(results[0][1], "0 4 0 1 0\n")
        self.assertEqual(sorted(results[1][1].splitlines()),
                         ["1 4 0 3 1", "2 4 1 3 1", "3 4 2 3 1"])

    def test_all_nodes_see_one_job_one_store_and_one_secret(self):
        text = ("import hashlib\n"
                "secret = os.pread(int(os.environ['TUTTI_SECRET_FD']), 99, 0)\n"
                "names = ('TUTTI_JOB', 'TUTTI_STORE', 'MASTER_ADDR', 'MASTER_PORT')\n"
                "print(*map(os.environ.get, names), hashlib.sha256(secret).hexdigest())\n")
        results = self.both(self.script(text))
        lines = {line for _, out, _ in results for line in out.splitlines()}
        self.assertEqual(len(lines), 1, results)
        self.assertIn(self.rendezvous, lines.pop())

    def test_a_failure_on_one_node_ends_the_other_with_the_same_verdict(self):
        for failing in (0, 3):
            text = f"if RANK == {failing}: sys.exit(9)\nsignal.pause()\n"
            results = self.both(self.script(text), grace="0.3")
            for code, _, err in results:
                self.assertEqual(code, 9, results)
                self.assertIn(f"rank {failing} ", err)
                self.assertIn("exited with code 9", err)

    def test_a_node_that_is_done_waits_for_the_others_verdict(self):
        text = "if RANK == 3: time.sleep(0.5); sys.exit(9)\n"  # long after node 0's ranks
        results = self.both(self.script(text), grace="0.3")
        self.assertEqual([code for code, _, _ in results], [9, 9], results)

    def test_a_rank_that_leaves_before_it_joined_is_told_on_every_node(self):
        results = self.both([os.path.join(PROGRAMS, "join_or_leave"), "3", "0"])
        for code, _, err in results:
            self.assertEqual(code, 9, results)
            self.assertIn("rank 3 exited with code 0 before it joined group 'world'", err)

    def test_losing_node_0_ends_the_others(self):
        program = self.script("print('ready')\nsignal.pause()\n")
        first, second = (self.start(*self.flags(node, grace="0.3"), *program) for node in range(2))
        self.read_lines(first, 2)
        self.read_lines(second, 2)
        first.kill()
        code, _, err = self.finish(second)
        self.assertEqual(code, 1, err)
        self.assertIn("lost node 0's launcher", err)

    def test_a_node_that_does_not_come_is_named(self):
        code, _, err = self.finish(self.start(*self.flags(0, join="0.5"), "true"))
        self.assertEqual(code, 1)
        self.assertIn("node 1 of 2 did not come", err)

    def test_node_0_that_does_not_come_is_named(self):
        code, _, err = self.finish(self.start(*self.flags(1, join="0.5"), "true"))
        self.assertEqual(code, 1)
        self.assertIn(self.rendezvous, err)

    def test_a_node_rank_that_is_taken_is_refused(self):
        program = self.script("print('ready')\nsignal.pause()\n")
        job = [self.start(*self.flags(node, grace="0.2"), *program) for node in range(2)]
        for launcher in job:
            self.read_lines(launcher, 2)
        code, _, err = self.finish(self.start(*self.flags(1), "true"))
        self.assertEqual(code, 2, err)
        self.assertIn("--node-rank 1 is taken", err)
        for launcher in job:
            launcher.terminate()
            self.finish(launcher)

    def test_another_secret_does_not_get_in(self):
        other = self.write_secret("other", os.urandom(32), 0o600)
        first = self.start(*self.flags(0, join="1.5"), "true")
        second = self.start(*self.flags(1, secret=other, join="1"), "true")
        self.assertEqual(self.finish(second)[0], 1)
        self.assertEqual(self.finish(first)[0], 1)

    def test_another_version_of_the_protocol_is_told_at_once(self):
        host, port = self.rendezvous.rsplit(":", 1)
        with socket.create_server((host, int(port))) as server:
            node = self.start(*self.flags(1, join="8"), "true")
            client, _ = server.accept()
            with client:
                hello = client.recv(56, socket.MSG_WAITALL)
                client.sendall(hello[:4] + (99).to_bytes(4, "little") + bytes(48 + 32))
            server.close()
            began = time.monotonic()
            code, _, err = self.finish(node)
        self.assertEqual(code, 1, err)
        self.assertIn("protocol version 99", err)
        self.assertLess(time.monotonic() - began, 5)

    def test_a_secret_that_others_can_read_is_refused(self):
        for mode in (0o644, 0o640, 0o604):
            path = self.write_secret("open", b"x" * 32, mode)
            done = self.tutti(*self.flags(0, secret=path), "true")
            self.assertEqual(done.returncode, 2)
            self.assertIn("chmod 600", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_wrong_flags_are_named(self):
        base = ["run", "--nnodes", "2", "--node-rank"]
        for words, culprit in ((base + ["2", "true"], "--node-rank"),
                               (base + ["0", "true"], "--rendezvous"),
                               (base + ["0", "--rendezvous", "127.0.0.1:1", "true"],
                                "--secret-file"),
                               (self.flags(0)[:7] + ["--rendezvous", "nowhere", "--secret-file",
                                                     self.secret, "true"], "nowhere"),
                               (self.flags(0, secret="/no/such/file") + ["true"], "/no/such/file")):
            done = self.tutti(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(culprit, done.stderr)


class Partition(NodesTest):
    """Two hosts with a wire between them that is cut: each launcher is left to itself."""
    DEAD_AFTER = 1

    def setUp(self):
        super().setUp()
        why = wire.unavailable()
        if why:
            self.skipTest(why)
        self.wire = wire.Wire()
        self.addCleanup(self.wire.close)
        self.rendezvous = f"{self.wire.address(0)}:29400"

    def start_on(self, node, *words):
        process = subprocess.Popen([*self.wire.enter(node), TOOL, *self.flags(node, grace="0.3"), *words],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   env=self.environment(TUTTI_DEAD_AFTER=str(self.DEAD_AFTER)))
        self.addCleanup(self.end, process)
        return process

    def test_both_sides_end_soon_and_name_the_same_host(self):
        for cut in ({0, 1}, {0}, {1}):
            self.wire.cut = set()
            job = [self.start_on(node, *self.script("print('ready')\nsignal.pause()\n"))
                   for node in range(2)]
            for launcher in job:
                self.read_lines(launcher, 2)
            self.wire.cut = cut
            began = time.monotonic()
            for launcher in job:
                code, _, err = self.finish(launcher)
                self.assertEqual(code, 1, err)
                self.assertIn("node 1 (host ", err)
                self.assertIn(") is cut off from node 0 ", err)
            self.assertLess(time.monotonic() - began, self.DEAD_AFTER + 4, f"cut {cut}")

    def test_after_a_cut_that_heals_both_sides_meet_in_the_next_attempt(self):
        text = "print('ready')\nif os.environ['TUTTI_RESTART'] == '0': signal.pause()\n"
        job = [self.start_on(node, "--max-restarts", "1", *self.script(text)) for node in range(2)]
        for launcher in job:
            self.read_lines(launcher, 2)
        self.wire.cut = {0, 1}
        for launcher in job:
            self.assertIn("is cut off from node 0", launcher.stderr.readline())
        self.wire.cut = set()
        for launcher in job:
            self.assertEqual(self.finish(launcher)[:2], (0, "ready\nready\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
