#!/usr/bin/python3
"""A training step by tutti_torch.DataParallel beside PyTorch's DistributedDataParallel and FSDP.

The same module, data, AdamW and number of threads, in the same processes, taking turns of a few steps; DDP with its default
buckets and with small ones, whichever is faster in a round; FSDP (both kinds, torch 2) with each block wrapped. On this
host, on four emulated ones (network namespaces, 1 Gbit/s by tbf; needs root), and with all ranks on one GPU. A row's time
is the median over the rounds, its ratio the median of the rounds' ratios.

  bench/torch_train_compare.py --json train.json                  every case, about five minutes
  bench/torch_train_compare.py --cases host-small --rounds 3      one case, half a minute
  bench/torch_train_compare.py --cases cuda-small --rivals ddp@gloo,ddp@tutti,fsdp2@tutti
  bench/torch_train_compare.py --list                             what cases there are

way: tutti's `zero`; with bf16 its gradients are sent in bf16, half the bytes of their reduction, and not the same bits. rival:
who, @ the backend that carries it. ratio: how many times faster tutti is. most: what it could be between hosts if the wire
were never idle and both hid all that can be hidden, by what compute alone takes: a step of DDP is forward + max(backward,
wire) + update, one of FSDP max(forward, wire/2) + max(backward, wire) + update/n, one of tutti max(forward, wire/2) +
max(backward, wire/2) + update/n. compute: forward, backward and torch's update alone. exposed: step less compute; reported:
what model.report() says. MiB: what each adds in all ranks together. Where communication takes longer than compute the
target is 1.3, elsewhere 1. Ends with 0 when every target is reached, 1 when one is missed, 2 when it cannot begin, 3 when
a run failed.
"""
import argparse
import json
import os
import platform
import re
import signal
import socket
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
from overlap_hosts import Hosts, RunFailed  # noqa: E402  (beside this file)

BENCH = Path(__file__).resolve().parent
LIMIT_S = 280
PORT = 29600  # of emulated hosts, where nobody else has one
KINDS, BACKENDS = ("ddp", "fsdp1", "fsdp2"), ("gloo", "tutti")


def timed(compute_ms):
    """32 MiB of gradients; layers sleep as if an accelerator computed, backward twice as long as forward."""
    return ["--model", "timed", "--layers", 32, "--layer-bytes", 1 << 20, "--forward-ms", compute_ms / 3,
            "--backward-ms", 2 * compute_ms / 3]


def mlp(width, layers, tokens):
    return ["--model", "mlp", "--width", width, "--layers", layers, "--tokens", tokens]


@dataclass
class Case:
    ranks: int
    model: list
    is_bound: bool          # communication is the longer part
    rate: int = None        # Mbit/s of each host; None: all ranks on this one
    device: str = "cpu"

    @property
    def target(self):
        return 1.3 if self.is_bound else 1.0

    def place(self):
        if self.device == "cuda":
            return "ranks on one GPU"
        return f"hosts of {self.rate} Mbit/s" if self.rate else "ranks on this host"


CASES = {
    "host-tiny": Case(2, mlp(64, 12, 16), True),         # 1.6 MB of gradients in 72 tensors: latency
    "host-large": Case(2, mlp(384, 6, 512), False),      # 28 MB of gradients, compute prevails
    "host-small": Case(2, mlp(768, 6, 16), True),        # 113 MB of gradients, next to no compute
    "hosts-50": Case(4, timed(900), False, 1000),
    "hosts-100": Case(4, timed(450), False, 1000),
    "hosts-150": Case(4, timed(300), True, 1000),
    "hosts-real": Case(4, mlp(256, 6, 32), True, 1000),  # 13 MB of gradients, real products on shared cores
    "host4-large": Case(4, mlp(512, 6, 256), False),     # for 4 cores or more
    "host4-small": Case(4, mlp(768, 6, 16), True),
    "cuda-large": Case(2, mlp(1024, 8, 16384), False, device="cuda"),  # 269 MB of gradients
    "cuda-small": Case(2, mlp(1024, 8, 64), True, device="cuda"),
}
USUAL = [name for name, case in CASES.items() if case.device == "cpu" and not name.startswith("host4")]


class Run:
    def __init__(self, case, hosts, options, folder):
        self.case, self.hosts, self.options, self.folder = case, hosts, options, Path(folder)
        self.port = PORT if hosts.separate else free_port()
        self.secret = self.folder / "secret"
        self.secret.touch(0o600)
        self.secret.write_bytes(os.urandom(32))

    def told(self):
        """What rank 0 has written."""
        out = self.folder / "out.json"
        words = [sys.executable, BENCH / "torch_train_rank.py", *self.case.model, "--device", self.case.device, "--steps",
                 self.options.steps, "--rounds", self.options.rounds, "--ways", *self.options.ways, "--rivals",
                 *self.options.rivals, "--out", out]
        self.hosts.run_everywhere(lambda rank: [str(word) for word in words], self.environment, LIMIT_S)
        return json.loads(out.read_text(encoding="utf-8"))

    def environment(self, rank):
        modules = [os.environ.get("PYTHONPATH", ""), str(BENCH.parent / "build" / "python")]
        words = {"RANK": rank, "WORLD_SIZE": self.case.ranks, "MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": self.port,
                 "GLOO_SOCKET_IFNAME": "cable" if self.hosts.separate else "lo", "OMP_NUM_THREADS": 1,
                 "OPENBLAS_NUM_THREADS": 1, "PYTHONPATH": os.pathsep.join(filter(None, modules)),
                 "TUTTI_SECRET_FILE": self.secret}
        if self.hosts.separate:
            words["TUTTI_SPIN"] = 0  # a rank sees all cores of its host, and cannot know that the hosts share them
        return {name: str(value) for name, value in words.items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def measure(name, options):
    """The case's rows, one for each rival, and who did not work."""
    case = CASES[name]
    with Hosts(case.ranks, case.rate) as hosts, tempfile.TemporaryDirectory(prefix="train_compare_") as folder:
        told = Run(case, hosts, options, folder).told()
    rows = []
    for way in options.ways:
        for rival in options.rivals:
            members = [who for who in told["memory"] if who.split(" ")[0] == rival]
            # DDP by its default buckets, too, where those are not the only ones.
            for label, chosen in ((rival, members), (f"{rival} 25", [f"{rival} 25"])):
                if chosen and set(chosen) <= set(members) and (label == rival or len(members) > 1):
                    rows.append(row_of(name, case, told, way, label, chosen))
    return rows, told


def row_of(name, case, told, way, label, members):
    rounds, ours = told["rounds"], f"tutti {way}"
    fastest = [min(members, key=lambda who: turn[who]["step_s"]) for turn in rounds]
    turns = {"compute": ["alone"] * len(rounds), "tutti": [ours] * len(rounds), "rival": fastest}

    def times(column):
        return [turn[who]["step_s"] for turn, who in zip(rounds, turns[column])]

    row = {"case": name, "ranks": case.ranks, "rival": label, "way": way, "bound": case.is_bound,
           "target": case.target, "most": most_of(case, told, way, label),
           "ratio": statistics.median(theirs / own for theirs, own in zip(times("rival"), times("tutti"))),
           "told_exposed_s": statistics.median(turn[ours].get("exposed_s", 0.0) for turn in rounds)}
    for column, who in turns.items():
        row[f"{column}_s"] = statistics.median(times(column))
        row[f"{column}_memory"] = statistics.median(told["memory"][one] for one in who)
        row[f"{column}_exposed_s"] = statistics.median(
            max(0.0, step - compute) for step, compute in zip(times(column), times("compute")))
    row["reached"] = row["ratio"] >= row["target"]
    return row


def most_of(case, told, way, rival):
    """What hiding alone can give between hosts, where no algorithm sends less; None elsewhere."""
    if case.rate is None:
        return None
    forward, backward, update = (statistics.median(part) for part in
                                 zip(*(turn["alone"]["parts_s"] for turn in told["rounds"])))
    wire = 2 * (case.ranks - 1) / case.ranks * told["gradient_bytes"] * 8 / (case.rate * 1e6)
    reduction = wire / 4 if way.endswith("bf16") else wire / 2
    own = max(forward, wire / 2) + max(backward, reduction) + update / case.ranks
    theirs = forward + max(backward, wire) + update
    if rival.startswith("fsdp"):
        theirs = max(forward, wire / 2) + max(backward, wire) + update / case.ranks
    return theirs / own


def print_row(row, with_head):
    if with_head:
        print(f"{'case':11} {'n':>2} {'way':>5} {'rival':14} {'compute':>8} {'tutti ms':>9} {'its ms':>9} {'ratio':>6} "
              f"{'target':>6} {'most':>6} {'exposed':>8} {'its':>8} {'reported':>8} {'MiB':>6} {'its':>6}")
    ms = [1e3 * row[key] for key in ("compute_s", "tutti_s", "rival_s")]
    exposed = [1e3 * row[key] for key in ("tutti_exposed_s", "rival_exposed_s", "told_exposed_s")]
    memory = [row[f"{by}_memory"] / (1 << 20) for by in ("tutti", "rival")]
    most = f"{row['most']:5.2f}x" if row["most"] else "     -"
    print(f"{row['case']:11} {row['ranks']:>2} {row['way']:>5} {row['rival']:14} {ms[0]:8.1f} {ms[1]:9.1f} {ms[2]:9.1f} "
          f"{row['ratio']:5.2f}x {row['target']:5.1f}x {most} {exposed[0]:8.1f} {exposed[1]:8.1f} {exposed[2]:8.1f} "
          f"{memory[0]:6.0f} {memory[1]:6.0f}{'' if row['reached'] else '  missed'}", flush=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(USUAL), help="some of them, by commas")
    parser.add_argument("--list", action="store_true", help="prints the cases")
    parser.add_argument("--rivals", help="of " + ", ".join(KINDS) + ", each @" + " or @".join(BACKENDS) + ", by commas; "
                        "absent: on gloo, those that this torch has")
    parser.add_argument("--ways", default="1", help="of tutti, by commas: its zero, 0 to 3, and bf16 behind it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--json", help="a file")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    for name in options.cases:
        if name not in CASES:
            parser.error(f"there is no case '{name}'; there are {', '.join(CASES)}")
    options.rivals = options.rivals.split(",") if options.rivals else usual_rivals()
    for rival in options.rivals:
        if rival not in [f"{kind}@{backend}" for kind in KINDS for backend in BACKENDS]:
            parser.error(f"there is no rival '{rival}'; there are {', '.join(KINDS)}, each @gloo or @tutti")
    options.ways = options.ways.split(",")
    for way in options.ways:
        if not re.fullmatch("[0-3](bf16)?", way):
            parser.error(f"there is no way '{way}'; there are 0 to 3, and 0bf16 to 3bf16")
    if options.rounds < 1 or options.steps < 2:
        parser.error("at least one round of two steps")
    if not options.list and os.geteuid() != 0 and any(CASES[name].rate for name in options.cases):
        parser.error("emulated hosts need root; others are " + ", ".join(n for n, c in CASES.items() if not c.rate))
    return options


def usual_rivals():
    import torch
    has_fsdp = int(torch.__version__.split(".")[0]) >= 2
    return [f"{kind}@gloo" for kind in (KINDS if has_fsdp else KINDS[:1])]


def main():
    options = parse()
    if options.list:
        for name, case in CASES.items():
            print(f"{name:11} {case.ranks} {case.place()}, target {case.target:g}: {' '.join(map(str, case.model))}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: leave through finally
    rows, told = [], {}
    for name in options.cases:
        say(f"{name}: {options.rounds} rounds of {options.steps} steps each")
        new, told[name] = measure(name, options)
        for row in new:
            print_row(row, with_head=not rows)
            rows.append(row)
        for who, why in told[name]["refused"].items():
            print(f"{name:11} {who} does not work here: {why.splitlines()[0]}", flush=True)
    if options.json:
        import torch
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "machine": platform.machine(), "cores": os.cpu_count(), "rows": rows,
                       "load_1min": os.getloadavg()[0], "told": told}, file, indent=1)
    return 0 if all(row["reached"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunFailed as failure:
        print(f"torch_train_compare: {failure}", file=sys.stderr)
        sys.exit(3)
    except KeyboardInterrupt:
        sys.exit(130)
