"""What becomes of what ranks print: prefixes, whole lines, log files."""
import os
import stat
import pty
import subprocess
import unittest

from launching import LIMIT, TOOL, LaunchTest


class Output(LaunchTest):
    def test_lines_are_plain_when_not_on_a_terminal(self):
        done = self.tutti("run", "-n", "2",
                          *self.script("print('out'); print('err', file=sys.stderr)"))
        self.assertEqual((done.stdout, done.stderr), ("out\nout\n", "err\nerr\n"))

    def test_tee_puts_the_rank_before_each_line(self):
        done = self.tutti("run", "-n", "3", "--tee",
                          *self.script("print('out'); print('err', file=sys.stderr)"))
        self.assertEqual(sorted(done.stdout.splitlines()), [f"[rank{r}] out" for r in range(3)])
        self.assertEqual(sorted(done.stderr.splitlines()), [f"[rank{r}] err" for r in range(3)])

    def test_a_terminal_gets_prefixes_without_being_asked(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        done = subprocess.run([TOOL, "run", "-n", "2", *self.script("print('hello')")],
                              stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
                              timeout=LIMIT, env=self.environment())
        os.close(theirs)
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = os.read(ours, 4096).decode().replace("\r", "").splitlines()
        self.assertEqual(sorted(shown), ["[rank0] hello", "[rank1] hello"])

    def test_many_lines_of_many_ranks_are_never_torn(self):
        text = "for i in range(300): print(f'<{RANK}:{i}:' + 'x' * (i * 37 % 5000) + '>')"
        done = self.tutti("run", "-n", "4", "--tee", *self.script(text))
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 1200)
        seen = {rank: 0 for rank in range(4)}
        for line in lines:
            rank = int(line[5])
            i = seen[rank]
            self.assertEqual(line, f"[rank{rank}] <{rank}:{i}:" + "x" * (i * 37 % 5000) + ">")
            seen[rank] += 1

    def test_lines_written_in_pieces_come_out_whole(self):
        text = ("for i in range(50):\n"
                "  for piece in ('ab', 'cd', 'ef\\n'): os.write(1, piece.encode())")
        done = self.tutti("run", "-n", "4", *self.script(text))
        self.assertEqual(done.stdout, "abcdef\n" * 200)

    def test_a_last_line_without_newline_is_not_lost(self):
        done = self.tutti("run", "-n", "2", "--tee", *self.script("os.write(1, b'no newline')"))
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[rank0] no newline", "[rank1] no newline"])

    def test_stdout_and_stderr_on_one_pipe_keep_their_lines_apart(self):
        text = "for i in range(200): print('o' * 3000); print('e' * 3000, file=sys.stderr)"
        done = subprocess.run([TOOL, "run", "-n", "2", *self.script(text)], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT, env=self.environment())
        self.assertEqual({line: done.stdout.splitlines().count(line)
                          for line in set(done.stdout.splitlines())},
                         {"o" * 3000: 400, "e" * 3000: 400})

    def test_log_dir_gets_one_file_per_rank_and_stream(self):
        logs = os.path.join(self.folder, "deep", "logs")
        done = self.tutti("run", "-n", "2", "--log-dir", logs,
                          *self.script("print('out', RANK); print('err', RANK, file=sys.stderr)"))
        self.assertEqual(sorted(done.stdout.splitlines()), ["out 0", "out 1"])
        self.assertEqual(sorted(os.listdir(logs)),
                         ["rank0.err", "rank0.out", "rank1.err", "rank1.out"])
        for rank in range(2):
            for word in ("out", "err"):
                with open(os.path.join(logs, f"rank{rank}.{word}")) as file:
                    self.assertEqual(file.read(), f"{word} {rank}\n")

    def test_a_log_that_is_cut_is_an_error(self):
        logs = os.path.join(self.folder, "logs")
        os.mkdir(logs)
        try:  # a link to it would be refused
            os.mknod(os.path.join(logs, "rank1.out"), stat.S_IFCHR | 0o600, os.makedev(1, 7))
        except PermissionError:
            self.skipTest("only root can make a device that is full")
        done = self.tutti("run", "-n", "2", "--log-dir", logs, *self.script("print('out', RANK)"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["out 0", "out 1"], "the job goes on")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in ("rank1.out", "No space left", "cut"):
            self.assertIn(word, done.stderr)

    def test_output_on_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([TOOL, "run", "-n", "2", *self.script("print('out')")],
                                  stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                  timeout=LIMIT, text=True, env=self.environment())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard output: No space left", done.stderr)

    def test_a_reader_that_goes_away_ends_the_ranks_that_write(self):
        process = self.start("run", "-n", "2", "--grace", "0.2",
                             *self.script("signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
                                          "while True: print('y' * 100)"))
        self.read_lines(process, 1)
        process.stdout.close()
        self.assertEqual(process.wait(LIMIT), 141)
        self.assertEqual(process.stderr.read(), "", "as any program at the head of a pipe")

    def test_a_reader_that_stops_does_not_stop_the_launcher(self):
        # The pipe is full and nobody reads; the launcher must still hear the signal.
        process = self.start("run", "-n", "2", *self.script("while True: print('y' * 1000)"))
        self.read_lines(process, 5)
        process.terminate()
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 143)
        # Cut off: where this test began to read, and what each rank was writing when it ended.
        self.assertLessEqual(sum(line != "y" * 1000 for line in out.splitlines()), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
