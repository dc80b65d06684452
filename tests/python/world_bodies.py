"""Ranks that meet in other ways: threads, a server's store, actors; other libraries' arrays."""
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import tutti


def threads_of_one_process(rank, size, folder):
    """Four ranks that are threads, and no default group."""
    store = tutti.Store.memory()
    results = [None] * 4

    def work(r):
        with tutti.Group.create(store, r, 4, timeout=60) as group:
            total = group.all_reduce(np.full(1000, float(r)))
            results[r] = [float(total[0]), group.all_gather(r).tolist()]

    threads = [threading.Thread(target=work, args=(r,)) for r in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def meet_at_a_server(rank, size, folder):
    store = tutti.Store.connect(os.environ["STORE_ADDRESS"], secret="known to the ranks")
    with tutti.init(rank, size, store.prefix("job7/"), timeout=60) as group:
        return group.all_gather(rank).tolist()


def stores(rank, size, folder):
    for store in (tutti.Store.memory(), tutti.Store.file(f"{folder}/plain")):
        store.set("greeting", "hello")
        store.set("bytes", b"\x00\xff")
        store.wait("greeting", timeout=1)
        assert store.get("greeting") == b"hello" and store.get("bytes") == b"\x00\xff"
        assert store.add("counter") == 1 and store.add("counter", 41) == 42
        assert store.compare_set("greeting", b"hello", b"bye") == b"bye"
        assert store.remove("greeting") and not store.remove("greeting")
        try:
            store.get("never", timeout=0.01)
        except tutti.TimedOut as error:
            assert "never" in str(error)
        else:
            raise AssertionError("an absent key was got")
    for bad in ("nowhere", "file"):
        try:
            tutti.init(0, 1, bad)
        except tutti.InvalidArgument as error:
            assert bad in str(error)
        else:
            raise AssertionError(f"store '{bad}' was taken")
    try:
        tutti.init(rank=0)
    except tutti.InvalidArgument as error:
        assert "go together" in str(error)
    return True


class Worker:
    """An actor, as Ray has them: it lives in a process of its own and is told what to do."""

    def __init__(self, rank, size, store):
        self.group = tutti.init(rank, size, store, timeout=60)
        self.weights = np.zeros(5)

    def step(self, gradient):
        return tutti.all_reduce(np.asarray(gradient), "avg")

    def fail(self, _):
        return tutti.all_reduce(np.ones(self.group.rank + 1))

    def leave(self, _):
        tutti.finalize()
        return tutti.is_initialized()


def serve(pipe, *arguments):
    worker = Worker(*arguments)
    while True:
        method, argument = pipe.recv()
        try:
            answer = getattr(worker, method)(argument)
        except Exception as error:
            answer = error
        pipe.send(answer)
        if method == "leave":
            return


def actors(rank, size, folder):
    """The driver: spawned workers meet through a file, results and errors come back pickled."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for r in range(3):
        mine, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, r, 3, f"file:{folder}/store"))
        process.start()
        pipes.append(mine)
        processes.append(process)

    def all_do(method, arguments):
        for pipe, argument in zip(pipes, arguments):
            pipe.send((method, argument))
        return [pipe.recv() for pipe in pipes]

    for answer in all_do("step", [[0.0, 3.0], [3.0, 3.0], [6.0, 3.0]]):
        assert answer.tolist() == [3.0, 3.0]
    for error in all_do("fail", range(3)):
        assert isinstance(error, tutti.Mismatch) and "all_reduce" in str(error), error
    assert all_do("leave", range(3)) == [False] * 3
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def raise_one(_):
    raise tutti.errors.from_code("peer_lost", "rank 2 is gone", 0, 2, 17)


def pool(rank, size, folder):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        error = executor.submit(raise_one, 0).exception()
    return [type(error).__name__, str(error), error.code, error.rank, error.peer, error.sequence]


def again_and_again(rank, size, folder):
    """The default group is made, left and made again."""
    for round in range(3):
        assert not tutti.is_initialized()
        tutti.init(rank, size, f"file:{folder}/store{round}", timeout=60)
        assert tutti.all_reduce(1) == size
        tutti.finalize()
        tutti.finalize()
    try:
        tutti.all_reduce(1)
    except tutti.InvalidArgument as error:
        return "tutti.init()" in str(error)


def torch_tensors(rank, size, folder):
    import torch
    tutti.init(rank, size, f"file:{folder}/store", timeout=60)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                  torch.int8, torch.uint8, torch.complex64):
        x = torch.arange(6).reshape(2, 3).to(dtype)
        assert tutti.all_reduce(x, out=x) is x
        assert torch.equal(x, (torch.arange(6).reshape(2, 3) * size).to(dtype)), x
        turned = torch.arange(6).reshape(2, 3).to(dtype).t()
        tutti.all_reduce(turned, out=turned)
        assert torch.equal(turned, (torch.arange(6).reshape(2, 3).t() * size).to(dtype)), turned
    assert tutti.all_reduce(torch.ones(2)).tolist() == [size, size]
    into = [torch.zeros(2, dtype=torch.bfloat16) for _ in range(size)]
    tutti.all_gather(torch.full((2,), rank, dtype=torch.bfloat16), out=into)
    assert [part.tolist() for part in into] == [[r, r] for r in range(size)]
    if rank == 0:
        tutti.send(torch.ones(3), 1)
    else:
        x = torch.zeros(3)
        tutti.recv(x, 0)
        assert x.tolist() == [1, 1, 1]
    # Without ml_dtypes a bf16 result has no numpy type: the error says what to do.
    try:
        return str(tutti.all_reduce(torch.ones(2, dtype=torch.bfloat16)).dtype)
    except tutti.Unsupported as error:
        return str(error)


def added_types(rank, size, folder):
    import ml_dtypes
    tutti.init(rank, size, f"file:{folder}/store", timeout=60)
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        result = tutti.all_reduce(np.arange(4).astype(dtype))
        assert result.dtype == dtype
        assert result.astype("f4").tolist() == [0, size, 2 * size, 3 * size]
    return True
