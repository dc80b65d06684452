"""Operations under way."""

import os

import numpy as np

from .device import handle_of
from .errors import InvalidArgument, TimedOut


class Work:
    """An operation that was started and goes on by itself. It keeps its arrays alive, also when
    nobody keeps the Work.

        work = tutti.all_reduce_async(gradients, out=gradients)
        …
        gradients = work.wait()          # or: await work
    """

    __slots__ = ("_work", "_finish", "_value")

    def __init__(self, work, finish):
        self._work = work
        self._finish = finish
        self._value = None

    def wait(self, timeout=None):
        """The result, once it is there. After `timeout` seconds it gives up with TimedOut and
        leaves the operation under way; so does Ctrl-C."""
        if not self._work.wait(timeout):
            raise TimedOut(f"the operation is not over after {timeout:g} s; it stays under way")
        finish, self._finish = self._finish, None
        if finish is not None:
            self._value = finish(self._work)
        return self._value

    def wait_on(self, stream=None):
        """For operations on a GPU: what is put into `stream` from now on waits for the operation;
        this thread does not. A failure that comes later is raised by wait(), and is the group's
        `health`. On CPU memory the same as wait()."""
        self._work.wait_on(handle_of(stream))
        if self._work.done():
            self.wait()

    def done(self):
        """Whether it is over, well or not. Never waits."""
        return self._work.done()

    def __await__(self):
        if not self._work.done():
            import asyncio  # here: programs that never await need not load it
            loop = asyncio.get_running_loop()
            over = loop.create_future()
            descriptor = self._work.event_fd()
            loop.add_reader(descriptor, lambda: over.done() or over.set_result(None))
            try:
                yield from over
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self.wait()

    def __repr__(self):
        return f"<tutti.Work, {'done' if self.done() else 'under way'}>"


def works_of(after):
    """What `after=` names, as the extension wants it."""
    if after is None:
        return None
    works = [after] if isinstance(after, Work) else list(after)
    if not all(isinstance(work, Work) for work in works):
        raise InvalidArgument("after= takes a tutti.Work, or a list of them")
    return tuple(work._work for work in works)


class Target:
    """Where a result goes, and what the caller gets for it."""

    __slots__ = ("array", "kind", "back", "result")

    def __init__(self, array, kind, back=None, result=None):
        self.array = array      # what the engine writes
        self.kind = kind
        self.back = back        # where the caller wants it, if that is elsewhere
        self.result = result    # what is returned; None: the array, or its scalar

    def finish(self, _=None):
        if self.back is not None:
            np.copyto(self.back, self.array)
        if self.result is not None:
            return self.result
        return self.array if self.array.ndim else self.array[()]
