"""srun tells its tasks who they are, but not in the words that env:// reads.

Where Slurm started this process and nobody set RANK, the variables of torch's rendezvous are filled in:
`srun python3 train.py` then needs nothing else. What is set already is left alone.
"""
import re
import zlib


def fill_in(environment):
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT from Slurm's, where missing."""
    if "RANK" in environment or "SLURM_PROCID" not in environment:
        return
    if "SLURM_STEP_ID" not in environment:  # a batch script itself is no task
        return
    size = environment.get("SLURM_STEP_NUM_TASKS") or environment.get("SLURM_NTASKS")
    if not size:
        return
    step = f"{environment.get('SLURM_JOB_ID', '')}.{environment['SLURM_STEP_ID']}"
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST") or "localhost"
    environment["RANK"] = environment["SLURM_PROCID"]
    environment.setdefault("WORLD_SIZE", size)
    environment.setdefault("LOCAL_RANK", environment.get("SLURM_LOCALID", "0"))
    environment.setdefault("MASTER_ADDR", first_host(hosts))
    # Below the ports that systems hand out by themselves, and another one for every step.
    environment.setdefault("MASTER_PORT", str(15000 + zlib.crc32(step.encode()) % 15000))


def first_host(hosts):
    """Of Slurm's short form: "a[03-07,9]b,c" -> "a03b"."""
    match = re.match(r"([^,\[]*)(?:\[([0-9]+)[^\]]*\])?([^,\[]*)", hosts)
    return "".join(part or "" for part in match.groups())
