"""Any torch.nn.Module as one replica of a data-parallel training that hides its communication.

    model = tutti_torch.DataParallel(model, optimizer="adamw", lr=3e-4, zero=1, overlap=True, clip=1.0)
    loss = loss_fn(model(x), y); model.backward(loss); model.step()

Gradients are reduced beside backward, in buckets, each rank updates its shard of the weights (zero=1) and they
are gathered beside the next forward. The result is that of DistributedDataParallel with torch's optimizer.
"""

import contextlib
import dataclasses
import enum
import json
import os
import types
import warnings
import weakref

import torch
import torch.distributed as dist

from tutti.errors import Error, InvalidArgument

from . import _C, _backend, _modules, _optimizer

_GROUPS = "param_groups"  # what a checkpoint calls the numbers of the optimizer's groups
_open = weakref.WeakSet()


def _end():
    """The process is about to end: tensors leave the layer's memory while other ranks are there."""
    for model in list(_open):
        with contextlib.suppress(Error):
            model.close()


class _At(enum.Enum):
    """Where in a step a model is."""
    BEGIN = "the step has had no backward yet"
    FORWARD = "a forward was run"
    BACKWARD = "backward is under way"
    BETWEEN = "the last micro-batch is still to come"
    COMPLETE = "the gradients of this step are complete"


@dataclasses.dataclass
class StepReport:
    """Of a step; the same on all ranks. outcome: updated, skipped, rejected or empty."""
    outcome: str
    tokens: int
    grad_norm: float  # of the mean gradient, before clipping
    stop: bool        # some rank asked for it
    faults: list      # what was not finite: dictionaries of rank, is_loss, parameter, bucket
    unused: list      # parameters that no rank used, and that were not told before


@dataclasses.dataclass
class OverlapReport:
    """Where a step's time went, in milliseconds; exposed: what compute had to wait for communication."""
    step: int
    mean: dict   # over the ranks
    max: dict    # hidden: the smallest
    own: dict    # of this rank

    def __str__(self):
        mean, most = self.mean, self.max
        compute = mean["forward_ms"] + mean["backward_ms"] + mean["update_ms"]
        return (f"step {self.step}  {most['step_ms']:.1f} ms  compute {compute:.1f}  communication "
                f"{mean['communication_ms']:.1f}  exposed {mean['exposed_ms']:.1f} (max {most['exposed_ms']:.1f})  "
                f"hidden {100 * mean['hidden']:.0f} %")


def _named(faults):
    return ", ".join(f"'{fault['parameter']}'" + (f" on rank {fault['rank']}" if fault["rank"] >= 0 else "")
                     for fault in faults)


def _group_for(group):
    """One of backend tutti: the default group, where there is none yet the launcher's, else this process alone."""
    if not dist.is_initialized():
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            dist.init_process_group("tutti")
        else:
            dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
    if _C.is_tutti(_backend(group)):
        return group
    if group is not None:
        raise InvalidArgument("group: this process group is not one of backend \"tutti\"")
    return dist.new_group(backend="tutti")


class DataParallel(torch.nn.Module):
    """Wraps a module; collective, and so are step and all that says so.

    optimizer   "adamw", "adam", "sgd", or one of torch's own such objects, whose groups, numbers and state are taken
                over; numbers by torch's names and with torch's defaults: lr, betas, eps, weight_decay, momentum
    params      parameter groups, as torch's optimizers take them; absent: all parameters are one
    zero        what a rank keeps as a shard: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also weights
    overlap     communication runs beside compute; False: after it, with the same bits
    clip        the largest norm of the mean gradient, over all parameters; 0: any
    group       a process group of backend tutti; absent: the default one, which is made where there is none
    units       classes of modules whose weights are waited for at once, such as a block of layers: torch.compile makes
                one graph of each. With zero=3 they are gathered together
    bucket_mb   of gradients, in a bucket; absent: chosen by what this machine's messages cost
    grad_dtype  in which gradients cross the ranks: torch.bfloat16 halves the bytes of a reduce_scatter; they are summed in
                float32, and kept so
    check_for_nan      a step whose gradients are not finite is rejected and can be computed again, not skipped
    broadcast_buffers  rank 0's running means and the like reach every rank before each step

    The wrapped module is `module`. Move it and load it before; float32, bfloat16 and float16. `.grad` belongs to the layer: with
    zero=1 it is whole nowhere after backward, so clip by `clip`.
    """

    def __init__(self, module, optimizer="adamw", lr=None, zero=1, overlap=True, clip=0.0, params=None, group=None, *,
                 units=(), bucket_mb=None, grad_dtype=torch.float32, check_for_nan=False, reduction_order="rank", prefetch_units=0,
                 broadcast_buffers=True, **numbers):
        super().__init__()
        self.module = module
        # torch.compile of the wrapper compiles the module.
        self.forward = types.MethodType(_modules.eager(DataParallel.forward, recursive=False), self)
        saved = None
        if isinstance(optimizer, torch.optim.Optimizer):
            if params is not None or lr is not None or numbers:
                raise InvalidArgument("optimizer: an object brings its groups and numbers with it; give no others")
            optimizer, params, saved = _optimizer.taken_over(optimizer)
        if lr is not None:
            numbers["lr"] = lr
        defaults = _optimizer.defaults_of(optimizer, numbers)
        groups = params if params is not None else [p for p in module.parameters() if p.requires_grad]
        if grad_dtype not in (torch.float32, torch.bfloat16):
            raise InvalidArgument(f"grad_dtype is {grad_dtype}; there are torch.float32 and torch.bfloat16")
        if reduction_order not in ("rank", "tree"):
            raise InvalidArgument(f"reduction_order is '{reduction_order}'; there are rank and tree")
        self.optimizer = _optimizer.Optimizer(self, optimizer, groups, defaults)
        self.last_step = None  # StepReport
        self._at, self._accumulating, self._tokens, self._is_right, self._stop = _At.BEGIN, False, 1, True, False
        self._is_last = True
        words = {"zero": zero, "overlap_grad_reduce": bool(overlap) or zero >= 2,
                 "overlap_param_gather": bool(overlap) and zero in (1, 2), "check_for_nan": check_for_nan, "clip": float(clip or 0),
                 "bucket_bytes": int((bucket_mb or 0) * (1 << 20)), "prefetch_units": prefetch_units,
                 "grad_reduce_in_bf16": grad_dtype == torch.bfloat16,
                 "reduction_order": reduction_order, "optimizer": "sgd" if optimizer == "sgd" else "adamw",
                 "groups": self.optimizer.numbers(), "broadcast_buffers": broadcast_buffers}
        self._make_replica(module, _group_for(group), tuple(units), words)
        if saved is not None:
            self.optimizer.load_state_dict(saved)
        _open.add(self)

    def _make_replica(self, module, group, units, words):
        self._zero, self._kind = words["zero"], words["optimizer"]
        wholes = _modules.wholes_of(module, units)
        parts = _modules.parts_of(module, wholes if self._zero == 3 else set())
        self._parts = _modules.in_order(module)
        _modules.buffers_of(self._parts)
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        of_name = self._groups_by_name(names, module)
        first = next(module.parameters(), None)
        self._replica = _C.Replica(_backend(group), parts, of_name, words, None if first is None else first.device)
        self._numbers, self._names = self._replica.parameters(), names
        self._count, self._single_gates = len(set(self._numbers.values())), {}
        self._end_gates = []
        if self._zero == 3:
            self._end_gates = _modules.scope_weights(self, module, wholes)
        elif words["overlap_param_gather"]:
            self._end_gates = _modules.gate_weights(self._replica, module, wholes)

    def _groups_by_name(self, names, module):
        of_name = {}
        for number, group in enumerate(self.optimizer.param_groups):
            for parameter in group["params"]:
                if id(parameter) not in names:
                    raise InvalidArgument(f"params: a tensor of shape {tuple(parameter.shape)} in group {number} is no "
                                          "parameter of the module")
                of_name[names[id(parameter)]] = number
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and name not in of_name:
                raise InvalidArgument(f"params: parameter '{name}' is in no group; add it, or freeze it with "
                                      "requires_grad_(False)")
        return of_name

    def _index_of(self, parameter):
        return self._numbers[self._names[id(parameter)]]

    # ---- a step

    def forward(self, *args, **kwargs):
        if not torch.is_grad_enabled():
            self._replica.parameters_ready()
            return self.module(*args, **kwargs)
        if self._at is _At.BACKWARD:
            raise InvalidArgument("forward is out of order: the last backward has not come to its end; zero_grad() drops it")
        if self._at in (_At.BEGIN, _At.BETWEEN):
            self._begin_micro_batch(last=not self._accumulating)
        outputs = self.module(*args, **kwargs)
        reached = [tensor for tensor in _modules.tensors_in(outputs) if tensor.grad_fn is not None]
        self._replica.check_gates(reached)
        for tensor in reached:
            tensor.register_hook(self._on_gradient)
        return outputs

    def _begin_micro_batch(self, last):
        if self._at is _At.BEGIN:
            self._replica.set_buffers(_modules.buffers_of(self._parts))
        self._replica.begin_micro_batch(last)
        self._at, self._is_last = _At.FORWARD, last

    def _on_gradient(self, _=None):
        """Where loss.backward() was called, it has come to what forward returned."""
        if self._at is not _At.BACKWARD:
            self._begin_backward()
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _begin_backward(self):
        if self._at is not _At.FORWARD:
            raise InvalidArgument(
                f"backward is out of order: {self._at.value}. A forward comes first, with one backward for each; to add up "
                "several before a step, run all but the last under model.accumulate()")
        self._replica.begin_backward()
        self._at = _At.BACKWARD

    def _end_backward(self):
        self._at = _At.COMPLETE if self._is_last else _At.BETWEEN
        self._replica.end_backward()

    def backward(self, loss, gradient=None, retain_graph=False):
        """loss.backward(), which may be called as well; this one also takes a loss that reads parameters by itself."""
        self._begin_backward()
        try:
            if loss.requires_grad:  # else this rank used no parameter: all are zero here
                loss.backward(gradient, retain_graph=retain_graph)
        except BaseException:
            with contextlib.suppress(Error):
                self._end_backward()
            raise
        self._end_backward()

    def step(self, tokens=1, stop=False):
        """One update of all ranks together. Returns a StepReport.

        Gradients are divided by all ranks' `tokens`: 1, and the update is by the mean of the ranks' losses. Where a
        loss is a *sum*, say of how many: then every token counts alike, whatever rank has more. `stop`: this rank
        wants to end; StepReport.stop tells all.
        """
        self._tokens, self._stop = tokens, stop
        try:
            self.optimizer.step()
        finally:
            self._tokens, self._stop = 1, False
        return self.last_step

    def _update(self, loss_scale):
        if self._at is _At.BEGIN:
            raise InvalidArgument("step() is out of order: the step has had no backward yet")
        if self._at is _At.FORWARD:
            self._pass_without_gradients()
        if self._at is _At.BETWEEN:  # the caller did not know which micro-batch would be the last
            self._begin_micro_batch(last=True)
            self._pass_without_gradients()
        was_right, self._is_right = self._is_right, True
        self.last_step = StepReport(**self._replica.step(
            self._kind, self.optimizer.numbers(), int(self._tokens), float(loss_scale), was_right, self._stop))
        self._at = _At.BEGIN
        if self.last_step.outcome == "skipped" and loss_scale == 1.0:
            warnings.warn(f"no rank updated: gradients were not finite ({_named(self.last_step.faults)})", RuntimeWarning,
                          stacklevel=4)

    def _pass_without_gradients(self):
        self._begin_backward()
        self._end_backward()

    def _drop_gradients(self):
        if self._at in (_At.BACKWARD, _At.BETWEEN, _At.COMPLETE):
            self._replica.discard_gradients()
            self._at = _At.BEGIN

    def zero_grad(self, set_to_none=True):
        """As optimizer.zero_grad: drops what an unfinished step has added up (collective)."""
        self._drop_gradients()

    @contextlib.contextmanager
    def accumulate(self):
        """Forwards in it are micro-batches whose gradients are added up; the last one of a step is run outside.

            with model.accumulate():
                model.backward(loss_fn(model(x1), y1) / 2)
            model.backward(loss_fn(model(x2), y2) / 2)
            model.step()
        """
        before, self._accumulating = self._accumulating, True
        try:
            yield
        finally:
            self._accumulating = before

    no_sync = accumulate  # DistributedDataParallel's name

    # ---- weights

    def wait(self):
        """Every weight has the value of the last step: before reading one other than by forward. Not with zero=3."""
        self._replica.parameters_ready()

    def state_dict(self, *args, **kwargs):
        """The wrapped module's, under its own names; copies. With zero=3 collective."""
        self.wait()
        whole = self.module.state_dict(*args, **kwargs)
        gathered = self._copy_gathered(whole, kwargs.get("prefix", "")) if self._zero == 3 else set()
        for name, value in whole.items():
            if isinstance(value, torch.Tensor) and name not in gathered:
                whole[name] = value.clone()
        return whole

    def _copy_gathered(self, whole, prefix):
        """Weights that are whole one after the other, in the same order on all ranks."""
        copied = set()
        for name, number in sorted(self._numbers.items()):
            if prefix + name not in whole:
                continue
            if number not in self._single_gates:
                self._single_gates[number] = self._replica.add_gate([number])
            self._replica.need(self._single_gates[number])
            whole[prefix + name] = whole[prefix + name].clone()
            self._replica.done(self._single_gates[number])
            copied.add(prefix + name)
        return copied

    def load_state_dict(self, state_dict, strict=True):
        """Collective, with the same dictionary everywhere: weights and buffers, under the wrapped module's names."""
        if self._zero == 3:
            raise InvalidArgument("with zero=3 load weights before wrapping the module, or load_checkpoint")
        self.wait()
        result = self.module.load_state_dict(state_dict, strict=strict)
        self._replica.adopt_parameters()
        return result

    def save_checkpoint(self, folder, iteration, extra=None, keep=0):
        """Collective: weights, the optimizer's state and its groups' numbers, in files that any number of ranks loads.

        `extra`: words to find again, such as {"lr_scheduler": json.dumps(…)}; keeps the newest `keep`, 0: all.
        """
        self._replica.set_buffers(_modules.buffers_of(self._parts))
        words = {str(name): str(value) for name, value in (extra or {}).items()}
        words[_GROUPS] = json.dumps(self.optimizer.all_numbers())
        self._replica.save(os.fspath(folder), int(iteration), words, keep)

    def load_checkpoint(self, path):
        """Collective. A folder of checkpoints, whose newest is taken, or one. Returns iteration, ranks, extra, warnings."""
        self._replica.set_buffers(_modules.buffers_of(self._parts))
        found = self._replica.load(os.fspath(path))
        groups = found["extra"].pop(_GROUPS, None)  # absent: the trainer in C++ wrote it
        if groups is not None:
            self.optimizer.set_numbers(json.loads(groups))
        return found

    def weight_hash(self):
        """Collective. SHA-256 of all weights, the same whatever the number of ranks."""
        return self._replica.weight_hash()

    def check_weights(self):
        """Collective. Raises Mismatch, which names the ranks, where weights are not the same everywhere."""
        self._replica.check_weights()

    # ---- what to look at

    def report(self):
        """Where the time of the newest step went of which all ranks' times are here: OverlapReport, or None yet.

        Not collective. Ranks exchange their times beside the training; mostly it is the step before the last.
        """
        told = self._replica.report()
        return None if told is None else OverlapReport(told["step"], told["mean"], told["max"], told["ranks"][0])

    def memory(self):
        """Bytes that this rank keeps in the layer: weights, gradients, optimizer, pool."""
        return self._replica.memory()

    def describe(self):
        """Which parameter lies in which bucket, and what makes the tail."""
        return self._replica.describe()

    def close(self):
        """The module's tensors get memory of their own again, with the values they have."""
        for end in self._end_gates:
            end()
        self._end_gates = []
        self._replica.close()
        _open.discard(self)
