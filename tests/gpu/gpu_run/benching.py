"""tests/gpu/run bench: measures, and sets beside each target what was reached."""
import os
import time

from . import machine
from .machine import Problem
from .measuring import Collectives, HandOver, Machine, NotMeasured, Torch, Training
from .targets import OTHERS, QUICK, Scale, every_row


def measure(part, scale, collectives, hand_over, training, torch):
    kind, ranks = part
    if kind == "collectives":
        collectives.measure(ranks, ["all_reduce"], scale.small[0], scale.large, ("symmetric", "plain"))
    elif kind == "others":
        collectives.measure(ranks, OTHERS, scale.large, scale.large, ("symmetric",))
    elif kind == "hand-over":
        hand_over.measure(scale.weights)
    elif kind == "training":
        training.measure()
    else:
        torch.measure(ranks, scale.gloo, ranks == (4 if 4 in scale.ranks else scale.ranks[0]))


def print_row(row):
    """Prints its line; False: it was missed."""
    try:
        value = row.value()
    except NotMeasured as why:
        print(f"{row.name:44} {row.target():>12} {'–':>10}  missed: {why}")
        return False
    met = row.is_met(value)
    verdict = ("" if row.target() == "report" else "met") if met else "missed"
    print(f"{row.name:44} {row.target():>12} {value:>8.4g} {row.unit}  {verdict}")
    return met


def bench(options):
    scale = QUICK if options.quick else Scale()
    logs = options.logs or machine.LOGS
    logs.mkdir(parents=True, exist_ok=True)
    runner = Machine(options.budget, {}, logs)
    parts = Collectives(runner, scale), HandOver(runner), Training(runner, scale), Torch(runner, scale)
    rows = [row for row in every_row(scale, options.mps, *parts)
            if not options.only or any(part in row.name for part in options.only)]
    if options.list:
        print("\n".join(f"{row.name:44} {row.target():>12}" for row in rows))
        return 0
    names, why = machine.gpus()
    if not names:
        print(f"skipped: {why}")
        return machine.SKIPPED
    if not rows:
        raise Problem(f"no row has a name with {' or '.join(options.only)}")
    if not (machine.PROGRAMS / "bin/tutti").is_file():
        raise Problem(f"{machine.PROGRAMS} has no bin/tutti: tests/gpu/run build")
    print(machine.headline("tests/gpu/run bench", names, options.mps), flush=True)
    began = time.monotonic()
    with machine.mps_daemon(options.mps) as environment:
        runner.environment.update(environment)
        for part in dict.fromkeys(row.part for row in rows):
            measure(part, scale, *parts)
    for ranks, ceilings in sorted(parts[0].ceilings.items()):
        print(f"# copy ceiling, {ranks} ranks at once: {', '.join(f'{gbs:.0f}' for gbs in ceilings)} GB/s")
    print(f"{'# what':44} {'target':>12} {'measured':>10}")
    missed = sum(not print_row(row) for row in rows)
    print(f"# {len(rows) - missed} of {len(rows)} met or told, {missed} missed, in {time.monotonic() - began:.0f} s; "
          f"outputs: {os.path.relpath(logs)}")
    return 1 if missed else 0
