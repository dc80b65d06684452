"""elastic.py BACKEND FILE: resumes.py under torchrun's own agent, which restarts its two ranks once.

What `torchrun --standalone --max_restarts=1` does, but that the agent forks its ranks: torch is imported once and
not five times, which is nearly all the time that it takes.
"""
import sys
import uuid

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import resumes

config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=1, monitor_interval=0.1,
                      run_id=str(uuid.uuid4()), rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork")
elastic_launch(config, resumes.main)(*sys.argv[1:])
