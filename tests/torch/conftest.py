"""pytest's side of the suite: which backend, and worlds that are started once per size.

    PYTHONPATH=build/python /usr/bin/python3 -m pytest tests/torch
    TUTTI_TORCH_BACKEND=gloo /usr/bin/python3 -m pytest tests/torch     # are the expectations right?
"""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
os.environ.setdefault("TUTTI_TUNING", "fixed")  # the first group would measure the machine
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # these are of CPU tensors (tests/torch_gpu), and torch looks at GPUs first
torch = pytest.importorskip("torch", reason="torch is not installed")

import worlds  # noqa: E402
from bodies import BACKEND  # noqa: E402


class Pool:
    """One world per size, replaced when a body failed in it."""

    def __init__(self):
        self.worlds = {}

    def run(self, size, body, arguments):
        if size not in self.worlds:
            self.worlds[size] = worlds.World(size, BACKEND)
        try:
            return self.worlds[size].run(body, arguments)
        except BaseException as error:
            if not isinstance(error, pytest.skip.Exception):
                self.worlds.pop(size).close()
            raise

    def close(self):
        for world in self.worlds.values():
            world.close()


@pytest.fixture(scope="session")
def pool():
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def lone_ranks():
    """A function that starts n fresh processes; they are gone after the test."""
    started = []

    def start(size, environment=None):
        started.append(worlds.Ranks(size, BACKEND, environment))
        return started[-1]

    yield start
    for ranks in started:
        ranks.close()


@pytest.fixture
def lone_world():
    """A function that starts a world of its own, for tests that break it."""
    started = []

    def start(size, timeout_s=30.0, environment=None):
        started.append(worlds.World(size, BACKEND, timeout_s, environment))
        return started[-1]

    yield start
    for world in started:
        world.close()


def pytest_report_header():
    return f"backend: {BACKEND}, torch {torch.__version__}, {os.cpu_count()} cores"
