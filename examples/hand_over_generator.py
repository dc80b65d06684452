#!/usr/bin/env python3
"""A generator that is updated while it runs: one process trains a small model of letters, another one writes with it.

    PYTHONPATH=build/python build/bin/tutti run -n 2 /usr/bin/python3 examples/hand_over_generator.py
    ... examples/hand_over_generator.py --device cuda        # both on one GPU: weights are copied on it

As two ranks of one job, as above, or as two jobs that come and go as they like:

    head -c 32 /dev/urandom > job.key; chmod 600 job.key
    ... hand_over_generator.py --role trainer --address 127.0.0.1:29600 --secret-file job.key
    ... hand_over_generator.py --role generator --address 127.0.0.1:29600 --secret-file job.key

The trainer hands over its weights every few steps and does not wait. The generator asks between two letters
whether there are newer ones, and goes on with what it has where there are not.
"""
import argparse
import hashlib
import time

import torch
import torch.distributed as dist

import tutti_torch

TEXT = ("all together now, one for all and all for one: many hands make light work, "
        "and what is whole at one place is whole at the other. ") * 4
LETTERS = sorted(set(TEXT))
SEEN = 8  # letters that the next one is guessed from
TRAINER, GENERATOR = 0, 1


def make_model(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(len(LETTERS), 16), torch.nn.Flatten(),
                               torch.nn.Linear(16 * SEEN, 128), torch.nn.ReLU(),
                               torch.nn.Linear(128, len(LETTERS))).to(device)


def digest(model):
    """Of every bit of the weights."""
    everything = torch.cat([weight.detach().cpu().flatten() for weight in model.state_dict().values()])
    return hashlib.sha256(everything.numpy().tobytes()).hexdigest()


def train(model, options, sender):
    numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT], device=options.device)
    inputs, targets = numbers.unfold(0, SEEN, 1)[:-1], numbers[SEEN:]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, options.steps + 1):
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.every == 0 or step == options.steps:
            # Copied here and now, in the current stream; the next step may change the weights at once.
            sender.send(step, model.state_dict())
    sender.flush()
    print(f"trainer: loss {loss.item():.3f} after {options.steps} steps; receivers lost: {sender.lost()}", flush=True)
    print(f"trainer: the weights are {digest(model)}", flush=True)


def generate(model, options, receiver):
    text, updates = TEXT[:SEEN], 0
    while receiver.version < options.steps:
        try:
            newer = receiver.poll()
        except tutti_torch.PeerLost:
            break  # the trainer has ended; what it sent last stays
        if newer:
            model.load_state_dict(receiver.weights)
            updates += 1
        text += next_letter(model, text, options.device)
    print(f"generator: wrote {len(text) - SEEN} letters with {updates} versions of the weights", flush=True)
    text = TEXT[:SEEN]
    for _ in range(60):
        text += next_letter(model, text, options.device)
    print(f"generator: now it writes '{text}'", flush=True)
    print(f"generator: the weights are {digest(model)}", flush=True)


def in_one_job(model, options):
    dist.init_process_group("tutti")
    if dist.get_world_size() != 2:
        raise SystemExit("start it with two ranks: tutti run -n 2 …")
    if dist.get_rank() == TRAINER:
        with tutti_torch.hand_over.Sender(receivers=[GENERATOR]) as sender:
            train(model, options, sender)
            dist.send(torch.tensor(list(bytes.fromhex(digest(model))), dtype=torch.uint8), GENERATOR)
    else:
        with tutti_torch.hand_over.Receiver(trainer=TRAINER) as receiver:
            generate(model, options, receiver)
        trainers = torch.empty(32, dtype=torch.uint8)
        dist.recv(trainers, TRAINER)
        same = bytes(trainers.tolist()).hex() == digest(model)
        print(f"generator: the last version is {'' if same else 'not '}the trainer's, to the bit", flush=True)
    dist.destroy_process_group()


def in_two_jobs(model, options):
    where = {"address": options.address, "secret_file": options.secret_file}
    if options.role == "generator":
        with tutti_torch.hand_over.Receiver(**where, patience=60) as receiver:
            return generate(model, options, receiver)
    with tutti_torch.hand_over.Sender(receivers=[], **where) as sender:
        print(f"trainer: generators attach to {sender.address}", flush=True)
        while options.wait and not sender.receivers():
            time.sleep(0.01)
        train(model, options, sender)


@torch.no_grad()
def next_letter(model, text, device):
    seen = torch.tensor([[LETTERS.index(letter) for letter in text[-SEEN:]]], device=device)
    return LETTERS[model(seen).argmax().item()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--every", type=int, default=5, help="steps from one version to the next")
    parser.add_argument("--role", choices=["trainer", "generator"], help="as a job of its own")
    parser.add_argument("--address", help="of the trainer, HOST:PORT")
    parser.add_argument("--secret-file", help="of mode 0600, the same for both")
    parser.add_argument("--wait", action="store_true", help="the trainer waits for the first generator")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = make_model(options.device)
    if options.role:
        in_two_jobs(model, options)
    else:
        in_one_job(model, options)


if __name__ == "__main__":
    main()
