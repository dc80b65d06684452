"""Real launchers, each with fresh interpreters: torchrun, mp.spawn, tutti run, and srun's environment."""
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bodies import BACKEND, TORCH, tutti_only
from test_course import DOCUMENTED

HERE = Path(__file__).parent
LIMIT_S = 120
TOOL = os.environ.get("TUTTI_TOOL", str(HERE.parents[1] / "build" / "bin" / "tutti"))
needs_tool = pytest.mark.skipif(not os.access(TOOL, os.X_OK), reason=f"there is no {TOOL}")
# What a launcher of the test's own start would leave for those that it starts.
MARKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def environment(**more):
    clean = {key: value for key, value in os.environ.items() if key not in MARKS}
    return {**clean, "OMP_NUM_THREADS": "1", **more}


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=LIMIT_S, env=environment(**more))
    return done.returncode, done.stdout, done.stderr


def check_course(output):
    """The lines of all ranks are there; those of one rank in order."""
    lines = [line.split("|", 1)[-1].strip() for line in output.splitlines()]
    for lesson, documented in DOCUMENTED.items():
        if BACKEND == "gloo" and lesson in ("reduce_scatter", "reduce"):
            continue
        for rank in range(3):
            for wanted in documented(rank):
                assert any(line.endswith(wanted) for line in lines), f"{lesson}: {wanted}\n{output}"


LESSONS = [lesson for lesson in DOCUMENTED if BACKEND != "gloo" or lesson != "reduce_scatter"]


def test_torchrun_prints_what_the_course_documents(tmp_path):
    # torch 1.13 on Python 3.11 does not know its own default for redirection: output by way of files.
    redirect = [] if TORCH >= (2, 0) else ["-r", "1", "-t", "1", "--log_dir", tmp_path]
    # As --standalone, which in 1.13 takes a port that is always the same: another test run may have it.
    code, output, errors = run(sys.executable, "-m", "torch.distributed.run", "--rdzv_backend=c10d",
                               "--rdzv_endpoint=localhost:0", *redirect, "--nproc_per_node=3",
                               HERE / "programs/course.py", "--backend", BACKEND, *LESSONS)
    assert code == 0, errors
    check_course(output)


def test_spawned_processes():
    code, output, errors = run(sys.executable, HERE / "programs/spawned.py", BACKEND, 2)
    assert code == 0, errors
    assert sorted(output.splitlines()) == ["rank 0 of 2 has 1.0", "rank 1 of 2 has 1.0"]


@needs_tool
def test_tutti_run_prints_what_the_course_documents():
    code, output, errors = run(TOOL, "run", "-n", 3, sys.executable, HERE / "programs/course.py",
                               "--backend", BACKEND, *LESSONS)
    assert code == 0, errors
    check_course(output)


def check_resumed(output):
    lines = sorted(line.split("]", 1)[-1].split(":", 1)[-1].strip() for line in output.splitlines())
    assert [line for line in lines if line.startswith("rank")] == [
        f"rank {rank} attempt 1 went on at 3 and has {1000 * 0.97**6:.2f}" for rank in range(2)], output


def test_a_program_resumes_under_torchruns_agent_with_max_restarts(tmp_path):
    code, output, errors = run(sys.executable, HERE / "programs/elastic.py", BACKEND, tmp_path / "state")
    assert code == 0, errors
    check_resumed(output)


@needs_tool
def test_a_program_resumes_under_tutti_run_with_max_restarts(tmp_path):
    code, output, errors = run(TOOL, "run", "-n", 2, "--max-restarts", 1, sys.executable,
                               HERE / "programs/resumes.py", BACKEND, tmp_path / "state")
    assert code == 0, errors
    check_resumed(output)
    assert re.search(r"tutti run: rank 1 .*SIGKILL.*; restart 1 of 1", errors), errors


WARNING = "ANYONE WHO REACHES ITS STORE CAN JOIN"


@tutti_only
@needs_tool
def test_tutti_run_keeps_its_secret_out_of_torchs_store(tmp_path):
    code, output, errors = run(TOOL, "run", "-n", 2, sys.executable, HERE / "programs/secret_word.py",
                               tmp_path / "store")
    assert code == 0, errors
    assert "sum 2.0 secret b'given'" in output, output
    assert WARNING not in errors


@tutti_only
def test_without_a_secret_rank_0_warns_once(tmp_path):
    code, _, errors = run(sys.executable, HERE / "programs/spawned.py", BACKEND, 2, "fork")
    assert code == 0 and errors.count(WARNING) == 1, errors
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    code, _, errors = run(sys.executable, HERE / "programs/spawned.py", BACKEND, 2, "fork",
                          TUTTI_SECRET_FILE=str(secret))
    assert code == 0 and WARNING not in errors, errors


@tutti_only
@needs_tool
def test_tutti_run_names_the_rank_that_gave_up():
    code, output, errors = run(TOOL, "run", "-n", 2, sys.executable, HERE / "programs/fails.py")
    assert code != 0
    assert "rank 1 gives up" in output + errors
    verdict = errors[errors.index("tutti run:"):]
    assert re.search(r"it was last in all_reduce \(4 B, f32\), the \d+\w\w operation of group ", verdict)


@tutti_only
@needs_tool
@pytest.mark.parametrize("how", ["", "forked"])
def test_a_job_that_ends_well_ends_in_silence_whatever_keeps_its_group(how):
    code, output, errors = run(TOOL, "run", "-n", 2, sys.executable, HERE / "programs/kept_group.py",
                               *filter(None, [how]), TUTTI_DEBUG="INFO", TUTTI_DEBUG_SUBSYS="WATCH")
    assert code == 0, errors
    assert "lost" not in output + errors and "failed" not in output + errors


def as_srun_does(rank, size, **more):
    return environment(SLURM_PROCID=str(rank), SLURM_NTASKS=str(size), SLURM_STEP_NUM_TASKS=str(size),
                       SLURM_LOCALID=str(rank), SLURM_STEP_TASKS_PER_NODE=str(size), SLURM_NODEID="0",
                       SLURM_JOB_ID="77", SLURM_STEP_ID="0", SLURM_STEP_NODELIST="localhost", **more)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@tutti_only
@pytest.mark.parametrize("kind", ["script", "bare"])
def test_the_environment_of_srun(kind):
    """With what sbatch scripts export for torch, and with Slurm's own variables alone."""
    port = free_port()
    more = {"MASTER_PORT": port}
    ranks = []
    for rank in range(2):
        if kind == "script":
            more.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
        ranks.append(subprocess.Popen(
            [sys.executable, str(HERE / "programs/course.py"), "all_reduce"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=as_srun_does(rank, 2, **more)))
    for rank, process in enumerate(ranks):
        output, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, errors
        assert f"After all_reduce on rank {rank}: tensor([3., 3., 3., 3., 3.])" in output
