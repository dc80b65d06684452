#!/usr/bin/python3
"""A first course in torch.distributed: each operation on a few numbers, printed before and after.

Three ranks, any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT:

    torchrun --nproc_per_node=3 course.py            # backend tutti
    tutti run -n 3 python3 course.py --backend gloo
"""
import argparse
import sys
import time

import torch
import torch.distributed as dist


def say(text):
    sys.stdout.write(f"{text}\n")  # in one piece, also where Python does not buffer
    sys.stdout.flush()


def own_values():
    return torch.full((5,), float(dist.get_rank() + 1))


def broadcast():
    tensor = torch.arange(1.0, 6.0) if dist.get_rank() == 0 else torch.zeros(5)
    say(f"Before broadcast on rank {dist.get_rank()}: {tensor}")
    dist.broadcast(tensor, src=0)
    say(f"After broadcast on rank {dist.get_rank()}: {tensor}")


def two_broadcasts():
    """Rank 0's five numbers go to all, then rank 1's three."""
    rank = dist.get_rank()
    five = torch.arange(1.0, 6.0) if rank == 0 else torch.zeros(5)
    three = torch.tensor([10.0, 20.0, 30.0]) if rank == 1 else torch.zeros(3)
    dist.broadcast(five, src=0)
    say(f"Rank {rank} after the first: {five} {three}")
    dist.broadcast(three, src=1)
    say(f"Rank {rank} after the second: {five} {three}")


def reduce():
    tensor = own_values()
    say(f"Before reduce on rank {dist.get_rank()}: {tensor}")
    dist.reduce(tensor, dst=0, op=dist.ReduceOp.SUM)
    say(f"After reduce on rank {dist.get_rank()}: {tensor}")


def all_reduce():
    tensor = own_values()
    say(f"Before all_reduce on rank {dist.get_rank()}: {tensor}")
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    say(f"After all_reduce on rank {dist.get_rank()}: {tensor}")


def gather():
    tensor = own_values()
    parts = [torch.zeros(5) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
    say(f"Before gather on rank {dist.get_rank()}: {tensor}")
    dist.gather(tensor, parts, dst=0)
    if dist.get_rank() == 0:
        say(f"After gather on rank 0: {parts}")


def all_gather():
    tensor = own_values()
    parts = [torch.zeros(5) for _ in range(dist.get_world_size())]
    say(f"Before all_gather on rank {dist.get_rank()}: {tensor}")
    dist.all_gather(parts, tensor)
    say(f"After all_gather on rank {dist.get_rank()}: {parts}")


def scatter():
    parts = None
    if dist.get_rank() == 0:
        parts = [torch.full((5,), float(i + 1)) for i in range(dist.get_world_size())]
        say(f"Rank 0: tensors to scatter: {parts}")
    tensor = torch.zeros(5)
    say(f"Before scatter on rank {dist.get_rank()}: {tensor}")
    dist.scatter(tensor, parts, src=0)
    say(f"After scatter on rank {dist.get_rank()}: {tensor}")


def reduce_scatter():
    """Rank r contributes ((r+1)·[1, 2])^(j+1) to rank j."""
    base = torch.tensor([1.0, 2.0]) * (dist.get_rank() + 1)
    parts = [base ** (j + 1) for j in range(dist.get_world_size())]
    tensor = torch.zeros(2)
    say(f"Before reduce_scatter on rank {dist.get_rank()}: {parts}")
    dist.reduce_scatter(tensor, parts, op=dist.ReduceOp.SUM)
    say(f"After reduce_scatter on rank {dist.get_rank()}: {tensor}")


def barrier(nap_s=0.1):
    begin = time.monotonic()
    time.sleep(nap_s * dist.get_rank())  # ranks come at different times
    dist.barrier()
    say(f"Rank {dist.get_rank()} after barrier: {time.monotonic() - begin:.4f}")


def send_and_recv():
    """Rank 0 sends to 1, which doubles and sends on to 2."""
    rank = dist.get_rank()
    if rank == 0:
        dist.send(torch.tensor([100.0, 200.0]), dst=1)
    elif rank in (1, 2):
        tensor = torch.zeros(2)
        dist.recv(tensor, src=rank - 1)
        say(f"Rank {rank} received: {tensor}")
        if rank == 1:
            dist.send(tensor * 2, dst=2)


def isend_and_irecv():
    """The same while something else is done."""
    rank = dist.get_rank()
    if rank == 0:
        dist.isend(torch.tensor([100.0, 200.0]), dst=1).wait()
    elif rank in (1, 2):
        tensor = torch.zeros(2)
        request = dist.irecv(tensor, src=rank - 1)
        other_work = sum(range(1000))
        request.wait()
        say(f"Rank {rank} received: {tensor} beside {other_work}")
        if rank == 1:
            dist.isend(tensor * 2, dst=2).wait()


def gather_texts():
    """Texts as numbers of fixed length, gathered by all."""
    text = f"rank {dist.get_rank()} on cpu"
    mine = torch.zeros(100, dtype=torch.int32)
    mine[:len(text)] = torch.tensor(list(text.encode()), dtype=torch.int32)
    parts = [torch.zeros(100, dtype=torch.int32) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    say([bytes(part.to(torch.uint8).tolist()).rstrip(b"\0").decode() for part in parts])


def two_groups():
    """Each half sums its ranks; a MAX over all brings both sums to everybody."""
    rank, size = dist.get_rank(), dist.get_world_size()
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    groups = [dist.new_group(half) for half in halves]
    sums = torch.zeros(2)
    mine = 0 if rank in halves[0] else 1
    tensor = torch.ones(1) * rank
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=groups[mine])
    sums[mine] = tensor.item()
    dist.all_reduce(sums, op=dist.ReduceOp.MAX)
    say(f"Rank {rank}: groups sum to {sums.tolist()}")


def gather_and_reduce():
    rank = dist.get_rank()
    tensor = torch.tensor([rank * 10.0, rank * 10.0 + 1])
    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    total = tensor.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    say(f"Rank {rank}: gathered {[part.tolist() for part in parts]}, summed {total.tolist()}")


def softmax_and_norm():
    """A softmax over ranks (MAX, then SUM), a weighted sum, an L2 norm over ranks."""
    rank = dist.get_rank()
    tensor = torch.tensor([rank + 1.0, rank + 2.0, rank + 3.0])
    weighted = tensor * torch.tensor([0.3, 0.3, 0.4])
    dist.all_reduce(weighted, op=dist.ReduceOp.SUM)
    greatest = tensor.clone()
    dist.all_reduce(greatest, op=dist.ReduceOp.MAX)
    powers = torch.exp(tensor - greatest)
    total = powers.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    squares = tensor ** 2
    dist.all_reduce(squares, op=dist.ReduceOp.SUM)
    say(f"Rank {rank}: weighted {weighted}, softmax {powers / total}, "
        f"normalised {tensor / torch.sqrt(squares)}")


class ToyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))

    def forward(self, x):
        return self.net(x)


def toy_training():
    """One step of DistributedDataParallel with SGD and a mean squared error."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    torch.manual_seed(1 + dist.get_rank())
    optimizer.zero_grad()
    loss = torch.nn.MSELoss()(model(torch.randn(20, 10)), torch.randn(20, 5))
    loss.backward()
    optimizer.step()
    weight = sum(parameter.double().sum().item() for parameter in model.parameters())
    say(f"Rank {dist.get_rank()}: weights sum to {weight:.9f}")


def array_of_numbers():
    array = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    dist.all_reduce(array)
    say(f"Rank {dist.get_rank()}: {array.tolist()}")


LESSONS = [broadcast, two_broadcasts, reduce, all_reduce, gather, all_gather, scatter, reduce_scatter,
           barrier, send_and_recv, isend_and_irecv, gather_texts, two_groups, gather_and_reduce,
           softmax_and_norm, toy_training, array_of_numbers]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("lessons", nargs="*", help="only these (default: all)")
    options = parser.parse_args()
    if options.backend == "tutti":
        import tutti_torch  # noqa: F401
    dist.init_process_group(options.backend)
    for lesson in LESSONS:
        if not options.lessons or lesson.__name__ in options.lessons:
            lesson()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
