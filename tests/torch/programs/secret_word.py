"""Ranks meet in torch's store, in a file: rank 0 prints what everybody can read there of the secret."""
import os
import re
import sys

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401, registers the backend

path = sys.argv[1]
dist.init_process_group("tutti", init_method=f"file://{path}", rank=int(os.environ["RANK"]),
                        world_size=int(os.environ["WORLD_SIZE"]))
one = torch.ones(1)
dist.all_reduce(one)
if dist.get_rank() == 0:
    with open(path, "rb") as file:
        word = re.search(rb"/secret.{4,8}?(given)", file.read(), re.DOTALL)
    print("sum", one.item(), "secret", word and word.group(1))
dist.destroy_process_group()
