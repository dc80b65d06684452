"""Trains beside workers that are forked meanwhile; prints what it trained, and where its tensors lay.

TUTTI_SHARED_HEAP says where that is; what is trained must not depend on it.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import training
import tutti_torch

WIDTH, SAMPLES = 192, 24  # weights of 144 KiB, samples of 768 B


class Numbers(torch.utils.data.Dataset):
    """Its tensors are the parent's; a worker reads them, scribbles on them, and takes memory of its own."""

    def __init__(self, rank):
        generator = torch.Generator().manual_seed(rank)
        self.values = torch.randn(SAMPLES, WIDTH, generator=generator).repeat(8, 1)
        self.scratch = torch.zeros(1 << 16)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            self.scratch += 1
            own = torch.full((1 << 16,), float(index))
            assert bool((own == index).all()) and bool((self.scratch == self.scratch[0]).all())
        return self.values[index].clone()


def mapped_heaps():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return len({line.split()[4] for line in maps if "/memfd:tutti-heap" in line})


def train(rank):
    torch.manual_seed(5)
    module = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
    model = DistributedDataParallel(module, bucket_cap_mb=0.2, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    numbers = Numbers(rank)
    before = numbers.values.clone()
    for epoch in range(3):  # each forks workers anew
        workers = 2 if epoch else 0
        for given in torch.utils.data.DataLoader(numbers, batch_size=8, num_workers=workers,
                                                 multiprocessing_context="fork" if workers else None):
            model(given).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert torch.equal(numbers.values, before) and not bool(numbers.scratch.any())
    return training.digests(module)


def check_collectives(rank, size):
    count = 1 << 16
    values = torch.full((count,), float(rank + 1))
    dist.all_reduce(values)
    assert bool((values == size * (size + 1) / 2).all())
    parts = [torch.empty(count) for _ in range(size)]
    dist.all_gather(parts, torch.full((count,), float(rank)))
    assert all(bool((part == r).all()) for r, part in enumerate(parts))
    dist.reduce_scatter(values, parts)
    assert bool((values == rank * size).all())
    dist.broadcast(values, src=size - 1)
    assert bool((values == (size - 1) * size).all())


def main():
    early = torch.ones(1 << 15)
    dist.init_process_group("tutti")
    rank, size = dist.get_rank(), dist.get_world_size()
    check_collectives(rank, size)
    digests = train(rank)
    assert len(set(digests)) == 1
    in_use = tutti_torch.shared_heap_usage().in_use_bytes
    kept = torch.ones(1 << 15)
    grew = tutti_torch.shared_heap_usage().in_use_bytes - in_use
    del early, kept
    assert tutti_torch.shared_heap_usage().peak_bytes > 0 or grew == 0
    print(f"rank {rank}: {digests[0]} grew {grew} heaps {mapped_heaps()}")
    dist.barrier()


if __name__ == "__main__":
    main()
