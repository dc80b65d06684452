"""How a test says that its body runs on every rank, and what this torch and this backend can do."""
import functools
import inspect
import os

import pytest
import torch

BACKEND = os.environ.get("TUTTI_TORCH_BACKEND", "tutti")
TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])

needs_torch_2 = pytest.mark.skipif(TORCH < (2, 0), reason=f"torch {torch.__version__} has no such thing")
tutti_only = pytest.mark.skipif(BACKEND != "tutti", reason=f"{BACKEND} does not do this")


def torch_at_least(major, minor):
    return pytest.mark.skipif(TORCH < (major, minor),
                              reason=f"torch {torch.__version__} is older than {major}.{minor}")


def every_rank(*sizes):
    """The decorated function is run by each rank of a world of every size in `sizes`.

    Its first parameter is the Rank; others are pytest's parameters, and must be picklable.
    """
    def decorate(body):
        names = list(inspect.signature(body).parameters)[1:]

        def test(pool, size, **arguments):
            pool.run(size, test, arguments)

        functools.update_wrapper(test, body)
        del test.__wrapped__
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        test.__signature__ = inspect.Signature(
            [inspect.Parameter(name, kind) for name in ("pool", "size", *names)])
        test.body = body
        return pytest.mark.parametrize("size", sizes, ids=lambda n: f"n{n}")(test)
    return decorate


def ramp(rank, count, dtype=torch.float32, step=1):
    """Values that tell ranks and places apart: rank r has r+1, r+1+step, …; small enough for i8."""
    values = torch.arange(count) * step % 7 + rank + 1
    return values.to(dtype)


def same_on_all(tensor, group=None):
    """Whether the tensor has the same bits everywhere; collective."""
    import hashlib
    import torch.distributed as dist
    digest = hashlib.sha256(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()).digest()
    mine = torch.tensor(list(digest), dtype=torch.uint8)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine, group=group)
    return all(torch.equal(part, mine) for part in parts)
