"""What torch ≥ 2.5 calls at the end of `import torch` (entry points "torch.backends"), so that
init_process_group("tutti") needs no `import tutti_torch`.

A module of its own, which loads nothing: programs that do not use tutti pay nothing for it, and an
extension that was built for another torch cannot break `import torch`.
"""


def register():
    """Makes "tutti" known; the package is imported when the first group is created."""
    import torch.distributed as dist
    if dist.is_available() and not hasattr(dist.Backend, "TUTTI"):
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options, backend_options):
    import tutti_torch
    return tutti_torch._create(options, backend_options)
