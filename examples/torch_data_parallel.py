#!/usr/bin/env python3
"""A small model of letters, trained on every rank together by tutti_torch.DataParallel.

    PYTHONPATH=build/python build/bin/tutti run -n 2 /usr/bin/python3 examples/torch_data_parallel.py
    ... examples/torch_data_parallel.py --zero 3 --checkpoint folder     # and once more, to go on from there

Three lines make it parallel: those with a number. The others are what any training has: parameter groups, a schedule
of the learning rate, a loss that is looked at, a line for the log, a checkpoint.
"""
import argparse
import json
import os

import torch
import torch.distributed as dist

import tutti_torch                                                                             # 1

TEXT = ("all together now, one for all and all for one: many hands make light work, "
        "and what is whole at one place is whole at the other. ") * 8
LETTERS = sorted(set(TEXT))
SEEN = 8  # letters that the next one is guessed from


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(len(LETTERS), 16), torch.nn.Flatten(),
                               torch.nn.Linear(16 * SEEN, 128), torch.nn.LayerNorm(128), torch.nn.GELU(),
                               torch.nn.Linear(128, len(LETTERS)))


def groups_of(model):
    """Matrices decay, the rest does not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": matrices}, {"params": others, "weight_decay": 0.0}]


def batches(rank, ranks, steps, first):
    """This rank's part of each batch."""
    numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    inputs, targets = numbers.unfold(0, SEEN, 1)[:-1], numbers[SEEN:]
    for step in range(first, steps + 1):
        chosen = torch.randperm(len(targets), generator=torch.Generator().manual_seed(step))[rank:256:ranks]
        yield step, inputs[chosen], targets[chosen]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--zero", type=int, default=1, choices=[0, 1, 2, 3])
    parser.add_argument("--checkpoint", help="a folder: goes on from what is there, and saves at the end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    module = make_model()
    model = tutti_torch.DataParallel(module, params=groups_of(module), lr=3e-3, zero=options.zero, clip=1.0)  # 2
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(model.optimizer, options.steps)
    guard, log = tutti_torch.LossGuard(model), tutti_torch.metrics.Bus()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    first = 1
    if options.checkpoint and os.path.exists(os.path.join(options.checkpoint, "latest")):
        found = model.load_checkpoint(options.checkpoint)
        first += found["iteration"]
        schedule.load_state_dict(json.loads(found["extra"]["schedule"]))
    for step, x, y in batches(rank, ranks, options.steps, first):
        for _ in guard:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            guard.validate(loss, rejection=torch.isnan)
            model.backward(loss); model.step()                                                 # 3
        schedule.step()
        log.add("loss", loss.item() / ranks)
        log.publish(step)
        for line in log:  # a step late: nothing waits for it
            if rank == 0 and line.step % 10 == 0:
                print(f"step {line.step}: loss {line.sums['loss']:.3f}", flush=True)
    if rank == 0:
        print(f"where the time goes: {model.report()}", flush=True)
    if options.checkpoint:
        model.save_checkpoint(options.checkpoint, options.steps, {"schedule": json.dumps(schedule.state_dict())}, keep=1)
    weights = model.weight_hash()  # of all ranks together
    if rank == 0:
        print(f"weights after {options.steps} steps: {weights[:16]}, the same on {ranks} ranks", flush=True)
    model.check_weights()


if __name__ == "__main__":
    main()
