"""A Slurm cluster of two nodes, run for real: srun, sbatch, and a job that is requeued after a failure."""
import os
import shutil
import unittest

import slurm_cluster
from scheduling import ALL_REDUCE, LIMIT, SOURCE, SchedulerTest, page_blocks, page_flags

SCRIPT = os.path.join(SOURCE, "deploy", "slurm", "train.sbatch")


class Slurm(SchedulerTest):
    @classmethod
    def setUpClass(cls):
        why = slurm_cluster.unavailable()
        if why:
            raise unittest.SkipTest(why)

    def setUp(self):
        super().setUp()
        self.cluster = slurm_cluster.SlurmCluster(self.folder, self.environment(), LIMIT)
        self.addCleanup(self.cluster.close)

        shutil.copy(SCRIPT, self.folder)

    def submitted(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()[-1]

    def test_what_the_page_types_trains_and_a_failed_job_is_requeued_and_goes_on(self):
        failing = os.path.dirname(self.failing_once())
        words = {"FLAGS": page_flags(), "PATH": f"{failing}:{self.cluster.environment['PATH']}"}
        lines = [line for block in page_blocks() for host, line in block if host == "login"]
        jobs = []
        for line in lines:
            done = self.cluster.ask("sh", "-c", line, **words)
            self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
            if line.startswith("sbatch"):
                jobs.append(self.submitted(done))
        self.assertEqual(len(jobs), 1)
        self.check_srun()  # while the failed job waits for its second turn
        state, output = self.cluster.finish(jobs[0])
        self.assertEqual(state, "COMPLETED", output)
        self.assertIn("restart 1 of 3", output)
        self.check_went_on(output)
        self.check_wrong_words()

    def check_srun(self):
        meeting = {"TUTTI_RENDEZVOUS": "node1:29400", "TUTTI_SECRET_FILE": f"{self.folder}/job.key"}
        done = self.cluster.ask("srun", "--mpi=none", "-n", "4", ALL_REDUCE, **meeting)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_sums(done.stdout, 4)
        done = self.cluster.ask("srun", "--mpi=none", "-n", "4", ALL_REDUCE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("TUTTI_RENDEZVOUS", done.stderr)

    def check_wrong_words(self):
        """They would fail again: the job is not requeued."""
        job = self.submitted(self.cluster.ask("sbatch", "-N", "2", "--ntasks-per-node", "2", "train.sbatch",
                                              *self.training(), "--no-such-flag"))
        state, output = self.cluster.finish(job)
        self.assertEqual(state, "FAILED", output)
        self.assertNotIn("restart", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
