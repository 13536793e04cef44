"""Parametrizations: a parameter is computed from others by modules, whenever it is read.

`layer.weight` then comes from `layer.parametrizations.weight.original`, which is what optimizers change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn.modules.container import ModuleDict, ModuleList
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.tensor import Tensor

_cache: dict[tuple[int, str], Tensor] | None = None


class ParametrizationList(ModuleList):
    """The modules that compute a tensor from `original`, or from original0, original1, ... if the first one's
    `right_inverse` returns several."""

    def __init__(self, modules: list[Module], original: Tensor):
        super().__init__(modules)
        with no_grad():
            value: Any = original
            for module in reversed(modules):
                value = module.right_inverse(value) if hasattr(module, "right_inverse") else value
        self.count = len(value) if isinstance(value, tuple | list) else None
        names = ["original"] if self.count is None else [f"original{i}" for i in range(self.count)]
        for name, x in zip(names, [value] if self.count is None else value, strict=True):
            if isinstance(original, Parameter):
                self.register_parameter(name, Parameter(x.detach(), original.requires_grad))
            else:
                self.register_buffer(name, x)

    def forward(self) -> Tensor:
        """The tensor."""
        first, *others = self
        names = ["original"] if self.count is None else [f"original{i}" for i in range(self.count)]
        x = first(*[getattr(self, name) for name in names])
        for module in others:
            x = module(x)
        return x


def _compute(module: Module, name: str) -> Tensor:
    if _cache is None:
        return module.parametrizations[name]()
    key = (id(module), name)
    if key not in _cache:
        _cache[key] = module.parametrizations[name]()
    return _cache[key]


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute a parameter or buffer of a module by `parametrization`, whenever it is read.

    Args:
        module: the layer.
        tensor_name: of the parameter or buffer; one that has a parametrization gets another after it.
        parametrization: called with the original tensor; its method `right_inverse`, if there is one, makes that from
            the value the parameter has now.
        unsafe: skip the check that shape and dtype stay the same.

    Raises:
        ArgumentError: if there is no such parameter or buffer.
        ShapeError: if shape or dtype do not stay the same.

    >>> import miniflow as flow
    >>> layer = register_parametrization(flow.nn.Linear(2, 2), "weight", flow.nn.ReLU())
    >>> bool((layer.weight >= 0).all()), list(layer.state_dict())
    (True, ['bias', 'parametrizations.weight.original'])

    Source: `torch.nn.utils.parametrize.register_parametrization`.
    """
    if is_parametrized(module, tensor_name):
        modules = module.parametrizations[tensor_name]
        if hasattr(parametrization, "right_inverse"):
            raise ArgumentError(
                "register_parametrization: a second parametrization with a right_inverse is not supported; "
                "remove the first one and register both in one module"
            )
        modules.append(parametrization)
        return module
    old = module._parameters.get(tensor_name)
    old = module._buffers.get(tensor_name) if old is None else old
    if old is None:
        raise ArgumentError(
            f"register_parametrization: got {tensor_name!r}; expected a parameter or buffer of {module}"
        )
    modules = ParametrizationList([parametrization], old)
    new = modules()
    if not unsafe and (new.shape != old.shape or new.dtype != old.dtype):
        raise ShapeError(
            f"register_parametrization: {tensor_name} became {tuple(new.shape)} of {new.dtype}; "
            f"expected {tuple(old.shape)} of {old.dtype}, or unsafe=True"
        )
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module._derived_tensors[tensor_name] = lambda m: _compute(m, tensor_name)
    module.parametrizations[tensor_name] = modules
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one of that name. `torch.nn.utils.parametrize.is_parametrized`."""
    lists = module._modules.get("parametrizations") or {}
    return len(lists) > 0 if tensor_name is None else tensor_name in lists


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a tensor a plain parameter again, of the value it has now, or with the original one.

    Raises:
        ArgumentError: if it is not parametrized, or the original is several tensors and is to be left.

    Source: `torch.nn.utils.parametrize.remove_parametrizations`.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"remove_parametrizations: {tensor_name!r} of {module} is not parametrized")
    modules = module.parametrizations[tensor_name]
    if not leave_parametrized and modules.count is not None:
        raise ArgumentError(f"remove_parametrizations: {tensor_name!r} has several originals; leave it parametrized")
    originals = [*modules._parameters.values(), *modules._buffers.values()]
    with no_grad():
        value = modules() if leave_parametrized else originals[0]
    del module.parametrizations[tensor_name], module._derived_tensors[tensor_name]
    if modules._parameters:
        module.register_parameter(tensor_name, Parameter(value.detach(), originals[0].requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    if not is_parametrized(module):
        del module.parametrizations
    return module


@contextmanager
def cached() -> Iterator[None]:
    """Compute every parametrized tensor once within the `with` block. `torch.nn.utils.parametrize.cached`."""
    global _cache
    outer, _cache = _cache, {} if _cache is None else _cache
    try:
        yield
    finally:
        _cache = outer
