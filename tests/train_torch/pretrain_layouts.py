"""A model that is cut along several axes: the losses of one process, any layout from any other's checkpoint, and a
rank that dies, named by its place."""
import os
import subprocess
import sys
import unittest

from pretraining import LIMIT, PROGRAM, TOOL, PretrainTest

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/layouts")
MODEL = ("--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1 "
         "--global-batch-size 8 --lr 3e-3 --print-weight-hash").split()


class Layouts(PretrainTest):
    def bench(self, *words):
        done = subprocess.run([sys.executable, BENCH, "--tool", TOOL, "--program", PROGRAM, *words], capture_output=True,
                              text=True, timeout=2 * LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("all as in one process", done.stdout)

    def test_a_cover_of_all_layouts_has_the_losses_of_one_process(self):
        self.bench("--pairwise", "--steps", "4")

    def test_a_run_is_handed_from_layout_to_layout(self):
        self.bench("--resume", "--most", "4")

    def test_an_embedding_that_is_tied_over_stages_learns_as_in_one_process(self):
        steps = ("--train-iters", "4")
        alone = self.train(0, *steps, model=MODEL)
        run = self.train(2, *steps, "--pipeline-model-parallel-size", "2", model=MODEL)
        for name in ("loss", "grad_norm"):
            self.assert_close([step[name] for step in run.steps], [step[name] for step in alone.steps], 1e-5)
        memory = next(line for line in run.log if line.get("event") == "memory")
        self.assertIsNone(memory["predicted"]["weights"])  # the arithmetic there is of whole replicas
        self.assertNotIn("nan", run.out)

    def test_a_killed_rank_is_named_by_its_place_on_every_axis(self):
        for flags, place in (("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", "pp 1, dp 0, cp 0, tp 1"),
                             ("--context-parallel-size 2", "pp 0, dp 1, cp 1, tp 0")):
            run = self.start(4, *flags.split(), "--die-at", "2:3", "--train-iters", "4", model=MODEL)
            self.assertEqual(run.code, 137, run.text)
            self.assertRegex(run.err, rf"tutti run: rank 3 \({place}; host .*was killed by signal 9")
            for rank in range(3):
                line = next(line for line in run.err.splitlines() if line.startswith(f"pretrain_gpt: rank {rank}: "))
                self.assertIn(f"({place}; host ", line)

    def test_what_does_not_fit_is_refused_by_its_flag(self):
        for ranks, flags, said in ((0, "--pipeline-model-parallel-size 3", "--pipeline-model-parallel-size 3"),
                                   (3, "--tensor-model-parallel-size 3", "--num-attention-heads 4"),
                                   (2, "--context-parallel-size 2 --cp-comm-type a2a+p2p",
                                    "--hierarchical-context-parallel-sizes"),
                                   (2, "--pipeline-model-parallel-size 2 --zero-stage 3", "--zero-stage 3")):
            run = self.start(ranks, *flags.split(), "--train-iters", "1", model=MODEL)
            self.assertEqual((run.code, run.out), (2, ""), run.text)
            self.assertIn(said, run.err)


if __name__ == "__main__":
    unittest.main()
