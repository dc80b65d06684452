"""Worlds of real processes for the tests of the torch backend.

Importing torch takes seconds, a fork of a process that has done so takes milliseconds: all ranks are
forked from one server (multiprocessing's forkserver) that has imported torch and never used it.

  World(n)       n ranks in one process group, which run one body after the other; reused by tests
  lone_ranks(n)  n fresh processes without a process group, for faults and for ways to initialise

A body is a function of a test module. It is named, not shipped: a rank imports the module itself.

tests/torch_gpu sets METHOD to "spawn" and gets fresh processes: what has touched CUDA cannot be forked.
"""
import importlib
import multiprocessing
import os
import shutil
import tempfile
import time
import traceback
from multiprocessing import connection

BODY_LIMIT_S = 60.0  # against hangs only
LAGGARD_S = 10.0     # once one rank has failed, what the others may still take
METHOD = "forkserver"
_context = None


class BodyFailed(AssertionError):
    """Some rank raised, hung or died; the message has every such rank's story."""


def context():
    """The server is started with the environment of the first call."""
    global _context
    if _context is None:
        # The server finds modules by its environment: it gets no sys.path before Python 3.13.
        folders = [os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        _context = multiprocessing.get_context(METHOD)
        if METHOD == "forkserver":
            _context.set_forkserver_preload(["pytest", "preloaded"])
    return _context


class Rank:
    """What a body is given: where it runs. Attributes that bodies set stay with the rank."""

    def __init__(self, rank, size, backend, folder):
        self.rank, self.size, self.backend, self.folder = rank, size, backend, folder

    @property
    def next(self):
        return (self.rank + 1) % self.size

    @property
    def previous(self):
        return (self.rank - 1) % self.size


def _body(module, name):
    function = getattr(importlib.import_module(module), name)
    return getattr(function, "body", function)


def _serve(pipe, rank, environment):
    """Runs in the rank's process: bodies come in, results go out, until the parent hangs up."""
    os.environ.update(environment)
    import preloaded  # noqa: F401  (the server's own attempt fails without a word)
    import torch
    torch.set_num_threads(1)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            os._exit(0)  # no tear-down: what it would wait for may be gone
        try:
            module, name, arguments = request
            answer = ("result", _body(module, name)(rank, **arguments))
        except BaseException as error:  # also pytest's Skipped, which is no Exception
            if type(error).__name__ == "Skipped":
                answer = ("skipped", str(error))
            else:
                answer = ("raised", traceback.format_exc())
        pipe.send(answer)


class Ranks:
    """Processes that run bodies on demand."""

    def __init__(self, size, backend, environment=None):
        self.size = size
        self.folder = tempfile.mkdtemp(prefix="tutti_torch_")
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context().Pipe()
            self.processes.append(context().Process(
                target=_serve, args=(theirs, Rank(rank, size, backend, self.folder),
                                     environment or {}), daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)

    def start(self, body, arguments=None, only=None):
        """Asks the ranks (or those in `only`) to run a body; `collect` has the answers."""
        for rank in range(self.size) if only is None else only:
            self.pipes[rank].send((body.__module__, body.__name__, arguments or {}))

    def collect(self, only=None, limit_s=BODY_LIMIT_S):
        """rank -> ('result' | 'raised' | 'skipped' | 'died' | 'hung', what)."""
        waiting = set(range(self.size) if only is None else only)
        deadline = time.monotonic() + limit_s
        answers = {}
        while waiting:
            left = deadline - time.monotonic()
            ready = connection.wait([self.pipes[r] for r in waiting], timeout=max(0.0, left))
            for rank in [r for r in waiting if self.pipes[r] in ready]:
                answers[rank] = self._receive(rank)
                waiting.remove(rank)
                if answers[rank][0] in ("raised", "died"):
                    deadline = min(deadline, time.monotonic() + LAGGARD_S)
            if not ready:
                answers.update({rank: ("hung", f"no answer in {limit_s:.0f} s") for rank in waiting})
                break
        return answers

    def _receive(self, rank):
        try:
            return self.pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            self.processes[rank].join(5)
            return ("died", f"exit code {self.processes[rank].exitcode}")

    def run(self, body, arguments=None, limit_s=BODY_LIMIT_S):
        """The bodies' results by rank. Raises BodyFailed, after which these ranks are of no use."""
        self.start(body, arguments)
        answers = self.collect(limit_s=limit_s)
        bad = {rank: answer for rank, answer in sorted(answers.items())
               if answer[0] not in ("result", "skipped")}
        if bad:
            raise BodyFailed("\n".join(f"--- rank {rank} of {self.size} {kind}:\n{story}"
                                       for rank, (kind, story) in bad.items()))
        if any(kind == "skipped" for kind, _ in answers.values()):
            import pytest
            pytest.skip(next(story for kind, story in answers.values() if kind == "skipped"))
        return [answers[rank][1] for rank in range(self.size)]

    def kill(self, rank):
        self.processes[rank].kill()

    def close(self, patience_s=0.0):
        """Hangs up; a rank that does not go by itself within `patience_s` is killed."""
        for pipe in self.pipes:
            pipe.close()
        deadline = time.monotonic() + patience_s
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def serve_store(rank):
    """Rank 0's half of the rendezvous: a TCP store on a port that the system chose."""
    from datetime import timedelta
    import torch.distributed as dist
    rank.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                               timeout=timedelta(seconds=60))
    return rank.store.port


def join_world(rank, port, timeout_s):
    from datetime import timedelta
    import torch.distributed as dist
    if rank.rank != 0:
        rank.store = dist.TCPStore("127.0.0.1", port, is_master=False,
                                   timeout=timedelta(seconds=60))
    dist.init_process_group(rank.backend, store=rank.store, rank=rank.rank, world_size=rank.size,
                            timeout=timedelta(seconds=timeout_s))


class World(Ranks):
    """Ranks that have joined one process group over a TCP store."""

    def __init__(self, size, backend, timeout_s=30.0, environment=None):
        super().__init__(size, backend, environment)
        try:
            self.start(serve_store, only=[0])
            kind, port = self.collect(only=[0])[0]
            if kind != "result":
                raise BodyFailed(f"rank 0 could not serve a store: {port}")
            self.run(join_world, {"port": port, "timeout_s": timeout_s})
        except BaseException:
            self.close()
            raise
