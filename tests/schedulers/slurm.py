"""A Slurm cluster of two nodes, run for real: srun, sbatch, and a job that is requeued after a failure."""
import os
import unittest

import slurm_cluster
from scheduling import ALL_REDUCE, LIMIT, SOURCE, SchedulerTest

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

    def submit(self, *words):
        done = self.cluster.ask("sbatch", "--parsable", "-N", "2", "--ntasks-per-node", "2", SCRIPT, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_srun_and_sbatch_give_every_task_its_rank_and_a_failed_job_goes_on(self):
        failing = self.submit(*self.training(self.failing_once()))
        state, output = self.cluster.finish(failing)
        self.assertEqual(state, "COMPLETED", output)
        self.assertIn("restart 1 of 3", output)
        self.check_went_on(output)

        done = self.cluster.ask("srun", "--mpi=none", "-N", "1", "-n", "2", ALL_REDUCE)  # needs no setting
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_sums(done.stdout, 2)
        done = self.cluster.ask("srun", "--mpi=none", "-n", "4", ALL_REDUCE,
                                TUTTI_RENDEZVOUS="node1:29400", TUTTI_SECRET_FILE=f"{self.folder}/job.key")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_sums(done.stdout, 4)
        done = self.cluster.ask("srun", "--mpi=none", "-n", "4", ALL_REDUCE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("TUTTI_RENDEZVOUS", done.stderr)

        wrong = self.submit(*self.training(), "--no-such-flag")
        state, output = self.cluster.finish(wrong)
        self.assertEqual(state, "FAILED", output)
        self.assertNotIn("restart", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
