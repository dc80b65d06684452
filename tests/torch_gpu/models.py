"""A small model on the device, trained by one process as all ranks would train it together."""
import torch

import training  # of tests/torch

STEPS = 6


def make(device, seed=7):
    torch.manual_seed(seed)
    return training.Toy().to(device)


def loss_of(model, device, rank, step):
    tokens, labels = training.batch(rank, step)
    return torch.nn.functional.cross_entropy(model(tokens.to(device)), labels.to(device))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(model, device, rank, steps=STEPS, optimizer=sgd):
    """One rank's part; the wrapper around the model talks to the others."""
    optimizer = optimizer(model.parameters())
    for step in range(steps):
        loss_of(model, device, rank, step).backward()
        optimizer.step()
        optimizer.zero_grad()


def train_alone(me, steps=STEPS, optimizer=sgd, seed=7):
    """What comes of it: the same batches, without anybody else."""
    model = make(me.device, seed)
    optimizer = optimizer(model.parameters())
    for step in range(steps):
        torch.stack([loss_of(model, me.device, rank, step) for rank in range(me.size)]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def expect_weights(found, wanted, tolerance=1e-3):
    """Both are lists of tensors; DTensors are gathered."""
    for index, (mine, theirs) in enumerate(zip(found, wanted)):
        mine = mine.full_tensor() if hasattr(mine, "full_tensor") else mine
        gap = (mine.detach() - theirs.detach()).abs().max().item()
        scale = theirs.detach().abs().max().item()
        assert gap <= tolerance * max(scale, 1e-3), f"parameter {index} is off by {gap:g} of {scale:g}"
