"""mp.spawn: the parent starts the ranks itself; the address is in the environment.

    python3 spawned.py BACKEND RANKS [spawn | fork]
"""
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def rank_main(rank, size, backend):
    if backend == "tutti":
        import tutti_torch  # noqa: F401
    dist.init_process_group(backend, rank=rank, world_size=size)
    tensor = torch.ones(1) * rank
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    sys.stdout.write(f"rank {rank} of {size} has {tensor.item()}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]))
    mp.start_processes(rank_main, args=(int(sys.argv[2]), sys.argv[1]), nprocs=int(sys.argv[2]),
                       start_method=(sys.argv[3:] or ["spawn"])[0])
