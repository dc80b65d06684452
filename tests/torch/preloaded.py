"""What the fork server imports before it forks: all that is slow to import."""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed  # noqa: E402, F401
import torch.nn.parallel  # noqa: E402, F401
import torch.optim  # noqa: E402, F401

try:
    import tutti_torch  # noqa: F401
except ImportError:  # the suite may run on torch's own gloo
    if os.environ.get("TUTTI_TORCH_BACKEND", "tutti") == "tutti":
        raise
