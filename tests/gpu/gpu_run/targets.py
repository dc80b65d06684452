"""What is to be reached on one H200, as rows: a name, what is measured, and the target with and without MPS."""
from dataclasses import dataclass
from typing import Callable

KIB, MIB = 1 << 10, 1 << 20
RANKS = (2, 4, 8)
OTHERS = ("all_gather", "reduce_scatter", "all_to_all", "broadcast")
# µs of an all_reduce of 4 KiB without MPS whose hosts meet around the kernel, measured on an H200, 2026-11
SMALL_WITHOUT_MPS = {2: 293, 4: 575, 8: 1148}


@dataclass
class Scale:
    """Sizes; those of --quick try the script where there is no GPU to measure."""
    small: tuple = (4 * KIB, 64 * KIB)
    middle: int = 64 * MIB
    large: int = 256 * MIB
    weights: int = 1024 * MIB
    gloo: tuple = (4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB, 256 * MIB)
    ranks: tuple = RANKS
    effort: tuple = ("--budget", "100ms")
    torch_budget: float = 0.1
    steps: int = 20


QUICK = Scale(small=(4 * KIB,), middle=16 * KIB, large=64 * KIB, weights=1 * MIB, gloo=(4 * KIB,), ranks=(2,), effort=("--iters", "3"),
              torch_budget=0.01, steps=6)


@dataclass
class Row:
    name: str
    part: tuple               # what has to be measured for it
    value: Callable           # of the parts; raises NotMeasured
    unit: str
    least: float = None       # met if the value is at least this; both None: only told
    most: float = None

    def target(self):
        if self.least is not None:
            return f"≥ {self.least:g} {self.unit}"
        return f"≤ {self.most:g} {self.unit}" if self.most is not None else "report"

    def is_met(self, value):
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def words(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def all_reduce_rows(n, scale, mps, collectives):
    part = ("collectives", n)

    def cell(size, memory="symmetric"):
        return n, "all_reduce", size, memory
    share = {2: 86, 4: 89, 8: 90}[n] if mps else 45
    yield Row(f"all_reduce {words(scale.large)}, n = {n}", part, lambda: collectives.percent(*cell(scale.large)), "%", share)
    if n > 2 or scale is QUICK:
        yield Row(f"all_reduce {words(scale.middle)}, n = {n}", part,
                  lambda: collectives.percent(*cell(scale.middle)), "%", 80 if mps else 17)
    for size in scale.small:
        most = {2: 20, 4: 28, 8: 42}[n] if mps else SMALL_WITHOUT_MPS[n]
        yield Row(f"all_reduce {words(size)}, n = {n}", part, lambda size=size: collectives.time_us(*cell(size)), "µs",
                  most=most)
    size = 1 * MIB
    while size <= scale.large:
        yield Row(f"plain against symmetric, {words(size)}, n = {n}", part,
                  lambda size=size: collectives.time_us(*cell(size)) / collectives.time_us(*cell(size, "plain")), "×", 0.97)
        size *= 16 if size == MIB else 4
    for size in (scale.small[0], scale.large):
        yield Row(f"host in start + wait, {words(size)}, n = {n}", part,
                  lambda size=size: collectives.host_us(*cell(size, "plain")), "µs", most=15)


def other_rows(n, scale, mps, collectives):
    for name in OTHERS:
        yield Row(f"{name} {words(scale.large)}, n = {n}", ("others", n),
                  lambda name=name: collectives.percent(n, name, scale.large, "symmetric"), "%", 80 if mps else None)


def gloo_rows(n, scale, mps, torch):
    for size in scale.gloo:
        least = 20 if mps or size >= 16 * MIB else 1.5
        yield Row(f"against gloo, {words(size)}, n = {n}", ("torch", n),
                  lambda size=size: torch.get(n, "all_reduce", size, "plain_ratio"), "×", least)
    yield Row(f"host in start + wait, torch, n = {n}", ("torch", n),
              lambda: 1e6 * torch.get(n, "all_reduce", scale.gloo[-1], "tutti_host_s"), "µs", most=15)


def every_row(scale, mps, collectives, hand_over, training, torch):
    for n in scale.ranks:
        yield from all_reduce_rows(n, scale, mps, collectives)
    for n in scale.ranks:
        if n > 2 or scale is QUICK:
            yield from other_rows(n, scale, mps, collectives)
    yield Row(f"hand-over of {words(scale.weights)} to one receiver", ("hand-over", 2), hand_over.percent, "%",
              85 if mps else None)
    for dtype in ("fp32", "bf16"):
        yield Row(f"training, {dtype}, 2 ranks: hidden", ("training", 2), lambda dtype=dtype: training.percent(dtype), "%",
                  90 if mps else None)
    for n in scale.ranks:
        yield from gloo_rows(n, scale, mps, torch)
    with_ddp = 4 if 4 in scale.ranks else scale.ranks[0]
    yield Row(f"DDP step of a small GPT against gloo, n = {with_ddp}", ("torch", with_ddp),
              lambda: torch.get(with_ddp, "ddp", "", "plain_ratio"), "×", 3 if mps else 1.5)
