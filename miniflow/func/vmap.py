"""A function of single samples, made one of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, DimError, ShapeError
from miniflow.graph.nested import CONSTANT, NAMED, SEQUENCE, TENSOR, Tree, flatten, unflatten
from miniflow.ops.generator import get_rng_state, set_rng_state
from miniflow.ops.joining import stack
from miniflow.ops.views import wrap_dim
from miniflow.tensor import Tensor


def _dims(parameter: str, dims: Any, tree: Tree) -> list[int | None]:
    """For each tensor of `tree` the dim along which it is mapped, None if it is the same for all samples."""
    uniform = dims is None or isinstance(dims, int)
    if tree.kind == TENSOR and uniform:
        return [dims]
    if tree.kind == CONSTANT and dims is None:
        return []
    if uniform and tree.kind != CONSTANT:
        child_dims = [dims] * len(tree.children)
    elif isinstance(dims, dict) and dims.keys() == set(tree.keys):
        child_dims = [dims[key] for key in tree.keys]
    elif isinstance(dims, list | tuple) and tree.kind in (SEQUENCE, NAMED) and len(dims) == len(tree.children):
        child_dims = list(dims)
    else:
        type_name = "Tensor" if tree.kind == TENSOR else tree.type.__name__
        expected = "a dim for each tensor, one or nested as they are, and None for what is no tensor"
        raise ArgumentError(f"vmap: got {parameter} {dims!r} for a {type_name}; expected {expected}")
    return [dim for d, child in zip(child_dims, tree.children, strict=True) for dim in _dims(parameter, d, child)]


def _joined(ys: tuple[Tensor, ...], dim: int | None) -> Tensor:
    """The results of all samples stacked along `dim`; without one they have to be the same."""
    if dim is not None:
        return stack(ys, wrap_dim("vmap", dim, ys[0].ndim + 1))
    for y in ys[1:]:
        if y.shape != ys[0].shape or not ((y == ys[0]) | (y != y) & (ys[0] != ys[0])).all():
            expected = "the same for all: give a dim along which to stack them"
            raise ArgumentError(f"vmap: got results that differ between samples for out_dims None; expected {expected}")
    return ys[0]


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable:
    """A function that calls `func` for each sample of a batch, in a Python loop, and stacks the results.

    It takes as long as the calls do: where speed counts, write `func` for batches. Gradients pass through it.

    Args:
        func: of tensors, or lists, tuples and dicts of them.
        in_dims: along which dim each argument is a batch, None for one that is the same for all samples; one for all
            arguments, or nested as they are. Arguments by name are passed whole to every call.
        out_dims: along which dim results are stacked, None for one that is the same for all samples; one for all
            results, or nested as they are.
        randomness: "different" lets samples draw different random numbers, "same" the same; "error" refuses them.
        chunk_size: has no effect.

    Raises:
        ShapeError: if no argument is a batch, or the batches differ in size or are empty.
        DimError: for dims that arguments or results do not have.
        ArgumentError: for random numbers where randomness is "error", dims that are not nested as what they belong to,
            results that are not tensors under a dim, are nested in several ways, or differ where `out_dims` is None.

    >>> import miniflow as flow
    >>> flow.func.vmap(flow.dot)(flow.ones(2, 3), flow.ones(2, 3)).tolist()
    [3.0, 3.0]

    Source: `torch.func.vmap`.
    """
    if randomness not in ("error", "same", "different"):
        raise ArgumentError(f"vmap: got randomness={randomness!r}; expected 'error', 'same' or 'different'")

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors, tree = flatten(args, tell=False)
        dims = _dims("in_dims", in_dims, tree)
        for x, d in zip(tensors, dims, strict=True):
            if d is not None and not -x.ndim <= d < x.ndim:
                expected = "one of its dims, or None for what is the same for all samples"
                raise DimError(f"vmap: got in_dims {d} for a tensor of {x.ndim} dims; expected {expected}")
        sizes = {x.shape[d] for x, d in zip(tensors, dims, strict=True) if d is not None}
        if len(sizes) != 1 or sizes == {0}:
            raise ShapeError(f"vmap: got batches of sizes {sorted(sizes)}; expected one size, at least 1: see in_dims")
        state = get_rng_state() if randomness == "same" else None
        before, results = _draws(), []
        for i in range(sizes.pop()):
            if randomness == "same":
                set_rng_state(state)
            sample = [x if d is None else x.select(d, i) for x, d in zip(tensors, dims, strict=True)]
            results.append(func(*unflatten(tree, sample), **kwargs))
        if randomness == "error" and _draws() != before:
            raise ArgumentError("vmap: got a function that draws random numbers; pass randomness='different' or 'same'")
        single = isinstance(results[0], Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1
        stack_dims = _dims("out_dims", out_dims[0] if single else out_dims, flatten(results[0], tell=False)[1])
        columns, trees = zip(*map(flatten, results), strict=True)
        if any(tree != trees[0] for tree in trees):
            expected = "the same structure, and the same values of what is no tensor"
            raise ArgumentError(f"vmap: got results that are not alike for all samples; expected {expected}")
        joined = [_joined(ys, d) for ys, d in zip(zip(*columns, strict=True), stack_dims, strict=True)]
        return unflatten(trees[0], joined)

    return run


def _draws() -> Any:
    """What every draw of random numbers changes: the state of the default generator, or the draws of the recording."""
    return get_rng_state().tolist() if modes.tracer is None else len(modes.tracer.program.draws.generators)
