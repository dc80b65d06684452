"""resumes.py BACKEND FILE: six steps, each saved; the first attempt loses rank 1 before the fourth."""
import os
import signal
import sys

import torch
import torch.distributed as dist


def main(backend, path):
    if backend == "tutti":
        import tutti_torch  # noqa: F401
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group(backend)
    rank = dist.get_rank()
    state = torch.load(path) if os.path.exists(path) else {"step": 0, "weight": torch.ones(1000)}
    first, weight = state["step"], state["weight"]
    for step in range(first, 6):
        if step == 3 and rank == 1 and attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = weight * (rank + 1)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        if rank == 0:
            torch.save({"step": step + 1, "weight": weight}, path + ".new")
            os.replace(path + ".new", path)
        dist.barrier()
    # In one write: ranks may share the pipe.
    line = f"rank {rank} attempt {attempt} went on at {first} and has {weight.sum().item():.2f}\n"
    os.write(sys.stdout.fileno(), line.encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
