"""A small model, its data, and twenty steps of training with DistributedDataParallel."""
import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


class Toy(torch.nn.Module):
    """A classifier with a layer norm, an embedding, and several buckets' worth of parameters."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 32)
        self.up = torch.nn.Linear(32, 128)
        self.norm = torch.nn.LayerNorm(128)
        self.down = torch.nn.Linear(128, 10)

    def forward(self, tokens):
        hidden = self.embedding(tokens).mean(dim=1)
        return self.down(self.norm(torch.relu(self.up(hidden))))


class Branches(torch.nn.Module):
    """Uses one of two branches, by step."""

    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(8, 8)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)])

    def forward(self, x, which):
        return self.branches[which](torch.relu(self.trunk(x)))


def batch(rank, step, size=16):
    """Four batches a rank, again and again: something to be learnt in a few steps."""
    generator = torch.Generator().manual_seed(1000 * (step % 4) + rank)
    tokens = torch.randint(0, 50, (size, 6), generator=generator)
    return tokens, tokens[:, 0] % 10


def digest(module):
    whole = hashlib.sha256()
    for parameter in module.parameters():
        whole.update(parameter.detach().contiguous().numpy().tobytes())
    return whole.hexdigest()


def digests(module, group=None):
    """Every rank's digest of its parameters."""
    found = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, digest(module), group=group)
    return found


def train(rank, group=None, steps=STEPS, hook=None, hook_state=None, optimizer=None,
          accumulate=1, **ddp_options):
    """(losses averaged over the ranks, the model)."""
    torch.manual_seed(7)
    ddp_options.setdefault("bucket_cap_mb", 0.02)  # several buckets
    model = DistributedDataParallel(Toy(), process_group=group, **ddp_options)
    if hook is not None:
        model.register_comm_hook(hook_state, hook)
    optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)))(model.parameters())
    losses = []
    for step in range(steps):
        loss = one_step(rank, model, step, accumulate)
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().double().reshape(1)
        dist.all_reduce(total, group=group)
        losses.append(total.item() / dist.get_world_size(group))
    return losses, model


def one_step(rank, model, step, accumulate):
    """Forward and backward; all but the last micro-batch without communication."""
    for micro in range(accumulate):
        tokens, labels = batch(rank, step * accumulate + micro)
        if micro + 1 < accumulate:
            with model.no_sync():
                torch.nn.functional.cross_entropy(model(tokens), labels).backward()
        else:
            loss = torch.nn.functional.cross_entropy(model(tokens), labels)
            loss.backward()
    return loss


def close(left, right, relative):
    return len(left) == len(right) > 0 and all(abs(a - b) <= relative * max(abs(a), abs(b)) for a, b in zip(left, right))
