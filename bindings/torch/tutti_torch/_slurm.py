"""What srun says, in the words that torch's env:// reads: nothing else need be exported."""

import re


def first_host(hosts):
    """The first name in Slurm's list: "gpu[07-09,12],login" gives gpu07."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,]*))?", hosts)
    if match is None:
        return "127.0.0.1"
    return "".join(part or "" for part in match.groups())


def port_of(environment):
    """One that all tasks of a step agree on, and another step of the same job hardly shares."""
    number = int(environment.get("SLURM_JOB_ID", 0)) * 31 + int(environment.get("SLURM_STEP_ID", 0))
    return 20000 + number % 12000


def fill_environment(environment):
    """Adds RANK, WORLD_SIZE and the rest where srun started this task and nobody has set them."""
    tasks = environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS"))
    started_by_srun = "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment
    if not started_by_srun or tasks is None or "RANK" in environment or "WORLD_SIZE" in environment:
        return
    hosts = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_NODELIST", ""))
    environment["RANK"] = environment["SLURM_PROCID"]
    environment["WORLD_SIZE"] = tasks
    if "SLURM_LOCALID" in environment:
        environment.setdefault("LOCAL_RANK", environment["SLURM_LOCALID"])
    environment.setdefault("MASTER_ADDR", first_host(hosts))
    environment.setdefault("MASTER_PORT", str(port_of(environment)))
