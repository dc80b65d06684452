"""How a task of srun finds itself: pure functions, no processes."""
import pytest

slurm = pytest.importorskip("tutti_torch._slurm")

TASK = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[03-06]"}


def filled(**changes):
    environment = {key: value for key, value in {**TASK, **changes}.items() if value is not None}
    slurm.fill_in(environment)
    return environment


def test_torchs_variables_are_filled_in():
    found = filled()
    assert (found["RANK"], found["WORLD_SIZE"], found["LOCAL_RANK"]) == ("3", "8", "1")
    assert found["MASTER_ADDR"] == "node03"
    assert 15000 <= int(found["MASTER_PORT"]) < 30000


def test_every_task_of_a_step_finds_the_same_port_and_steps_differ():
    assert filled()["MASTER_PORT"] == filled(SLURM_PROCID="0")["MASTER_PORT"]
    assert filled()["MASTER_PORT"] != filled(SLURM_STEP_ID="1")["MASTER_PORT"]


def test_what_is_set_is_left_alone():
    assert filled(MASTER_ADDR="10.0.0.1", MASTER_PORT="29500")["MASTER_ADDR"] == "10.0.0.1"
    assert "WORLD_SIZE" not in filled(RANK="0")  # somebody else has begun: it is theirs to finish


@pytest.mark.parametrize("missing", ["SLURM_PROCID", "SLURM_STEP_ID"])
def test_no_task_no_change(missing):
    assert "RANK" not in filled(**{missing: None})


@pytest.mark.parametrize("hosts,first", [("node3", "node3"), ("node[03-07,9]", "node03"),
                                         ("a[1-2]b,c", "a1b"), ("n1,n2", "n1"),
                                         ("x-[12,14]-ib", "x-12-ib")])
def test_the_first_host_of_a_list(hosts, first):
    assert slurm.first_host(hosts) == first
