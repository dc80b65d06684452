"""A torch.nn.Module as the training layer sees it: its tensors by name, and the hooks of its forward."""

import torch

from tutti.errors import InvalidArgument


def parts_of(root, units):
    """(own parameters, own buffers, children, is unit) of every module, children before parents."""
    parts, places = [], {}

    def place_of(module):
        if id(module) in places:
            return places[id(module)]
        children = [(name, place_of(child)) for name, child in module._modules.items() if child is not None]
        parts.append((_own(module._parameters), _own(module._buffers), children, module in units))
        places[id(module)] = len(parts) - 1
        return places[id(module)]

    place_of(root)
    for parameters, _, _, _ in parts:
        for name, parameter in parameters:
            if torch.nn.parameter.is_lazy(parameter):
                raise InvalidArgument(f"parameter '{name}' has no shape yet; run one forward before wrapping the module")
    return parts


def _own(tensors):
    return [(name, tensor) for name, tensor in tensors.items() if tensor is not None]


def buffers_of(parts_order):
    """The buffers of these modules as they are now; each lies in one piece."""
    buffers = [tensor for module in parts_order for _, tensor in _own(module._buffers)]
    for buffer in buffers:
        if not buffer.is_contiguous():
            buffer.data = buffer.contiguous()
    return buffers


def in_order(root):
    """Modules in the order of parts_of."""
    found, seen = [], set()

    def add(module):
        if id(module) not in seen:
            seen.add(id(module))
            for child in module._modules.values():
                if child is not None:
                    add(child)
            found.append(module)

    add(root)
    return found


def is_compiled(root):
    """Whether torch.compile was there: what it compiles calls no hooks of ours, or breaks at each of them."""
    return any(hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
               for module in root.modules())


def eager(function, recursive=True):
    """Left out by torch.compile where it comes by; what it calls, too, if `recursive`."""
    compiler = getattr(torch, "compiler", None)
    return compiler.disable(function, recursive=recursive) if hasattr(compiler, "disable") else function


def tensors_in(value):
    """The tensors in what a module returns: in lists, tuples, dictionaries and objects with fields."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def _reads(module):
    """The parameters that a module's own forward reads."""
    # Its output projection is a child whose weights it reads by itself.
    return module.named_parameters(recurse=isinstance(module, torch.nn.MultiheadAttention))


def gate_weights(replica, root):
    """Each module waits for its own parameters, no earlier than when its forward begins."""
    numbers = replica.parameters()
    for prefix, module in root.named_modules():
        names = [_join(prefix, name) for name, _ in _reads(module)]
        if names:
            gate = replica.add_gate(sorted({numbers[name] for name in names}))
            module.register_forward_pre_hook(_pass(replica, gate))


def _join(prefix, name):
    return f"{prefix}.{name}" if prefix else name


def _pass(replica, gate):
    need = replica.need

    @eager
    def before_forward(*_):
        need(gate)
    return before_forward


# ---- weights that are whole only while they are used (zero = 3)

class _Enter(torch.autograd.Function):
    """In backward: the module's weights are not read any more."""

    @staticmethod
    def forward(ctx, scope, *tensors):
        ctx.scope = scope
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        ctx.scope.done()
        return (None, *gradients)


class _Leave(torch.autograd.Function):
    """In backward: the module's weights are about to be read."""

    @staticmethod
    def forward(ctx, scope, *tensors):
        ctx.scope = scope
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        ctx.scope.need()
        return (None, *gradients)


class _Scope:
    """Where forward, and backward again, use a module's weights."""

    def __init__(self, owner, gate, module):
        self.owner, self.gate = owner, gate
        module.register_forward_pre_hook(eager(self.enter))
        module.register_forward_hook(eager(self.leave))

    def need(self):
        self.owner._on_gradient()
        self.owner._replica.need(self.gate)

    def done(self):
        self.owner._replica.done(self.gate)

    def enter(self, _, inputs):
        self.owner._replica.need(self.gate)
        return self.through(_Enter, inputs)

    def leave(self, _, inputs, outputs):
        self.done()
        if isinstance(outputs, (list, tuple)):
            through = self.through(_Leave, outputs)
            return outputs._make(through) if hasattr(outputs, "_make") else type(outputs)(through)
        if isinstance(outputs, dict):
            for name, value in zip(list(outputs), self.through(_Leave, outputs.values())):
                outputs[name] = value
            return outputs
        if not isinstance(outputs, torch.Tensor):
            raise InvalidArgument("with zero = 3 a module that owns parameters returns tensors, or a list, tuple or "
                                  f"dictionary of them, not {type(outputs).__name__}")
        return self.through(_Leave, (outputs,))[0]

    def through(self, function, values):
        """Those with a gradient pass one node, which is passed once, by whichever of them comes by."""
        values = list(values)
        chosen = [i for i, value in enumerate(values)
                  if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled()]
        if chosen:
            for i, tensor in zip(chosen, function.apply(self, *[values[i] for i in chosen])):
                values[i] = tensor
        return tuple(values)


def scope_weights(owner, root, units):
    """A scope for each unit, and for every other module that reads parameters of its own."""
    numbers = owner._replica.parameters()
    inside = {id(part) for unit in units for part in unit.modules()} - {id(unit) for unit in units}
    for prefix, module in root.named_modules():
        if id(module) in inside:
            continue
        read = module.named_parameters() if module in units else _reads(module)
        indices = sorted({numbers[_join(prefix, name)] for name, _ in read})
        if indices:
            _Scope(owner, owner._replica.add_gate(indices), module)
        if isinstance(module, torch.nn.MultiheadAttention):
            inside |= {id(part) for part in module.modules()}
