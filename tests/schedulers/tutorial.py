"""What docs/tutorials/clusters.md types on two workstations, typed on two emulated hosts; and the files it names."""
import os
import re
import subprocess
import unittest

import emulated_hosts
from scheduling import LIMIT, PAGE, SchedulerTest, page_blocks, page_flags


class Files(unittest.TestCase):
    def test_all_that_the_page_names_are_there(self):
        with open(PAGE) as file:
            text = file.read()
        named = re.findall(r"\]\(([^)#]+)", text)
        named += ["../../" + path for path in re.findall(r"\b(deploy/[\w/.]+\w)", text)]
        self.assertGreater(len(named), 10)
        for path in named:
            self.assertTrue(os.path.exists(os.path.join(os.path.dirname(PAGE), path)), path)


class Workstations(SchedulerTest):
    def setUp(self):
        why = emulated_hosts.unavailable()
        if why:
            self.skipTest(why)
        super().setUp()
        self.hosts = emulated_hosts.Hosts(["a", "b"])
        self.addCleanup(self.hosts.close)
        for host in self.hosts.names:
            self.hosts.shape(host, 300)  # a cable's rate, and not what a busy machine has left
        ssh = self.hosts.remote_shell(self.environment())
        self.words = {"FLAGS": page_flags(), "PATH": f"{os.path.dirname(ssh)}:{self.environment()['PATH']}"}

    def start(self, host, line):
        return subprocess.Popen([*self.hosts.enter(host, self.folder), "sh", "-c", line], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=self.environment(**self.words))

    def test_every_line_of_the_page_runs(self):
        outputs = {}
        for block in page_blocks():
            lines = [(host, line) for host, line in block if host in "ab" and not line.startswith("export FLAGS=")]
            together = len({host for host, _ in lines}) > 1
            for group in [lines] if together else [[one] for one in lines]:
                running = [(line, self.start(host, line)) for host, line in group]
                for line, process in running:
                    outputs[line] = process.communicate(timeout=LIMIT)[0]
                    self.assertEqual(process.returncode, 0, f"{line}\n{outputs[line]}")
        (hostnames,) = [text for line, text in outputs.items() if line.endswith(" hostname")]
        self.assertEqual(sorted(hostnames.split()), ["a", "a", "b", "b"])
        self.assertIn("nothing has to be mended", "".join(outputs.values()))
        self.assertRegex("".join(outputs.values()), r"step 6/6 ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
