"""Every check of the *_checks modules, on 1 to 4 ranks that `tutti run` started."""
import importlib
import sys
import tempfile
from pathlib import Path

import jobs
import pytest

MODULES = ["collective_checks", "memory_checks", "group_checks"]


def names():
    for module in MODULES:
        for name in vars(importlib.import_module(module)):
            if name.startswith("check_"):
                yield f"{module}.{name}"


@pytest.fixture(scope="module")
def passed():
    """Runs a job once per number of ranks; gives the checks that passed on all of them, and what
    the job said."""
    seen = {}

    def of(n):
        if n not in seen:
            with tempfile.TemporaryDirectory(prefix="tutti_python_") as folder:
                job = jobs.tutti_run(n, sys.executable, str(jobs.HERE / "rank_operations.py"),
                                     folder, *MODULES)
                files = [Path(folder) / f"passed.{rank}" for rank in range(n)]
                lists = [set(f.read_text().split()) if f.exists() else set() for f in files]
            seen[n] = set.intersection(*lists), job.returncode, job.stdout + job.stderr
        return seen[n]

    return of


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("check", names())
def test_check(check, n, passed):
    done, _, said = passed(n)
    assert check in done, said


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_job_ends_well(n, passed):
    _, code, said = passed(n)
    assert code == 0, said
