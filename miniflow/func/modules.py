"""Modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.nn import Module
from miniflow.ops.joining import stack
from miniflow.tensor import Tensor


def functional_call(
    module: Module, parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]], args: Any = None,
    kwargs: Mapping[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """`module(*args, **kwargs)` with other tensors in place of its parameters and buffers, which stay as they are.

    Args:
        parameter_and_buffer_dicts: the tensors by name, or several such dicts; the module's own where none is given.
        args: the argument, or a tuple of arguments.
        tie_weights: a parameter with several names is replaced under all of them.
        strict: all parameters and buffers have to be given.

    Raises:
        ArgumentError: for names that the module does not have, or with `strict` are missing; for one given twice;
            for different tensors under the names of one parameter, unless `tie_weights` is False.

    >>> import miniflow as flow
    >>> layer = flow.nn.Linear(2, 1, bias=False)
    >>> flow.func.functional_call(layer, {"weight": flow.tensor([[1.0, 2.0]])}, flow.ones(2)).tolist()
    [3.0]

    Source: `torch.func.functional_call`.
    """
    dicts = parameter_and_buffer_dicts
    dicts = [dicts] if isinstance(dicts, Mapping) else dicts
    tensors = {name: x for mapping in dicts for name, x in mapping.items()}
    state = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    unknown, absent = sorted(tensors.keys() - state.keys()), sorted(state.keys() - tensors.keys()) if strict else []
    if unknown or absent or len(tensors) != sum(map(len, dicts)):
        message = f"got unknown names {unknown}, {absent} missing, {sum(map(len, dicts)) - len(tensors)} names twice"
        raise ArgumentError(f"functional_call: {message}; expected names of named_parameters() and named_buffers()")
    if tie_weights:
        by_identity = {id(state[name]): x for name, x in tensors.items()}
        tied = [name for name, x in tensors.items() if by_identity[id(state[name])] is not x]
        if tied:
            expected = "one tensor under all names of a parameter, or tie_weights=False"
            raise ArgumentError(f"functional_call: got other tensors under the tied names {tied}; expected {expected}")
        tensors = {name: by_identity[id(x)] for name, x in state.items() if id(x) in by_identity}
    entries = []
    for name in tensors:
        path, _, last = name.rpartition(".")
        holder = module.get_submodule(path)
        entries.append((holder._parameters if last in holder._parameters else holder._buffers, last, state[name]))
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for (table, last, _), x in zip(entries, tensors.values(), strict=True):
            table[last] = x
        return module(*args, **(kwargs or {}))
    finally:
        for table, last, x in entries:
            table[last] = x


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of models of one class, each stacked along a new first dim: for `vmap`.

    Returns:
        two dicts by name; the stacked parameters are leaves, which require grad as those of the first model do.

    Raises:
        ArgumentError: for no models, or models of different classes or modes.

    >>> import miniflow as flow
    >>> params, buffers = flow.func.stack_module_state([flow.nn.Linear(3, 2) for _ in range(4)])
    >>> {name: tuple(x.shape) for name, x in params.items()}
    {'weight': (4, 2, 3), 'bias': (4, 2)}

    Source: `torch.func.stack_module_state`.
    """
    if len({(type(model), model.training) for model in models}) != 1:
        raise ArgumentError(f"stack_module_state: got {len(models)} models; expected one class and mode")

    def stacked(tables: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {
            name: stack([table[name].detach() for table in tables]).requires_grad_(first.requires_grad)
            for name, first in tables[0].items()
        }

    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])
