"""Under mpirun, Open MPI's and MPICH's: ranks find each other, and a shell's loop starts a failed job again."""
import shutil
import unittest

import emulated_hosts
from scheduling import ALL_REDUCE, SchedulerTest

LAUNCHERS = {"Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], "MPICH": ["mpirun.mpich"]}
# As docs/tutorials/clusters.md says it.
LOOP = 'for attempt in 1 2 3; do "$@" && exit 0; done; exit 1'


class Mpirun(SchedulerTest):
    def words_of(self, library):
        words = LAUNCHERS[library]
        if not shutil.which(words[0]):
            self.skipTest(f"there is no {words[0]}")
        return words

    def sums(self, library):
        done = self.run_to_end(*self.words_of(library), "-n", 4, ALL_REDUCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_sums(done.stdout, 4)

    def goes_on(self, library):
        words = [*self.words_of(library), "-n", "4", *self.training(self.failing_once())]
        done = self.run_to_end("sh", "-c", LOOP, "sh", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_went_on(done.stdout)

    def test_open_mpi_numbers_the_ranks(self):
        self.sums("Open MPI")

    def test_mpich_numbers_the_ranks(self):
        self.sums("MPICH")

    def test_ranks_on_two_hosts_meet_where_they_are_told(self):
        words = self.words_of("Open MPI")
        why = emulated_hosts.unavailable()
        if why:
            self.skipTest(why)
        secret = self.write_secret()
        with emulated_hosts.Hosts(["a", "b"]) as hosts:
            done = self.run_to_end(*hosts.enter("a"), *words, "--mca", "plm_rsh_agent", hosts.remote_shell(),
                                   "--host", "a:2,b:2", "-x", "TUTTI_RENDEZVOUS=a:29400", "-x",
                                   f"TUTTI_SECRET_FILE={secret}", "-n", 4, ALL_REDUCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_sums(done.stdout, 4)

    def test_a_job_of_open_mpi_goes_on_when_it_is_started_again(self):
        self.goes_on("Open MPI")

    def test_a_job_of_mpich_goes_on_when_it_is_started_again(self):
        self.goes_on("MPICH")


if __name__ == "__main__":
    unittest.main(verbosity=2)
