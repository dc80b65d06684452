"""Several hosts over a remote shell. Here a script stands for ssh and every host is this one: what it
runs is not its child's child only, but in a session of its own, as behind sshd."""
import json
import os
import signal
import unittest

from launching import LIMIT, LaunchTest, pids_with, wait_until

TELL = ("print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'],"
        " os.environ['NODE_RANK'])\n")
# Works elsewhere, knows none of our variables, and notes how it was called.
SHELL = """#!/bin/sh
echo "$$ $*" >> {folder}/calls
host=$1; shift; cd /
case $host in
  gone) echo 'cannot connect' >&2; exit 255;;
  poor) rm {folder}/program;;
  bare) exec sh -c 'exec /no/such/tutti run --leashed';;
esac
exec 3<&0
setsid env -i PATH=/usr/bin:/bin MARK=$MARK sh -c "$*" <&3 3<&- &
exec 3<&- </dev/null
wait $!
"""


class Hosts(LaunchTest):
    def setUp(self):
        super().setUp()
        self.shell = os.path.join(self.folder, "shell")
        with open(self.shell, "w") as file:
            file.write(SHELL.format(folder=self.folder))
        os.chmod(self.shell, 0o755)

    def words(self, hosts="a:2,b:2", *more):
        return ["run", "--hosts", hosts, "--ssh", self.shell, "--rendezvous", "127.0.0.1:0",
                "--grace", "0.3", *more]

    def calls(self):
        with open(os.path.join(self.folder, "calls")) as file:
            return file.read().splitlines()

    def test_ranks_are_numbered_host_by_host(self):
        done = self.tutti(*self.words("a:2,b:1", "--tee"), *self.script(TELL))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         ["[rank0] 0 3 0 0", "[rank1] 1 3 1 0", "[rank2] 2 3 0 1"])
        self.assertEqual(done.stderr, "")

    def test_a_file_names_the_hosts_and_n_takes_its_first_places(self):
        path = os.path.join(self.folder, "hosts")
        with open(path, "w") as file:
            file.write("# ours\na slots=2\nb:2\nc\n")
        done = self.tutti("run", "--hostfile", path, "-n", "3", "--ssh", self.shell,
                          "--rendezvous", "127.0.0.1:0", *self.script(TELL))
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 3 0 0", "1 3 1 0", "2 3 0 1"],
                         done.stderr)
        self.assertEqual([line.split()[1] for line in self.calls()], ["a", "b"])

    def test_a_failed_job_begins_anew_on_all_hosts(self):
        text = ("restart = os.environ['TUTTI_RESTART']\n"
                "print(RANK, restart)\n"
                "if restart == '0':\n"
                "  if RANK == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
                "  signal.pause()\n")
        path = os.path.join(self.folder, "report.json")
        done = self.tutti(*self.words("a:2,b:1", "--max-restarts", "2", "--json", path),
                          *self.script(text))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"^tutti run: rank 2 .* \(SIGKILL\) after .*; restart 1 of 2\n$")
        self.assertEqual(sorted(line for line in done.stdout.splitlines() if line.endswith(" 1")),
                         ["0 1", "1 1", "2 1"])
        with open(path) as file:
            report = json.load(file)
        self.assertEqual(report["restarts"][0]["first_failure"]["rank"], 2)
        self.assertEqual(report["first_failure"], None)

    def test_folder_words_and_variables_arrive_and_nothing_is_on_a_command_line(self):
        text = ("print(os.getcwd(), sys.argv[1:], os.environ.get('GIVEN'),"
                " os.environ.get('TUTTI_TIMEOUT'), os.environ.get('OTHER'))\n")
        words = ["a 'b", "$HOME\n", "-n"]
        done = self.tutti(*self.words("a:1,b:1", "-x", "GIVEN"), *self.script(text), *words,
                          GIVEN="g", OTHER="o", TUTTI_TIMEOUT="77")
        self.assertEqual(done.stdout, f"{os.getcwd()} {words} g 77 None\n" * 2, done.stderr)
        for call in self.calls():
            self.assertRegex(call, r"^\d+ [ab] exec '[^']*' run --leashed$")

    def test_a_failure_ends_all_with_one_verdict_and_its_code(self):
        text = ("if RANK == 3: print('no', file=sys.stderr); sys.exit(9)\nsignal.pause()\n")
        path = os.path.join(self.folder, "report.json")
        done = self.tutti(*self.words("a:2,b:2", "--json", path), *self.script(text))
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertEqual(done.stderr.count("tutti run:"), 1, done.stderr)
        self.assertIn("rank 3 ", done.stderr)
        with open(path) as file:
            report = json.load(file)
        self.assertEqual(report["exit_code"], 9)
        self.assertEqual(report["first_failure"]["rank"], 3)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1, 2, 3])
        self.assertEqual(report["ranks"][0]["signal"], "SIGTERM")

    def test_signals_reach_every_host(self):
        text = ("signal.signal(signal.SIGINT, lambda *_: (print('got it'), sys.exit(0)))\n"
                "print('ready')\nsignal.pause()\n")
        process = self.start(*self.words(), *self.script(text))
        self.assertEqual(self.read_lines(process, 4), ["ready"] * 4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, out), (0, "got it\n" * 4), err)
        self.assertIn("SIGINT", err)

    def test_rank_0_reads_standard_input_and_need_not(self):
        text = "if RANK == 0: data = sys.stdin.read(); print(len(data), data == 'line\\n' * 60000)\n"
        done = self.tutti(*self.words("a:1,b:1"), *self.script(text), input="line\n" * 60000)
        self.assertEqual((done.returncode, done.stdout), (0, "300000 True\n"), done.stderr)
        done = self.tutti(*self.words("a:1,b:1"), "true", input="line\n" * 60000)
        self.assertEqual(done.returncode, 0, done.stderr)

    def start_waiting(self):
        process = self.start(*self.words(), *self.script("print('ready')\nsignal.pause()\n"))
        self.assertEqual(self.read_lines(process, 4), ["ready"] * 4)
        return process

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        process = self.start_waiting()
        process.kill()
        process.wait(LIMIT)
        wait_until(lambda: not pids_with(self.mark), "no rank is left on any host")

    def test_a_connection_that_breaks_ends_all_and_is_named(self):
        process = self.start_waiting()
        shells = {line.split()[1]: int(line.split()[0]) for line in self.calls()}
        os.kill(shells["b"], signal.SIGKILL)
        _, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("lost host b", err)
        wait_until(lambda: not pids_with(self.mark), "no rank is left on any host")

    def test_hosts_that_cannot_be_used_are_named(self):
        for host, code, words in (("gone", 1, ("host gone", "code 255", "cannot connect")),
                                  ("bare", 127, ("host bare", "same path"))):
            for hosts in (f"{host}:1,b:1", f"a:1,{host}:1"):
                done = self.tutti(*self.words(hosts), "true")
                self.assertEqual(done.returncode, code, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_a_program_that_is_not_there_is_127(self):
        done = self.tutti(*self.words("a:1,b:1"), "no-such-program")
        self.assertEqual(done.returncode, 127, done.stderr)
        self.assertIn("no-such-program", done.stderr)

    def program(self):
        """Found by its name alone, at home."""
        with open(os.path.join(self.folder, "program"), "w") as file:
            file.write("#!/bin/sh\necho found\n")
        os.chmod(file.name, 0o755)
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def test_a_name_means_what_it_means_at_home(self):
        done = self.tutti(*self.words("a:1,b:1"), "program", **self.program())
        self.assertEqual((done.returncode, done.stdout), (0, "found\n" * 2), done.stderr)

    def test_a_program_that_one_host_lacks_is_told_with_the_host_and_nothing_else(self):
        done = self.tutti(*self.words("a:1,poor:1"), "program", **self.program())
        self.assertEqual(done.returncode, 127, done.stderr)
        self.assertRegex(done.stderr, r"^tutti run: host \S+: cannot find program 'program' in PATH[^\n]*\n$")

    def test_wrong_lists_are_named(self):
        for words, culprit in ((["--hosts", "a:0"], "a:0"), (["--hostfile", "/no/file"], "/no/file"),
                               (["--hosts", "a:1", "-n", "2"], "-n 2"),
                               (["--hosts", "a:1", "--nnodes", "2"], "--nnodes"),
                               (["--hosts", "a:1", "-x", "NOT_SET"], "NOT_SET")):
            done = self.tutti("run", *words, "true")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(culprit, done.stderr)
            self.assertIn("tutti run --help", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
