"""Every check of device_checks on ranks that have a GPU: the emulated one of the build, or, where
TUTTI_TEST_GPU=real, the machine's."""
import os
import sys
import tempfile
from pathlib import Path

import jobs
import pytest

DRIVER = jobs.BUILD / "tests" / "fake_cuda"
REAL = os.environ.get("TUTTI_TEST_GPU") == "real"

pytestmark = pytest.mark.skipif(not REAL and not (DRIVER / "libcuda.so.1").exists(),
                                reason="the emulated CUDA driver is not built")


def names():
    text = (jobs.HERE / "device_checks.py").read_text(encoding="utf-8")
    return [line[4:line.index("(")] for line in text.splitlines() if line.startswith("def check_")]


@pytest.fixture(scope="module")
def passed():
    seen = {}

    def of(n):
        if n not in seen:
            more = {} if REAL else {"LD_LIBRARY_PATH": str(DRIVER)}
            with tempfile.TemporaryDirectory(prefix="tutti_python_") as folder:
                job = jobs.tutti_run(n, sys.executable, str(jobs.HERE / "rank_operations.py"), folder,
                                     "device_checks", **more)
                files = [Path(folder) / f"passed.{rank}" for rank in range(n)]
                lists = [set(f.read_text().split()) if f.exists() else set() for f in files]
            seen[n] = set.intersection(*lists), job.returncode, job.stdout + job.stderr
        return seen[n]

    return of


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("check", names())
def test_check(check, n, passed):
    done, _, said = passed(n)
    assert f"device_checks.{check}" in done, said


@pytest.mark.parametrize("n", [1, 3])
def test_the_job_ends_well(n, passed):
    _, code, said = passed(n)
    assert code == 0, said
