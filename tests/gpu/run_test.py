"""tests/gpu/run itself, on an emulated GPU: what it starts, how it judges, and what it leaves behind."""
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from gpu_run import suite, targets, testing  # noqa: E402

FAKE = os.environ["TUTTI_FAKE_CUDA"]
CONTROL = """#!/bin/bash
echo "$CUDA_MPS_PIPE_DIRECTORY control $*" >> {notes}
if [ "$1" = -d ]; then
  setsid bash -c 'exec -a nvidia-cuda-mps-control sleep 300' < /dev/null > /dev/null 2>&1 &
  echo $! > "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
  echo $! >> {notes}.pids
  sleep 0.1
else
  kill $(cat "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid")
fi
"""


def command_of(number):
    """Of a process; nothing where it has ended, though nobody may have asked how."""
    try:
        return Path(f"/proc/{number}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return ""


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *words, **environment):
        logs = [] if words[0] == "build" else ["--logs", self.folder / "logs"]
        return subprocess.run([sys.executable, HERE / "run", *words, *logs], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LD_LIBRARY_PATH": FAKE, **environment}, check=False)

    def test_tests_pass_and_have_a_line_each(self):
        done = self.call("test", "--only", "messages/host", "--only", "kernels/graphs")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^messages/host +passed +[\d.]+ s  10 tests$")
        self.assertRegex(done.stdout, r"(?m)^kernels/graphs +passed ")
        self.assertIn("2 passed, 0 failed, 0 skipped", done.stdout)

    def test_no_gpu_is_a_skip(self):
        for command in ("test", "bench"):
            done = self.call(command, FAKE_CUDA_DEVICES="0")
            self.assertEqual((done.returncode, done.stdout), (77, "skipped: the CUDA driver sees no GPU\n"))

    def test_what_does_not_pass_fails_the_run(self):
        done = self.call("test", "--only", "messages/one", FAKE_CUDA_NO_IPC="1", TUTTI_CUDA_REACH="ipc",
                         TUTTI_CUDA_MEET="kernel", FAKE_CUDA_BREAK_AFTER="300")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^messages/one connection +failed .*World/")
        self.assertEqual(self.call("test", "--only", "nonsense").returncode, 1)

    def test_a_run_without_time_is_no_success(self):
        done = self.call("test", "--only", "messages/host", "--budget", "0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no time was left", done.stdout)

    def test_every_daemon_is_quit(self):
        control, notes = self.folder / "nvidia-cuda-mps-control", self.folder / "notes"
        control.write_text(CONTROL.format(notes=notes), encoding="utf-8")
        control.chmod(stat.S_IRWXU)
        done = self.call("test", "--mps", "--only", "kernels/graphs", "--only", "faults/kernel", FAKE_CUDA_MPS="1",
                         PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = [line.split() for line in notes.read_text(encoding="utf-8").splitlines()]
        self.assertEqual([words[2:] for words in told], [["-d"], [], ["-d"], []])
        self.assertEqual(len({words[0] for words in told}), 2, "each has a pipe directory of its own")
        for number in (self.folder / "notes.pids").read_text(encoding="utf-8").split():
            self.assertNotIn("mps-control", command_of(number))
        self.assertFalse(any(os.path.exists(words[0]) for words in told))

    def test_a_table_tells_what_was_missed(self):
        done = self.call("bench", "--quick", "--only", "all_reduce", "--only", "host in start + wait, torch")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^all_reduce 4 KiB, n = 2 +≤ 293 µs +[\d.e+]+ µs  (met|missed)$")
        self.assertRegex(done.stdout, r"(?m)^host in start \+ wait, torch, n = 2 +≤ 15 µs +–  missed: ")
        self.assertRegex(done.stdout, r"copy ceiling, 2 ranks at once: \d+")

    def test_programs_are_asked_for_when_they_are_not_there(self):
        done = self.call("test", TUTTI_GPU_BUILD=str(self.folder))
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no tests/gpu_kernels", done.stderr)
        done = self.call("build", "--torch-only", TUTTI_GPU_BUILD=str(self.folder))
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no libtutti in", done.stderr)


class Judging(unittest.TestCase):
    TEST = suite.Test("any", ["true"])

    def word(self, code, text, test=TEST):
        return testing.judge(test, code, 1, text, 10).word

    def test_words(self):
        self.assertEqual(self.word(0, ""), "passed")
        self.assertEqual(self.word(1, ""), "failed")
        self.assertEqual(self.word(77, "skipped: no GPU"), "skipped")
        self.assertEqual(self.word(None, ""), "failed")
        self.assertEqual(self.word(0, "[==========] 0 tests from 0 test suites ran. (0 ms total)"), "failed")
        checker = suite.Test("any", ["true"], skipped_if="not supported")
        self.assertEqual(self.word(1, "Device not supported", checker), "skipped")
        self.assertEqual(self.word(9, "not supported\n========= ERROR SUMMARY: 1 error", checker), "failed")

    def test_targets(self):
        self.assertTrue(targets.Row("", (), None, "%", least=80).is_met(80))
        self.assertFalse(targets.Row("", (), None, "%", least=80).is_met(79.9))
        self.assertFalse(targets.Row("", (), None, "µs", most=15).is_met(15.1))
        self.assertTrue(targets.Row("", (), None, "%").is_met(1))

    def test_kernels_meet_across_processes_under_mps_alone(self):
        for mps in (False, True):
            names = [test.name for test in suite.every_test(mps, None)]
            self.assertEqual(len(names), len(set(names)))
            self.assertEqual("collectives/kernel" in names, mps)
            self.assertIn("collectives/kernel, threads", names)


if __name__ == "__main__":
    unittest.main()
