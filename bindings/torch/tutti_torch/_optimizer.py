"""torch's face of the layer's optimizer: parameter groups, schedulers and state dictionaries work on it."""

import warnings

import torch

from tutti.errors import InvalidArgument

# What torch's own optimizers take, by default.
DEFAULTS = {"adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2},
            "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
            "sgd": {"lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0}}
# The layer's names of what it keeps of a parameter, and torch's.
TORCH_NAMES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum": "momentum_buffer", "main": "main_weight"}
_REFUSED = ("amsgrad", "maximize", "nesterov", "dampening")
_TAKEN_OVER = {torch.optim.AdamW: "adamw", torch.optim.Adam: "adam", torch.optim.SGD: "sgd"}

warnings.filterwarnings("ignore", message="GradScaler is going to stop passing itself")


def taken_over(given):
    """(kind, parameter groups, state dictionary) of one of torch's optimizers."""
    if type(given) not in _TAKEN_OVER:
        raise InvalidArgument(f"optimizer: {type(given).__name__} is none of {', '.join(DEFAULTS)}, which run on shards")
    kind = _TAKEN_OVER[type(given)]
    groups = []
    for group in given.param_groups:
        _check_group(kind, group)
        groups.append({name: value for name, value in group.items() if name in DEFAULTS[kind] or name == "params"})
    return kind, groups, given.state_dict() if given.state else None


def defaults_of(kind, numbers):
    if kind not in DEFAULTS:
        raise InvalidArgument(f"optimizer: '{kind}' is none of {', '.join(DEFAULTS)}, and none of torch's such objects")
    for name in numbers:
        if name not in DEFAULTS[kind] and name not in _REFUSED:
            raise InvalidArgument(f"{name} is nothing that DataParallel or {kind} takes")
    _check_group(kind, numbers)
    return {**DEFAULTS[kind], **{name: value for name, value in numbers.items() if name not in _REFUSED}}


def _check_group(kind, group):
    for name in _REFUSED:
        if group.get(name):
            raise InvalidArgument(f"optimizer: {name} is not implemented on shards")
    if kind == "adam" and group.get("weight_decay"):
        raise InvalidArgument("optimizer: adam's weight decay, which is added to gradients, is not implemented on shards; "
                              "take adamw")


class Optimizer(torch.optim.Optimizer):
    """What `DataParallel.optimizer` is. The step is collective, and so are the dictionaries of its state."""

    _step_supports_amp_scaling = True  # torch's GradScaler leaves scaling and looking for Inf to step

    def __init__(self, owner, kind, groups, defaults):
        self._owner = None
        super().__init__(groups, defaults)
        self._owner, self.kind = owner, kind
        for group in self.param_groups:
            _check_group(kind, group)

    def add_param_group(self, param_group):
        if getattr(self, "_owner", None) is not None:
            raise InvalidArgument("parameter groups are fixed when the module is wrapped")
        super().add_param_group(param_group)

    def numbers(self):
        """What the layer is told of each group at every step."""
        return [{name: float(value) if name != "betas" else tuple(map(float, value))
                 for name, value in group.items() if name in DEFAULTS[self.kind]} for group in self.param_groups]

    def all_numbers(self):
        """Of each group, those of schedules too (initial_lr); for a checkpoint."""
        return [{name: value for name, value in group.items() if name != "params"} for group in self.param_groups]

    def set_numbers(self, groups):
        if len(groups) != len(self.param_groups):
            raise InvalidArgument(f"there are {len(groups)} saved parameter groups, and this optimizer has "
                                  f"{len(self.param_groups)}")
        for group, theirs in zip(self.param_groups, groups):
            _check_group(self.kind, theirs)
            group.update({name: tuple(value) if name == "betas" else value for name, value in theirs.items()
                          if name != "params"})

    def step(self, closure=None, *, grad_scaler=None):
        """One update, of all ranks together: gradients that are not finite, on any, leave all as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if grad_scaler is None:
            self._owner._update(1.0)
            return loss
        if grad_scaler._per_optimizer_states[id(self)]["stage"].name == "UNSCALED":
            raise InvalidArgument("GradScaler.unscale_ saw gradients that are this rank's alone; leave it out, step unscales "
                                  "them, and clip by DataParallel(clip=…)")
        self._owner._update(grad_scaler.get_scale())
        self._tell(grad_scaler)
        return loss

    def _tell(self, grad_scaler):
        """Whether there was an Inf: what GradScaler.update looks at, set as torch's own fused optimizers set it."""
        found = float(self._owner.last_step.outcome in ("skipped", "rejected"))
        device = self.param_groups[0]["params"][0].device
        state = grad_scaler._per_optimizer_states[id(self)]
        state["found_inf_per_device"] = {device: torch.full((), found, device=device)}

    def zero_grad(self, set_to_none=True):
        """Drops what an unfinished step has added up (collective); between steps gradients are zero anyway."""
        self._owner._drop_gradients()

    def _indices(self):
        """The layer's number of each parameter, in torch's order."""
        return [self._owner._index_of(parameter) for group in self.param_groups for parameter in group["params"]]

    def state_dict(self):
        """Collective. As torch's own optimizer gives it, whole on every rank; bf16 weights have their f32 ones, too."""
        packed = super().state_dict()
        states, steps = self._owner._replica.state(), self._owner._replica.step_counts()
        packed["state"] = {place: self._as_torch(states[index], steps[index])
                           for place, index in enumerate(self._indices()) if steps[index] > 0}
        return packed

    def _as_torch(self, state, steps):
        named = {TORCH_NAMES[name]: values for name, values in state.items()}
        return {"step": torch.tensor(float(steps)), **named}

    def load_state_dict(self, state_dict):
        """Collective. What torch's own optimizer gave, or this one, on any number of ranks."""
        saved = state_dict["param_groups"]
        if [len(group["params"]) for group in saved] != [len(group["params"]) for group in self.param_groups]:
            raise InvalidArgument("load_state_dict: the saved parameter groups have other sizes than this optimizer's")
        states = [{} for _ in range(self._owner._count)]
        steps = [0] * self._owner._count
        for place, index in enumerate(self._indices()):
            given = state_dict["state"].get(place, {})
            states[index] = {name: given[theirs] for name, theirs in TORCH_NAMES.items()
                             if given.get(theirs) is not None}
            # SGD's own has no count, and needs to know only whether there was a step.
            steps[index] = int(given.get("step", 1 if given else 0))
        self.set_numbers(saved)
        self._owner._replica.set_state(states, steps)
