"""Ctrl-C: every long command ends within two seconds, with 128 + the signal, and keeps what it has."""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from launching import TOOL, LaunchTest, pids_with, wait_until

LIMIT_S = 2


def in_the_background():
    """As a shell starts what a script puts there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Interrupting(LaunchTest):
    def interrupted(self, words, ready, sent=signal.SIGINT, tool=TOOL):
        process = subprocess.Popen([tool, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.environment(TUTTI_TUNING="fixed",
                                                                   TMPDIR=self.own_folder("tmp")),
                                   preexec_fn=in_the_background)
        self.addCleanup(self.end, process)
        wait_until(ready, f"{words} is at work")
        began = time.monotonic()
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, LIMIT_S, words)
        self.assertEqual(process.returncode, 128 + sent, errors)
        self.check_nothing_left()
        return errors

    def own_folder(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def test_a_benchmark_keeps_its_results(self):
        for transport, sent in (("shm", signal.SIGINT), ("inproc", signal.SIGTERM)):
            path = os.path.join(self.folder, transport + ".json")
            errors = self.interrupted(("bench", "all_reduce", "-n", "2", "--transport", transport,
                                       "--budget", "50ms", "--json", path),
                                      lambda: os.path.exists(path), sent)
            with open(path) as file:
                results = json.load(file)["results"]
            self.assertIn(f"interrupted; the {len(results)} results measured so far are in {path}",
                          errors)

    def test_a_comparison_keeps_its_samples_and_leaves_nobody_behind(self):
        # A peer that hangs, with a child of its own, beside a tutti of its own.
        path, peer = (os.path.join(self.folder, name) for name in ("compare.json", "peer_gloo"))
        tool = shutil.copy(TOOL, self.folder)
        with open(peer, "w") as file:
            file.write('#!/bin/sh\n: > "$0.started"\nsleep 1000 &\nsleep 1000\n')
        os.chmod(peer, 0o755)
        errors = self.interrupted(("bench", "compare", "-n", "2", "--collectives", "all_reduce", "-e",
                                   "64", "--budget", "5ms", "--json", path),
                                  lambda: os.path.exists(peer + ".started"), tool=tool)
        with open(path) as file:
            samples = json.load(file)["samples"]
        self.assertTrue(samples)
        self.assertIn(f"interrupted; the {len(samples)} samples measured so far are in {path}", errors)

    def test_a_calibration_keeps_the_machine_and_its_cells(self):
        path = os.path.join(self.folder, "here.json")
        errors = self.interrupted(("plan", "calibrate", "-n", "2", "-o", path, "--time", "60"),
                                  lambda: os.path.exists(path), signal.SIGTERM)
        self.assertIn("interrupted; the machine and the ", errors)
        self.assertIn(f" measured so far are in {path}", errors)
        self.assertEqual(os.listdir(self.own_folder("tmp")), [])
        done = self.tutti("plan", "collective", "all_reduce", "-n", "2", "--cluster", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.interrupted(("plan", "validate", "-n", "2", "--cluster", path),
                         lambda: len(pids_with(self.mark)) > 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
