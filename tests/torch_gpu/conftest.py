"""pytest's side of the suite: worlds of spawned processes that all use cuda:0, started once per size.

    PYTHONPATH=build/python python3 -m pytest tests/torch_gpu
    TUTTI_TEST_DEVICE=cpu … python3 -m pytest tests/torch_gpu       # the bodies themselves, without a GPU

How ranks are started, and what a body is: tests/torch.
"""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "torch")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
os.environ.setdefault("TUTTI_TUNING", "fixed")  # the first group would measure the machine
os.environ.setdefault("TUTTI_TEST_DEVICE", "cuda")
torch = pytest.importorskip("torch", reason="torch is not installed")

import worlds  # noqa: E402
from bodies import BACKEND  # noqa: E402
from gpu import DEVICE, use_device, why_not  # noqa: E402

worlds.METHOD = "spawn"


class Pool:
    """One world per size, replaced when a body failed in it."""

    def __init__(self):
        self.worlds = {}

    def run(self, size, body, arguments):
        if size not in self.worlds:
            self.worlds[size] = on_device(worlds.World(size, BACKEND))
        try:
            return self.worlds[size].run(body, arguments)
        except BaseException as error:
            if not isinstance(error, pytest.skip.Exception):
                self.worlds.pop(size).close()
            raise

    def close(self):
        for world in self.worlds.values():
            world.close()


def on_device(ranks):
    """Ranks whose bodies find me.device."""
    ranks.run(use_device)
    return ranks


@pytest.fixture(scope="session")
def pool():
    pool = Pool()
    yield pool
    pool.close()


def starter(start):
    """A fixture: what `start` makes is gone after the test."""
    started = []

    def start_one(*arguments, **options):
        started.append(start(*arguments, **options))
        return on_device(started[-1])

    yield start_one
    for ranks in started:
        ranks.close()


@pytest.fixture
def lone_ranks():
    """A function that starts n fresh processes without a process group."""
    yield from starter(lambda size, environment=None: worlds.Ranks(size, BACKEND, environment))


@pytest.fixture
def lone_world():
    """A function that starts a world of its own, for tests that break it or need an environment."""
    yield from starter(lambda size, timeout_s=30.0, environment=None:
                       worlds.World(size, BACKEND, timeout_s, environment))


def pytest_collection_modifyitems(items):
    reason = why_not()
    for item in items if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_report_header():
    return f"backend: {BACKEND}, torch {torch.__version__}, device: {DEVICE}"
