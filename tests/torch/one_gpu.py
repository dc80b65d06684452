"""One GPU that passes for as many as somebody asks for: every device number means the first.

For torch's own suite, which wants a GPU for each rank. A number that reaches torch by another way than these makes a
test fail, with any backend.
"""
import sys

import torch


def first_of(value):
    """The same, on the first GPU, if it names one."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cuda", 0)
    if isinstance(value, str) and value.startswith("cuda:"):
        return "cuda:0"
    return value


class FirstGpu(torch.overrides.TorchFunctionMode):
    """Calls of torch find their devices changed."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args = [first_of(value) for value in args]
        kwargs = {name: first_of(value) for name, value in (kwargs or {}).items()}
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = 0
        if function in (torch.Tensor.cuda, torch.Tensor.to) and len(args) > 1 and type(args[1]) is int:
            args[1] = 0
        return function(*args, **kwargs)


def pretend(gpus):
    """From here on, in this process and those that it forks, there are so many."""
    torch.cuda.device_count = lambda: gpus
    known = torch._utils._get_device_index

    def index_of(*arguments, **options):
        return min(known(*arguments, **options), 0)

    for module in list(sys.modules.values()):
        if getattr(module, "_get_device_index", None) is not None and module.__name__.startswith("torch"):
            module._get_device_index = index_of
    if hasattr(torch, "accelerator"):
        torch.accelerator.device_count = lambda: gpus
        torch.accelerator.set_device_index = lambda *_: torch.cuda.set_device(0)
    FirstGpu().__enter__()  # for good


def can_be_forked():
    """Whether a forked process can use the GPU: it cannot where this one has touched CUDA."""
    process = torch.multiprocessing.get_context("fork").Process(target=torch.zeros, args=(1,),
                                                                kwargs={"device": "cuda"})
    process.start()
    process.join(60)
    return process.exitcode == 0
