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


def is_compiled(module):
    """Whether torch.compile made it one: hooks inside of it are not called, or break its graph."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def wholes_of(root, units):
    """Modules that wait for all weights below them at once: of the classes `units`, and what was compiled."""
    return {part for part in root.modules() if isinstance(part, units) or is_compiled(part)}


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


def _readers(root, wholes, numbers):
    """(module, numbers of the parameters that it reads): of each whole, all below it, else its own and its lists'."""
    inside = set()
    for prefix, module in root.named_modules():
        if id(module) in inside:
            continue
        # MultiheadAttention reads the weights of its output projection, a child, by itself.
        with_children = module in wholes or isinstance(module, torch.nn.MultiheadAttention)
        read = set(_numbers_below(module, prefix, numbers, with_children))
        if with_children:
            inside |= {id(part) for part in module.modules()}
        for name, child in module.named_children():
            if isinstance(child, (torch.nn.ParameterList, torch.nn.ParameterDict)):  # which nobody calls
                read |= set(_numbers_below(child, _join(prefix, name), numbers, True))
                inside |= {id(part) for part in child.modules()}
        if read:
            yield module, sorted(read)


def _numbers_below(module, prefix, numbers, with_children):
    return [numbers[_join(prefix, name)] for name, _ in module.named_parameters(recurse=with_children)]


def _join(prefix, name):
    return f"{prefix}.{name}" if prefix else name


def _around(module, before, after=None):
    """Calls before(module, inputs) and after(module, inputs, outputs) around each call of it. Returns what ends that."""
    compiled = getattr(module, "_compiled_call_impl", None)
    if compiled is None:
        handles = [module.register_forward_pre_hook(eager(before))]
        # Before others': that of weight_norm reads parameters, too.
        module._forward_pre_hooks.move_to_end(handles[0].id, last=False)
        if after is not None:
            handles.append(module.register_forward_hook(eager(after)))
        return lambda: [handle.remove() for handle in handles]
    before, after = eager(before), eager(after) if after is not None else None

    def call(*inputs, **named):  # by module.compile(), which takes hooks into its graph
        changed = before(module, inputs)
        outputs = compiled(*(inputs if changed is None else changed), **named)
        changed = None if after is None else after(module, inputs, outputs)
        return outputs if changed is None else changed

    module._compiled_call_impl = call
    return lambda: setattr(module, "_compiled_call_impl", compiled)


def gate_weights(replica, root, wholes):
    """Each module waits for the parameters that it reads, no earlier than when it is called. Returns what ends that."""
    need = replica.need

    def pass_gate(gate):
        def before_forward(*_):
            need(gate)
        return before_forward

    return [_around(module, pass_gate(replica.add_gate(read)))
            for module, read in _readers(root, wholes, replica.parameters())]


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

    def __init__(self, owner, gate):
        self.owner, self.gate = owner, gate

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


def scope_weights(owner, root, wholes):
    """A scope for each module that reads parameters. Returns what ends them."""
    replica, ends = owner._replica, []
    for module, read in _readers(root, wholes, replica.parameters()):
        scope = _Scope(owner, replica.add_gate(read))
        ends.append(_around(module, scope.enter, scope.leave))
    return ends
