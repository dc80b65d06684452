"""Two agents of torchrun on two emulated hosts, which start their ranks again after a failure."""
import importlib.util
import os
import subprocess
import sys
import unittest

import emulated_hosts
from scheduling import LIMIT, SchedulerTest

AGENT = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=2", "--max_restarts=1",
         "--monitor_interval=0.1", "--rdzv_backend=c10d", "--rdzv_endpoint=a:29500", "--rdzv_id=1",
         # torch 1.13 on Python 3.11 does not know its own default for redirection.
         "-r", "1", "-t", "1"]


class Torchrun(SchedulerTest):
    @classmethod
    def setUpClass(cls):
        why = emulated_hosts.unavailable()
        if why or not importlib.util.find_spec("torch"):
            raise unittest.SkipTest(why or "torch is not installed")

    def test_two_agents_start_a_failed_job_again_and_it_goes_on(self):
        environment = self.environment(TUTTI_RENDEZVOUS="a:29400", TUTTI_SECRET_FILE=self.write_secret())
        program = self.training(self.failing_once())
        with emulated_hosts.Hosts(["a", "b"]) as hosts:
            agents = [subprocess.Popen(
                [*hosts.enter(host), *AGENT, "--log_dir", os.path.join(self.folder, "logs-" + host), "--no_python",
                 *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=environment) for host in hosts.names]
            ended = [agent.communicate(timeout=LIMIT) for agent in agents]
        for agent, (_, errors) in zip(agents, ended):
            self.assertEqual(agent.returncode, 0, errors)
        self.check_went_on("".join(output for output, _ in ended))


if __name__ == "__main__":
    unittest.main(verbosity=2)
