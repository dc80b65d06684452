#!/usr/bin/python3
"""A training step by tutti_torch.DataParallel beside PyTorch's DistributedDataParallel with gloo.

The same module, data, AdamW and number of threads, in the same processes, taking turns of a few steps; DDP with its default
buckets and with small ones, whichever is faster in a round. On this host, and on four emulated ones (network namespaces, 1
Gbit/s by tbf; needs root). A row's time is the median over the rounds, its ratio the median of the rounds' ratios.

  bench/torch_train_compare.py --json train.json                  every case, about five minutes
  bench/torch_train_compare.py --cases host-small --rounds 3      one case, half a minute
  bench/torch_train_compare.py --list                             what cases there are

ratio: to the faster DDP; default: to DDP with its default buckets. compute: forward, backward and torch's update alone.
exposed: step less compute; reported: what model.report() says. memory: what each adds in all ranks together (Pss). Where
communication takes longer than compute the target is 1.3, elsewhere 1. Ends with 0 when every target is reached, 1 when one
is missed, 2 when it cannot begin, 3 when a run failed.
"""
import argparse
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from overlap_hosts import Hosts, RunFailed  # noqa: E402  (beside this file)

BENCH = Path(__file__).resolve().parent
LIMIT_S = 280
PORT = 29600
DEFAULT = "ddp 25.0"  # the buckets that DDP takes by itself


def timed(compute_ms):
    """32 MiB of gradients; layers sleep as if an accelerator computed, backward twice as long as forward."""
    return ["--model", "timed", "--layers", 32, "--layer-bytes", 1 << 20, "--forward-ms", compute_ms / 3,
            "--backward-ms", 2 * compute_ms / 3]


def mlp(width, layers, tokens):
    return ["--model", "mlp", "--width", width, "--layers", layers, "--tokens", tokens]


# name: ranks, Mbit/s of each host (None: all on this one), model, whether communication is the longer part
CASES = {
    "host-tiny": (2, None, mlp(64, 12, 16), True),         # 1.6 MB of gradients in 72 tensors: latency
    "host-large": (2, None, mlp(384, 6, 512), False),      # 28 MB of gradients, compute prevails
    "host-small": (2, None, mlp(768, 6, 16), True),        # 113 MB of gradients, next to no compute
    "hosts-50": (4, 1000, timed(900), False),
    "hosts-100": (4, 1000, timed(450), False),
    "hosts-150": (4, 1000, timed(300), True),
    "hosts-real": (4, 1000, mlp(256, 6, 32), True),        # 13 MB of gradients, real products on shared cores
}


class Case:
    def __init__(self, name, hosts, options, folder):
        self.ranks, _, self.model, self.is_bound = CASES[name]
        self.hosts, self.options, self.folder = hosts, options, Path(folder)
        self.secret = self.folder / "secret"
        self.secret.touch(0o600)
        self.secret.write_bytes(os.urandom(32))

    def run(self):
        """What rank 0 has written."""
        out = self.folder / "out.json"
        program = [sys.executable, BENCH / "torch_train_rank.py", *self.model, "--steps", self.options.steps,
                   "--rounds", self.options.rounds, "--out", out]
        self.hosts.run_everywhere(lambda rank: [str(word) for word in program], self.environment, LIMIT_S)
        return json.loads(out.read_text(encoding="utf-8"))

    def environment(self, rank):
        modules = [str(BENCH.parent / "build" / "python"), os.environ.get("PYTHONPATH", "")]
        words = {"RANK": rank, "WORLD_SIZE": self.ranks, "MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": PORT,
                 "GLOO_SOCKET_IFNAME": "cable" if self.hosts.separate else "lo", "OMP_NUM_THREADS": 1,
                 "OPENBLAS_NUM_THREADS": 1, "PYTHONPATH": os.pathsep.join(filter(None, modules)),
                 "TUTTI_SECRET_FILE": self.secret}
        if self.hosts.separate:
            words["TUTTI_SPIN"] = 0  # a rank sees all cores of its host, and cannot know that the hosts share them
        return {name: str(value) for name, value in words.items()}


def measure(name, options):
    """The case's row."""
    ranks, rate, _, is_bound = CASES[name]
    with Hosts(ranks, rate) as hosts, tempfile.TemporaryDirectory(prefix="train_compare_") as folder:
        told = Case(name, hosts, options, folder).run()
    rounds = told["rounds"]

    fastest = [min((who for who in turn if who.startswith("ddp")), key=lambda who: turn[who]["step_s"]) for turn in rounds]
    turns = {"compute": ["alone"] * len(rounds), "tutti": ["tutti"] * len(rounds), "ddp": fastest,
             "default": [DEFAULT] * len(rounds)}

    def times(column):
        return [turn[who]["step_s"] for turn, who in zip(rounds, turns[column])]

    def times_faster(column):
        return statistics.median(theirs / ours for theirs, ours in zip(times(column), times("tutti")))

    row = {"case": name, "ranks": ranks, "bound": is_bound, "target": 1.3 if is_bound else 1.0,
           "ratio": times_faster("ddp"), "default_ratio": times_faster("default"),
           "told_exposed_s": statistics.median(turn["tutti"]["exposed_s"] for turn in rounds), "rounds": rounds}
    for column in ("compute", "tutti", "ddp"):
        row[f"{column}_s"] = statistics.median(times(column))
        row[f"{column}_memory"] = statistics.median(told["memory"][who] for who in turns[column])
        row[f"{column}_exposed_s"] = statistics.median(
            max(0.0, step - compute) for step, compute in zip(times(column), times("compute")))
    row["reached"] = row["ratio"] >= row["target"]
    return row


def print_row(row, with_head):
    if with_head:
        print_head()
    ms = [1e3 * row[key] for key in ("compute_s", "tutti_s", "ddp_s")]
    exposed = [1e3 * row[key] for key in ("tutti_exposed_s", "ddp_exposed_s", "told_exposed_s")]
    memory = [row[f"{by}_memory"] / (1 << 20) for by in ("tutti", "ddp")]
    print(f"{row['case']:11} {row['ranks']:>2} {ms[0]:8.1f} {ms[1]:9.1f} {ms[2]:9.1f} {row['ratio']:5.2f}x "
          f"{row['default_ratio']:6.2f}x {row['target']:5.1f}x {exposed[0]:8.1f} {exposed[1]:8.1f} {exposed[2]:8.1f} "
          f"{memory[0]:6.0f} {memory[1]:7.0f}{'' if row['reached'] else '  missed'}", flush=True)


def print_head():
    print(f"{'case':11} {'n':>2} {'compute':>8} {'tutti ms':>9} {'ddp ms':>9} {'ratio':>6} {'default':>7} {'target':>6} "
          f"{'exposed':>8} {'of ddp':>8} {'reported':>8} {'MiB':>6} {'of ddp':>7}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="some of them, by commas")
    parser.add_argument("--list", action="store_true", help="prints the cases")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--json", help="a file")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    for name in options.cases:
        if name not in CASES:
            parser.error(f"there is no case '{name}'; there are {', '.join(CASES)}")
    if options.rounds < 1 or options.steps < 2:
        parser.error("at least one round of two steps")
    if not options.list and os.geteuid() != 0 and any(CASES[name][1] for name in options.cases):
        parser.error("emulated hosts need root; others are " + ", ".join(n for n, c in CASES.items() if not c[1]))
    return options


def main():
    options = parse()
    if options.list:
        for name, (ranks, rate, model, is_bound) in CASES.items():
            place = f"hosts of {rate} Mbit/s" if rate else "ranks on this host"
            print(f"{name:11} {ranks} {place}, target {1.3 if is_bound else 1}: {' '.join(map(str, model))}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: leave through finally
    rows = []
    for name in options.cases:
        say(f"{name}: {options.rounds} rounds of {options.steps} steps each")
        rows.append(measure(name, options))
        print_row(rows[-1], with_head=len(rows) == 1)
    if options.json:
        import torch
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "machine": platform.machine(), "cores": os.cpu_count(),
                       "load_1min": os.getloadavg()[0], "rounds": options.rounds, "rows": rows}, file, indent=1)
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunFailed as failure:
        print(f"torch_train_compare: {failure}", file=sys.stderr)
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(130)
