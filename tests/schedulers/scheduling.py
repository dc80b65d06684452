"""What the tests of schedulers share: the programs they start, and how a run shows that it went on."""
import os
import re
import shutil
import subprocess

from launching import LaunchTest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
BIN = os.path.dirname(os.environ["TUTTI_TOOL"])
ALL_REDUCE = os.path.join(BIN, "examples", "all_reduce")
PRETRAIN = os.path.join(BIN, "pretrain_gpt")
LIMIT = 120  # seconds; only against hangs
UNDISTURBED = {}  # by number of ranks: the last loss of such a run
# Small enough to take no time beside what a scheduler takes.
QUICK = {"--num-layers": 1, "--hidden-size": 16, "--num-attention-heads": 2, "--seq-length": 16,
         "--micro-batch-size": 1, "--global-batch-size": 4, "--lr": "1e-3", "--train-iters": 6, "--save-interval": 2}
MODEL = ["--data-path", "/usr/share/common-licenses/GPL-3", "--load", "latest",
         *(str(word) for pair in QUICK.items() for word in pair)]
PAGE = os.path.join(SOURCE, "docs", "tutorials", "clusters.md")


def page_blocks():
    """What the page types, by block: lists of (host, command)."""
    with open(PAGE) as file:
        blocks = re.split(r"\n\n+", file.read())
    found = [re.findall(r"^ {4}(\w+)\$ (.*)$", block, re.MULTILINE) for block in blocks]
    return [block for block in found if block]


def page_flags():
    """The page's FLAGS, for a smaller model."""
    exports = [line for block in page_blocks() for _, line in block if line.startswith("export FLAGS=")]
    script = "\n".join([*exports, 'echo "$FLAGS"'])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    flags = done.stdout.strip()
    for flag, value in QUICK.items():
        flags, count = re.subn(rf"{flag} \S+", f"{flag} {value}", flags)
        assert count == 1, (flag, flags)
    return flags


class SchedulerTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.save = os.path.join(self.folder, "checkpoints")

    def environment(self, **more):
        """Not that of a launcher which this test runs under."""
        clean = {name: value for name, value in super().environment().items()
                 if not name.startswith(("SLURM_", "OMPI_", "PMI", "TORCHELASTIC_"))
                 and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        return {**clean, "OMP_NUM_THREADS": "1", "TUTTI_TUNING": "fixed", "PATH": f"{BIN}:{clean['PATH']}", **more}

    def run_to_end(self, *words, **more):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, env=self.environment(**more))

    def training(self, program=PRETRAIN):
        return [program, *MODEL, "--save", self.save]

    def failing_once(self, save=None, first_start="--die-at 4:1"):
        """A pretrain_gpt that loses rank 1 in step 4, or has other flags, unless it goes on from a checkpoint."""
        path = os.path.join(self.folder, "bin", "pretrain_gpt")
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n[ -e {save or self.save}/iter_0000002 ] || set -- \"$@\" {first_start}\n"
                       f"exec {PRETRAIN} \"$@\"\n")
        os.chmod(path, 0o755)
        return path

    def write_secret(self):
        path = os.path.join(self.folder, "job.key")
        with open(path, "wb") as file:
            file.write(os.urandom(32))
        os.chmod(path, 0o600)
        return path

    def check_sums(self, output, ranks):
        total = ranks * (ranks + 1) // 2
        lines = [line for line in output.splitlines() if "after  all_reduce" in line]
        wanted = [f"rank {rank} after  all_reduce: [{', '.join([str(total)] * 5)}]" for rank in range(ranks)]
        self.assertEqual(sorted(line[line.index("rank"):] for line in lines), wanted, output)

    def check_went_on(self, output, ranks=4):
        """It began again from the checkpoint of step 2, and came to where an undisturbed run comes to. (Not by its
        bits: hosts have a say in which algorithm is chosen.)"""
        self.assertRegex(output, r"resumed from \S+: 2 of 6 steps are done")
        (loss,) = self.losses_in(output)
        self.assertAlmostEqual(loss, self.undisturbed_loss(ranks), delta=1e-4)

    def undisturbed_loss(self, ranks):
        if ranks not in UNDISTURBED:
            shutil.rmtree(self.save)
            done = self.run_to_end(os.environ["TUTTI_TOOL"], "run", "-n", ranks, *self.training())
            self.assertEqual(done.returncode, 0, done.stderr)
            (UNDISTURBED[ranks],) = self.losses_in(done.stdout)
        return UNDISTURBED[ranks]

    @staticmethod
    def losses_in(output):
        """Those that runs which came to their end have ended with."""
        return [float(loss) for loss in re.findall(r"^.*\bloss \S+ -> (\S+);", output, re.MULTILINE)]
