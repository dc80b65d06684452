"""A switch that folds, as a process beside the ranks: `tutti run --switch`, and `tutti switch` by hand."""
import os
import signal
import socket
import time
import unittest

from launching import LIMIT, TOOL, LaunchTest, pids_with, wait_until

BY_SWITCH = {"TUTTI_TRANSPORT": "tcp", "TUTTI_ALGORITHM": "all_reduce:in_network", "TUTTI_TUNING": "fixed"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_switch(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[1:2] == [b"switch"]
    except OSError:
        return False


class Switch(LaunchTest):
    def switches(self):
        return [pid for pid in pids_with(self.mark) if is_switch(pid)]

    def test_run_starts_one_and_it_folds_right(self):
        done = self.tutti("run", "-n", "3", "--switch", TOOL, "bench", "all_reduce", "-b", "64K", "-e", "64K",
                          "--budget", "5ms", "--check", **BY_SWITCH)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("in_network", done.stdout)
        self.assertNotIn("without", done.stderr)

    def test_one_that_is_killed_is_named_and_the_job_ends_well(self):
        job = self.start("run", "-n", "3", "--switch", TOOL, "bench", "all_reduce", "-b", "64K", "-e", "64K",
                         "--budget", "1s", "--check", **BY_SWITCH)
        wait_until(self.switches, "the switch is there")
        time.sleep(0.5)  # in the midst of calls, most likely; nothing depends on it
        for pid in self.switches():
            os.kill(pid, signal.SIGKILL)
        _, errors = job.communicate(timeout=LIMIT)
        self.assertEqual(job.returncode, 0, errors)
        self.assertIn("group 'world' goes on without the switch", errors)

    def test_by_hand_it_meets_the_ranks_and_ends_with_them(self):
        secret = os.path.join(self.folder, "secret")
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
        port = free_port()
        common = {**BY_SWITCH, "TUTTI_SECRET_FILE": secret, "TUTTI_SWITCH": "1"}
        switch = self.start("switch", "-n", "2", "--store", f"127.0.0.1:{port}", "--json", **common)
        words = ["bench", "all_reduce", "-b", "64K", "-e", "64K", "--budget", "20ms"]
        ranks = [self.start(*words, **common, TUTTI_RENDEZVOUS=f"127.0.0.1:{port}", TUTTI_RANK=str(rank),
                            TUTTI_SIZE="2", TUTTI_LOCAL_RANK="0", TUTTI_LOCAL_SIZE="1") for rank in range(2)]
        for process in ranks:
            _, errors = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 0, errors)
        said, errors = switch.communicate(timeout=LIMIT)
        self.assertEqual(switch.returncode, 0, errors)
        self.assertIn('"ranks_have_gone": true', said)

    def test_without_a_job_it_says_what_to_set(self):
        for words, culprit in ((["switch"], "TUTTI_SIZE"), (["switch", "-n", "1"], "--ranks"), (["switch", "-n", "4"], "--store"),
                               (["switch", "-n", "4", "--store", "host:1"], "TUTTI_SECRET_FILE")):
            done = self.tutti(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(culprit, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
