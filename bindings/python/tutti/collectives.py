"""Every operation, by name.

The rule for memory: only `out` is written. A call without it returns a new numpy array (for a
number: a numpy number), a call with it returns `out`; `out=x` is in place.

The rule for shapes: parts of different ranks lie one after another along the first axis, as
np.concatenate joins and np.split cuts them. `counts` says how long each rank's part is; without it
all are alike. `out` may have any shape with the right number of elements, or be a list of one array
per rank.

The rule for types: `out` has that of x. Where x is folded it may also be of float32, if x has 16- or
8-bit floats: then the fold is not rounded. reduce does that if all ranks pass such an `out`; away from
the root it is only looked at, so that they know.

If one array of a call is on a GPU, all are, and the result needs `out`; device.py tells of streams.
"""

import collections
import functools
import math

from . import _tutti, arrays, device
from .arrays import is_list, read, write
from .errors import InvalidArgument
from .work import Target, Work, works_of

any_source = -1

Received = collections.namedtuple("Received", "source tag bytes")
Received.__doc__ = "What a finished receive learned."
Send = collections.namedtuple("Send", "x peer tag", defaults=(0,))
Send.__doc__ = "One send of an exchange."
Recv = collections.namedtuple("Recv", "out peer tag", defaults=(any_source, 0))
Recv.__doc__ = "One receive of an exchange; without a peer: from whoever comes first."

_OPS = {word: number for word, number in _tutti.OPS.items() if word != "user"}
_COMPLEX_OPS = {_OPS[word] for word in ("sum", "avg", "premul_sum")}
_NUMBER = _tutti.COLLECTIVES
_SUM = _OPS["sum"]


def _op(op, kind):
    number = _OPS.get(op)
    if number is None:
        raise InvalidArgument(f"'{op}' is no reduction; there are {', '.join(_OPS)}")
    if kind.parts == 2 and number not in _COMPLEX_OPS:
        raise InvalidArgument(f"op '{op}' has no meaning on complex numbers")
    return number


def _is_wider(kind, than):
    """Whether a fold of `than` may leave its result in `kind`."""
    return kind.parts == than.parts and _tutti.ACCUMULATION.get(than.code) == kind.code


def _target(out, shape, kind, stream, like, spare=None, folds=False):
    """Where a result of this shape goes: `out`, or a new array where `like` is (or `spare`, which
    nobody needs)."""
    if out is None:
        return Target(arrays.new(shape, kind, like) if spare is None else spare, kind)
    array, its_kind, back = write(out, stream)
    if folds and _is_wider(its_kind, kind):
        kind = its_kind
    if its_kind != kind:
        raise InvalidArgument(f"out has dtype {getattr(out, 'dtype', array.dtype)}, the input "
                              f"{kind.dtype or arrays._ADDED_NAMES[kind.code]}")
    if array.size != math.prod(shape):
        raise InvalidArgument(f"out has {array.size} elements, the result {math.prod(shape)} "
                              f"(shape {tuple(shape)})")
    return Target(array, kind, back, out)


def _elements(counts, shape, kind, size, what):
    """Rows of each rank as elements for the engine; checks that they fill `shape`'s first axis."""
    counts = [int(count) for count in counts]
    if len(counts) != size or min(counts) < 0:
        raise InvalidArgument(f"{what}: {counts} is not one count for each of {size} ranks")
    row = math.prod(shape[1:]) * kind.parts
    return [count * row for count in counts]


def _cut(shape, size, what):
    """The shape of one of `size` equal parts."""
    if not shape or shape[0] % size:
        raise InvalidArgument(f"{what}: the first axis of shape {tuple(shape)} cannot be cut into "
                              f"{size} equal parts; say counts=")
    return (shape[0] // size, *shape[1:])


def _copied(to, array, stream):
    """`to`, with the contents of `array`, which lies beside it."""
    on_gpu = [isinstance(each, device.DeviceArray) for each in (to, array)]
    if any(on_gpu):
        if not all(on_gpu):
            raise InvalidArgument("arrays in CPU memory and on a GPU do not go together in one "
                                  "call")
        return device.copy(to, array, stream)
    to[...] = array.reshape(to.shape)
    return to


def _at_least_1d(array):
    return array if array.ndim else array.reshape(1)


class _Several:
    """One array per rank, as targets."""

    def __init__(self, outs, kind, stream):
        self.targets = []
        self.kind = kind
        for out in outs:
            array, its_kind, back = write(out, stream)
            if its_kind != kind:
                raise InvalidArgument(f"out has arrays of dtype {array.dtype}, the input "
                                      f"{kind.dtype}")
            self.targets.append(Target(array, kind, back, out))
        self.array = tuple(target.array for target in self.targets)
        self.sizes = [target.array.size for target in self.targets]
        self.result = outs

    def finish(self, _=None):
        for target in self.targets:
            target.finish()
        return self.result


def _read_list(parts, size, what, stream):
    if len(parts) != size:
        raise InvalidArgument(f"{what}: a list of {len(parts)} arrays for {size} ranks")
    sides = [read(part, stream) for part in parts]
    kinds = {kind for _, kind, _ in sides}
    if len(kinds) > 1:
        raise InvalidArgument(f"{what}: arrays of different dtypes in one list")
    return [array for array, _, _ in sides], sides[0][1]


def _stream(options):
    """The stream of a call as the driver's number, in its options from then on."""
    stream = options.get("stream")
    if stream is None:
        return 0
    stream = options["stream"] = device.handle_of(stream)
    return stream


def _async(method):
    @functools.wraps(method)
    def started(self, *args, **options):
        return method(self, *args, async_=True, **options)
    started.__name__ = method.__name__ + "_async"
    started.__qualname__ = method.__qualname__ + "_async"
    started.__doc__ = f"Starts {method.__name__} and returns its Work."
    return started


class Collectives:
    """What a Group can do. Every operation takes `timeout` (seconds; ends the group when it
    passes), `algorithm` (a word of `tutti show`), `name` (for traces), `after` (a Work or several, of
    any groups: it takes its place now and begins when they are done) and, for arrays on a GPU,
    `stream`, and has a twin that ends in _async and returns a Work."""

    def _call(self, collective, kind, inputs, target, *, in_counts=None, out_counts=None, op=_SUM,
              scalar=1.0, root=0, uneven=False, async_=False, timeout=None, algorithm=None,
              name=None, stream=None, result=None, after=None):
        number = 0
        if algorithm is not None:
            number = _tutti.ALGORITHMS.get(algorithm)
            if number is None:
                raise InvalidArgument(f"'{algorithm}' is no algorithm; there are "
                                      f"{', '.join(_tutti.ALGORITHMS)}")
        outputs = None if target is None else target.array
        result = result or (kind if target is None else target.kind)
        work = self._run(_NUMBER[collective], kind.code, result.code, inputs, outputs, in_counts,
                         out_counts, op, scalar, root, uneven, async_, timeout or 0.0, number, name,
                         stream or 0, works_of(after))
        finish = None if target is None else target.finish
        if async_:
            return Work(work, finish)
        return None if finish is None else finish()

    def _check_root(self, root):
        if not 0 <= root < self.size:
            raise InvalidArgument(f"root {root} is not a rank of a group of {self.size}")

    def _fold(self, collective, x, op, out, scalar, options):
        stream = _stream(options)
        array, kind, new = read(x, stream)
        target = _target(out, array.shape, kind, stream, array, array if new else None, True)
        return self._call(collective, kind, array, target, op=_op(op, kind), scalar=scalar,
                          **options)

    def all_reduce(self, x, op="sum", *, out=None, scalar=1.0, **options):
        """Every rank gets the fold of all ranks' x. `op`: sum prod min max avg band bor bxor, or
        premul_sum, which multiplies every x by `scalar` first."""
        if not options and scalar == 1.0 and op in _OPS:
            result = self._plain_fold(x, _OPS[op], out)
            if result is not NotImplemented:
                return result
        return self._fold("all_reduce", x, op, out, scalar, options)

    def reduce(self, x, op="sum", root=0, *, out=None, scalar=1.0, **options):
        """The root gets the fold of all ranks' x, the others None."""
        stream = _stream(options)
        array, kind, new = read(x, stream)
        target, result = None, kind
        if self.rank == root:
            target = _target(out, array.shape, kind, stream, array, array if new else None, True)
            result = target.kind
        elif out is not None:
            its_kind = write(out, stream)[1]
            result = its_kind if _is_wider(its_kind, kind) else kind
        return self._call("reduce", kind, array, target, op=_op(op, kind), scalar=scalar, root=root,
                          result=result, **options)

    def scan(self, x, op="sum", *, out=None, scalar=1.0, **options):
        """Rank r gets the fold of x of the ranks 0 … r."""
        return self._fold("scan", x, op, out, scalar, options)

    def exclusive_scan(self, x, op="sum", *, out=None, scalar=1.0, **options):
        """Rank r gets the fold of x of the ranks 0 … r-1. Rank 0 has nothing to fold: its `out`
        stays as it was, and without `out` it gets zeros."""
        stream = _stream(options)
        array, kind, _ = read(x, stream)
        target = _target(out, array.shape, kind, stream, array, folds=True)
        if out is None:
            target.array.fill(0)
        return self._call("exclusive_scan", kind, array, target, op=_op(op, kind), scalar=scalar,
                          **options)

    def broadcast(self, x=None, root=0, *, out=None, **options):
        """Every rank gets the root's x. Other ranks pass an x that is like it (its contents do not
        matter), or `out`."""
        self._check_root(root)
        if x is None and out is None:
            raise InvalidArgument("broadcast: say what array by x, or by out=")
        stream = _stream(options)
        array, kind, new = read(out if x is None else x, stream)
        target = _target(out, array.shape, kind, stream, array, array if new else None)
        if self.rank == root and target.array is not array:
            target.array = _copied(target.array, array, stream)
        return self._call("broadcast", kind, None, target, root=root, **options)

    def all_gather(self, x, *, out=None, counts=None, **options):
        """Every rank gets all ranks' x, one after another. All ranks pass the same counts."""
        return self._gather("all_gather", x, out, counts, None, options)

    def gather(self, x, root=0, *, out=None, counts=None, **options):
        """The root gets all ranks' x, one after another, the others None. If there are counts, all
        ranks pass them."""
        self._check_root(root)
        return self._gather("gather", x, out, counts, root, options)

    def _gather(self, collective, x, out, counts, root, options):
        stream = _stream(options)
        array, kind, _ = read(x, stream)
        array = _at_least_1d(array)
        if counts is None:
            shape = (array.shape[0] * self.size, *array.shape[1:])
        else:
            shape = (sum(counts), *array.shape[1:])
            counts = _elements(counts, shape, kind, self.size, collective)
            if counts[self.rank] != array.size * kind.parts:
                raise InvalidArgument(f"{collective}: x of shape {array.shape} is not as long as "
                                      f"counts says for rank {self.rank}")
        target = None
        if root is None or root == self.rank:
            target = _Several(out, kind, stream) if is_list(out) else \
                _target(out, shape, kind, stream, array)
        several = isinstance(target, _Several)
        if several and root is not None and counts is None and len(set(target.sizes)) > 1:
            raise InvalidArgument("gather: parts of different length need counts on all ranks")
        uneven = counts is not None or (several and root is None and len(set(target.sizes)) > 1)
        return self._call(collective, kind, array, target, out_counts=None if several else counts,
                          root=root or 0, uneven=uneven, **options)

    def scatter(self, x=None, root=0, *, out=None, counts=None, **options):
        """Rank r gets part r of the root's x, which may be a list of one array per rank. Other
        ranks pass an x that is like it, or `out`. If there are counts, all ranks pass them."""
        self._check_root(root)
        if self.rank != root and out is not None:
            array, kind, back = write(out, _stream(options))
            target = Target(array, kind, back, out)
            return self._call("scatter", kind, None, target, root=root, uneven=counts is not None,
                              **options)
        if x is None:
            raise InvalidArgument("scatter: the root has to say x, the others out= or an x like it")
        return self._spread("scatter", x, out, counts, options, root=root,
                            uneven=counts is not None)

    def reduce_scatter(self, x, op="sum", *, out=None, counts=None, scalar=1.0, **options):
        """Rank r gets the fold of all ranks' part r. x may be a list of one array per rank. All
        ranks pass the same counts."""
        return self._spread("reduce_scatter", x, out, counts, options, op=op, scalar=scalar)

    def _spread(self, collective, x, out, counts, options, op=None, root=None, **more):
        stream = _stream(options)
        if is_list(x) and len(x) == self.size:
            parts, kind = _read_list(x, self.size, collective, stream)
            if root is not None and counts is None and len({part.size for part in parts}) > 1:
                raise InvalidArgument("scatter: parts of different length need counts on all ranks")
            shape, inputs, counts = parts[self.rank].shape, tuple(parts), None
        else:
            inputs, kind, _ = read(x, stream)
            if counts is None:
                shape = _cut(inputs.shape, self.size, collective)
            else:
                shape = (int(counts[self.rank]), *inputs.shape[1:])
                if sum(counts) != inputs.shape[0]:
                    raise InvalidArgument(f"{collective}: counts {list(counts)} do not fill the "
                                          f"first axis of shape {inputs.shape}")
                counts = _elements(counts, inputs.shape, kind, self.size, collective)
        like = inputs[0] if isinstance(inputs, tuple) else inputs
        target = _target(out, shape, kind, stream, like, folds=op is not None)
        if op is not None:
            more["op"] = _op(op, kind)
        if root is not None:
            more["root"] = root
            if root != self.rank:
                inputs = counts = None
        return self._call(collective, kind, inputs, target, in_counts=counts, **more, **options)

    def all_to_all(self, x, *, out=None, counts=None, out_counts=None, **options):
        """Part r of rank s's x becomes part s of rank r's result. `counts` cuts x, `out_counts` the
        result: both on all ranks, or none. x may be a list of one array per rank; `out` is one,
        too."""
        if (counts is None) != (out_counts is None):
            raise InvalidArgument("all_to_all: counts and out_counts go together")
        stream = _stream(options)
        if is_list(x) and is_list(out):
            parts, kind = _read_list(x, self.size, "all_to_all", stream)
            return self._call("all_to_all", kind, tuple(parts), _Several(out, kind, stream),
                              uneven=True, **options)
        array, kind, _ = read(x, stream)
        shape = array.shape
        if counts is None:
            _cut(shape, self.size, "all_to_all")
        else:
            if sum(counts) != shape[0]:
                raise InvalidArgument(f"all_to_all: counts {list(counts)} do not fill the first "
                                      f"axis of shape {shape}")
            counts = _elements(counts, shape, kind, self.size, "all_to_all")
            shape = (sum(out_counts), *shape[1:])
            out_counts = _elements(out_counts, shape, kind, self.size, "all_to_all")
        target = _target(out, shape, kind, stream, array)
        return self._call("all_to_all", kind, array, target, in_counts=counts,
                          out_counts=out_counts, uneven=counts is not None, **options)

    def barrier(self, **options):
        """Nobody leaves before everybody came."""
        return self._call("barrier", arrays.Kind(0, 1, None), None, None, **options)

    def send(self, x, peer, tag=0, **options):
        """Sends x to a rank. May wait for its receive."""
        self._exchange([Send(x, peer, tag)], False, **options)

    def recv(self, out, source=any_source, tag=0, **options):
        """Receives into `out`, which may be larger than the message; returns what was Received."""
        return self._exchange([Recv(out, source, tag)], False, **options)

    def isend(self, x, peer, tag=0, **options):
        """Starts a send and returns its Work."""
        return self._exchange([Send(x, peer, tag)], True, **options)

    def irecv(self, out, source=any_source, tag=0, **options):
        """Starts a receive and returns its Work, whose wait() gives what was Received."""
        return self._exchange([Recv(out, source, tag)], True, **options)

    def exchange(self, transfers, *, async_=False, **options):
        """Runs a list of tutti.Send and tutti.Recv as one: in whatever order they stand, they
        cannot deadlock. Returns what the last receive of the list got."""
        return self._exchange(transfers, async_, **options)

    def _exchange(self, transfers, async_, timeout=None, name=None, stream=None, after=None):
        rows, targets, stream = [], [], device.handle_of(stream)
        for each in transfers:
            if isinstance(each, Recv):
                array, kind, back = write(each.out, stream)
                targets.append(Target(array, kind, back, each.out))
                peer = any_source if each.peer is None else each.peer
                rows.append((False, array, kind.code, peer, each.tag))
            elif isinstance(each, Send):
                array, kind, _ = read(each.x, stream)
                rows.append((True, array, kind.code, each.peer, each.tag))
            else:
                raise InvalidArgument("exchange takes a list of tutti.Send and tutti.Recv")

        def finish(received):
            for target in targets:
                target.finish()
            return Received(*received) if targets else None

        answer = self._group.exchange(rows, async_, timeout or 0.0, name, stream, works_of(after))
        return Work(answer, lambda work: finish(work.received())) if async_ else finish(answer)


# Every collective has such a twin; one that has no method here does not import.
for _name in [*_NUMBER, "exchange"]:
    setattr(Collectives, _name + "_async", _async(getattr(Collectives, _name)))
del _name
