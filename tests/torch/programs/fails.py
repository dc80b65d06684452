"""Rank 1 raises in the middle; the others must learn of it and say so. Any launcher."""
import sys

import torch
import torch.distributed as dist
import tutti_torch

dist.init_process_group("tutti")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    raise SystemExit("rank 1 gives up")
try:
    dist.all_reduce(torch.ones(1))
except tutti_torch.Error as error:
    print(f"rank {dist.get_rank()} caught {type(error).__name__}: {error}", flush=True)
    sys.exit(3)
