"""What a rank finds when `tutti run` has started it: variables, secret, ports, standard input."""
import json
import os
import pty
import subprocess
import unittest

from launching import LIMIT, PROGRAMS, TOOL, LaunchTest

TELL = """
import json
names = sys.argv[1:]
print(json.dumps({name: os.environ.get(name) for name in names}))
"""

SECRET = """
import hashlib
fd = int(os.environ['TUTTI_SECRET_FD'])
secret = os.pread(fd, 4096, 0)
again = os.pread(fd, 4096, 0)
seen = b''
for pid in ('self', str(os.getppid())):
    for name in ('cmdline', 'environ'):
        seen += open(f'/proc/{pid}/{name}', 'rb').read()
leaks = [form for form in (secret, secret.hex().encode(), secret[:8]) if form in seen]
print(len(secret), secret == again, len(leaks), hashlib.sha256(secret).hexdigest())
try:
    os.pwrite(fd, b'x', 0)
    print('writable')
except OSError:
    print('sealed')
"""

MEET = """
port = int(os.environ['MASTER_PORT'])
address = os.environ['MASTER_ADDR']
if RANK == 0:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(('', port))
    server.listen()
    peer, _ = server.accept()
    print(peer.recv(100).decode())
else:
    while True:
        try:
            socket.create_connection((address, port)).sendall(b'hello master')
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
"""


class Environment(LaunchTest):
    def tell(self, *words, names, **more):
        done = self.tutti("run", *words, *self.script(TELL), *names, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_every_rank_gets_its_own_numbers_and_the_same_job(self):
        rows = self.tell("-n", "3", names=["TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK",
                                           "TUTTI_LOCAL_SIZE", "TUTTI_STORE", "TUTTI_JOB"])
        rows.sort(key=lambda row: row["TUTTI_RANK"])
        self.assertEqual([row["TUTTI_RANK"] for row in rows], ["0", "1", "2"])
        self.assertEqual([row["TUTTI_LOCAL_RANK"] for row in rows], ["0", "1", "2"])
        self.assertEqual({row["TUTTI_SIZE"] for row in rows}, {"3"})
        self.assertEqual({row["TUTTI_LOCAL_SIZE"] for row in rows}, {"3"})
        self.assertEqual(len({(row["TUTTI_STORE"], row["TUTTI_JOB"]) for row in rows}), 1)
        self.assertRegex(rows[0]["TUTTI_STORE"], r"^127\.0\.0\.1:[1-9][0-9]*$")

    def test_torchrun_variables_are_set(self):
        names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
                 "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                 "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                 "TORCHELASTIC_USE_AGENT_STORE"]
        rows = self.tell("-n", "2", names=names, TORCHELASTIC_USE_AGENT_STORE="True")
        rows.sort(key=lambda row: row["RANK"])
        for rank, row in enumerate(rows):
            for name in ("RANK", "LOCAL_RANK", "ROLE_RANK"):
                self.assertEqual(row[name], str(rank))
            for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"):
                self.assertEqual(row[name], "2")
            for name in ("GROUP_RANK", "NODE_RANK", "TORCHELASTIC_RESTART_COUNT"):
                self.assertEqual(row[name], "0")
            self.assertEqual(row["MASTER_ADDR"], "127.0.0.1")
            self.assertIsNone(row["TORCHELASTIC_USE_AGENT_STORE"])
            self.assertTrue(row["TORCHELASTIC_RUN_ID"])

    def test_an_outer_jobs_variables_are_replaced_and_others_kept(self):
        rows = self.tell("-n", "1", names=["RANK", "TUTTI_RANK", "TUTTI_SECRET_FILE", "KEPT"],
                         RANK="7", TUTTI_RANK="7", TUTTI_SECRET_FILE="/nowhere", KEPT="yes")
        self.assertEqual(rows, [{"RANK": "0", "TUTTI_RANK": "0", "TUTTI_SECRET_FILE": None,
                                 "KEPT": "yes"}])

    def test_the_secret_comes_by_descriptor_and_is_nowhere_else(self):
        done = self.tutti("run", "-n", "2", *self.script(SECRET))
        self.assertEqual(done.returncode, 0, done.stderr)
        words = [line.split() for line in done.stdout.splitlines() if line != "sealed"]
        self.assertEqual(done.stdout.count("sealed"), 2)
        self.assertEqual([row[:3] for row in words], [["32", "True", "0"]] * 2)
        self.assertEqual(words[0][3], words[1][3], "both ranks have the same secret")

    def test_a_job_runs_under_tls_and_says_so_when_half_of_it_does_not(self):
        join = (os.path.join(PROGRAMS, "join_or_leave"), "nobody", "0")
        tls = {"TUTTI_TLS": "1", "TUTTI_TRANSPORT": "tcp", "TUTTI_TUNING": "fixed"}
        done = self.tutti("run", "-n", "2", *join, **tls)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.tutti("run", "-n", "2", "env", "-u", "TUTTI_TLS", *join, **tls)
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("the peer speaks TLS and this side does not", done.stderr)

    def test_two_jobs_have_different_secrets(self):
        program = self.script(SECRET)
        one, two = (self.tutti("run", *program).stdout for _ in range(2))
        self.assertNotEqual(one, two)

    def test_a_torch_like_program_can_listen_on_master_port(self):
        done = self.tutti("run", "-n", "2", *self.script(MEET))
        self.assertEqual((done.returncode, done.stdout), (0, "hello master\n"), done.stderr)

    def test_ranks_have_no_descriptors_but_the_ones_they_need(self):
        # The descriptor of the listing itself is gone by the time of the second look.
        text = ("fds = os.listdir('/proc/self/fd')\n"
                "print(sorted(int(fd) for fd in fds if os.path.lexists('/proc/self/fd/' + fd)))")
        needed = "print(sorted([0, 1, 2, int(os.environ['TUTTI_SECRET_FD'])," \
                 " int(os.environ['TUTTI_BOARD_FD'])]))"
        done = self.tutti("run", "-n", "2", *self.script(text + "\n" + needed))
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 4, done.stderr)
        self.assertEqual(len(set(lines)), 1, lines)

    def test_signals_are_not_blocked_or_ignored_in_ranks(self):
        # Python ignores two of them itself.
        text = ("signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
                "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
                "lines = open('/proc/self/status').readlines()\n"
                "print([line for line in lines if line[:6] in ('SigBlk', 'SigIgn')])\n")
        alone = self.tutti("run", *self.script(text))
        self.assertEqual(alone.stdout.count("0000000000000000"), 2, alone.stdout)


class StandardInput(LaunchTest):
    def test_rank_0_reads_standard_input_and_the_others_nothing(self):
        text = "print(RANK, repr(sys.stdin.read()))"
        done = self.tutti("run", "-n", "3", *self.script(text), input="a\nb\n")
        self.assertEqual(sorted(done.stdout.splitlines()), [r"0 'a\nb\n'", "1 ''", "2 ''"])

    def test_a_terminal_is_passed_on_to_rank_0(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        program = self.script("print('got', sys.stdin.readline().strip())")
        process = subprocess.Popen([TOOL, "run", "-n", "2", *program], stdin=theirs,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True, env=self.environment())
        os.close(theirs)
        os.write(ours, b"typed\n")
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["got ", "got typed"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
