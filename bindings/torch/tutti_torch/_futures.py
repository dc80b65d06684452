"""The futures of operations, and when and where functions run that are chained to them.

torch runs a chained function in whichever thread completes the future, or at once in the thread that
chains it, when it comes late. Whether it is late is chance, and another chance on every rank: functions
that start collectives would start them in another order on each. Here a function always waits for its
turn in a *strand*, which runs those that were chained to one group's futures at one depth, one after the
other, in the order in which they were chained. That order is the program's, hence the same on all ranks.
Collectives that a strand starts go to a duplicate of the group that belongs to its depth (src/levels.hpp).
A function may wait for them, for nothing that they need runs in its own strand.
"""
import collections
import functools
import os
import sys
import threading
import time
import traceback

import torch

from . import _C

IDLE_LIFE_S = 1.0   # after which a thread without work goes
END_S = 2.0         # what functions that run may take when the program ends


class Strand:
    """Runs functions in order, in a thread that comes with the first and goes when idle."""

    def __init__(self, depth):
        self.depth = depth
        self.waiting = collections.deque()
        self.changed = threading.Condition()
        self.thread = None
        self.running = False

    def add(self, function):
        with self.changed:
            self.waiting.append(function)
            self.changed.notify()
            if self.thread is None:
                thread = threading.Thread(target=self._serve, name="tutti chain", daemon=True)
                thread.start()  # which waits for this lock
                self.thread = thread

    def idle(self):
        with self.changed:
            return not self.waiting and not self.running

    def run_until(self, done):
        """In a function of this strand that waits for a later one: runs those in between."""
        while not done() and self.waiting:
            self.waiting.popleft()()

    def _serve(self):
        _C.set_chain_depth(self.depth + 1)
        while True:
            with self.changed:
                self.running = False
                if not self.changed.wait_for(lambda: self.waiting, IDLE_LIFE_S):
                    self.thread = None
                    return
                function = self.waiting.popleft()
                self.running = True
            function()
            del function  # and what it holds


class Strands:
    """All strands, by what their futures belong to and the depth at which functions are chained."""

    def __init__(self):
        self.by_key = {}
        self.lock = threading.Lock()
        self.ended = False

    def add(self, owner, function):
        """The strand that will run it; None when the program is at its end."""
        key = owner, _C.chain_depth()
        with self.lock:
            if self.ended:
                return None
            self.by_key = {k: v for k, v in self.by_key.items() if v.thread is not None or k == key}
            strand = self.by_key.setdefault(key, Strand(key[1]))
            strand.add(function)
            return strand

    def end(self):
        """Waits a moment for functions that run, and takes no more."""
        with self.lock:
            self.ended = True
            strands = list(self.by_key.values())
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline and not all(strand.idle() for strand in strands):
            time.sleep(0.001)


_strands = Strands()
end = _strands.end
os.register_at_fork(after_in_child=_strands.__init__)  # the threads stayed with the parent


class Future(torch.futures.Future):
    """A torch future whose chained functions run in their strand."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner  # Work.strand
        self.strand = None  # which runs the function whose result this will be

    def then(self, callback):
        child = Future(self.owner)
        child.strand = _strands.add(self.owner, functools.partial(_run, self, callback, child))
        return child

    def add_done_callback(self, callback):
        _strands.add(self.owner, functools.partial(_run, self, callback, None))

    def await_end(self):
        """Until there is a value or an error, without driving anything."""
        try:
            torch.futures.Future.wait(self)
        except Exception:
            pass  # whoever asks for the value finds it

    def wait(self):
        if self.strand is not None and self.strand.thread is threading.current_thread():
            self.strand.run_until(self.done)
        return super().wait()


class OperationFuture(Future):
    """The future of a Work."""

    def __init__(self, work):
        super().__init__(work.strand)
        self.work = work
        work.complete_into(self)

    def wait(self):
        self.work.drive()  # in this thread, which has nothing better to do
        return super().wait()

    def await_end(self):
        self.work.await_end()
        super().await_end()  # another thread may have been first, and not be done with it


def _run(future, callback, child):
    # Whatever is raised, sys.exit too: the strand has others to run.
    try:
        future.await_end()  # an operation is left to the progress thread
        result = callback(future)
        if child is not None:
            child.set_result(result)
    except BaseException:
        message = f"Got the following error when running the callback: {traceback.format_exc()}"
        if child is not None:
            _C.fail_future(child, message)
        else:
            print(message, file=sys.stderr)
