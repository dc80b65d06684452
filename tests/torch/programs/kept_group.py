"""Ends well although a hook keeps the group alive until the end of the program."""
import ctypes
import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401


def main():
    dist.init_process_group("tutti")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))

    def hook(state, bucket):
        work = dist.all_reduce(bucket.buffer(), group=state, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(dist.group.WORLD, hook)
    model(torch.ones(2, 4)).sum().backward()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(model))  # somebody keeps it, to the very end
    processes = [None] * dist.get_world_size()
    dist.all_gather_object(processes, os.getpid())
    rank = dist.get_rank()
    dist.destroy_process_group()
    if rank == 0:  # sees the others go
        while any(os.path.exists(f"/proc/{process}") for process in processes[1:]):
            time.sleep(0.01)
        time.sleep(0.1)


if __name__ == "__main__":
    if sys.argv[1:] == ["forked"]:  # where atexit does not run
        child = multiprocessing.get_context("fork").Process(target=main)
        child.start()
        child.join()
        sys.exit(child.exitcode)
    main()
