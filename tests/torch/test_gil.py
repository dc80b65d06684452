"""While a rank waits, its other Python threads go on.

Rank 0 waits for rank 1, which does not come before a thread of rank 0 has counted: if the call held
the interpreter's lock, the thread could not count, and nobody would ever arrive.
"""
import os
import threading
import time
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist

from bodies import every_rank


@contextmanager
def counting(path):
    """A thread that counts once the block has begun, and says so by making a file."""
    begun = threading.Event()

    def count():
        begun.wait()
        for _ in range(1000):
            time.sleep(0)
        open(path, "w").close()

    thread = threading.Thread(target=count)
    thread.start()
    begun.set()
    yield
    thread.join()


def until_exists(path):
    deadline = time.monotonic() + 40
    while not os.path.exists(path):
        assert time.monotonic() < deadline, "the waiting rank's thread did not get to run"
        time.sleep(0.002)


def use_both(me, wait_alone, come):
    path = f"{me.folder}/counted"
    if me.rank == 0:
        with counting(path):
            wait_alone()
    else:
        until_exists(path)
        come()
    dist.barrier()
    if me.rank == 0:
        os.unlink(path)


@every_rank(2)
@pytest.mark.parametrize("call", ["barrier", "all_reduce", "wait", "future", "recv", "any source"])
def test_a_waiting_call_lets_other_threads_run(me, call):
    tensor = torch.ones(10)
    alone = {"barrier": dist.barrier,
             "all_reduce": lambda: dist.all_reduce(tensor),
             "wait": lambda: dist.all_reduce(tensor, async_op=True).wait(),
             "future": lambda: dist.all_reduce(tensor, async_op=True).get_future().wait(),
             "recv": lambda: dist.recv(tensor, src=1),
             "any source": lambda: dist.recv(tensor)}[call]
    come = {"barrier": dist.barrier, "recv": lambda: dist.send(tensor, dst=0),
            "any source": lambda: dist.send(tensor, dst=0)}.get(call, lambda: dist.all_reduce(tensor))
    use_both(me, alone, come)


def join_slowly(me):
    path = f"{me.folder}/counted"

    def join():
        dist.init_process_group(me.backend, init_method=f"file://{me.folder}/store",
                                rank=me.rank, world_size=me.size)

    if me.rank == 0:
        with counting(path):
            join()
    else:
        until_exists(path)
        join()
    return dist.get_world_size()


def test_joining_lets_other_threads_run(lone_ranks):
    assert lone_ranks(2).run(join_slowly) == [2, 2]
