"""A function of single samples, made one of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from miniflow.errors import ArgumentError, ShapeError
from miniflow.graph.nested import flatten, unflatten
from miniflow.ops.generator import get_rng_state, set_rng_state
from miniflow.ops.join import stack


def _dims(dims: Any, value: Any) -> list[int | None]:
    """For each tensor in `value` the dim along which it is mapped, None if it is the same for all samples."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(flatten(value, tell=False)[0])
    if not isinstance(value, dict | list | tuple) or len(dims) != len(value):
        raise ArgumentError(f"vmap: got dims {dims!r} for {type(value).__name__}; expected those of each part, or one")
    pairs = [(dims[k], v) for k, v in value.items()] if isinstance(value, dict) else zip(dims, value, strict=True)
    return [dim for part, v in pairs for dim in _dims(part, v)]


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable:
    """A function that calls `func` for each sample of a batch, in a Python loop, and stacks the results.

    It takes as long as the calls do: where speed counts, write `func` for batches. Gradients pass through it.

    Args:
        func: of tensors, or lists, tuples and dicts of them.
        in_dims: along which dim each argument is a batch, None for one that is the same for all samples; one for all
            arguments, or nested as they are. Arguments by name are batches along dim 0.
        out_dims: along which dim results are stacked, None for one that is the same for all samples; one for all
            results, or nested as they are.
        randomness: "different" lets samples draw different random numbers, "same" the same; "error" refuses them.
        chunk_size: has no effect.

    Raises:
        ShapeError: if no argument is a batch, or the batches differ in size or are empty.
        ArgumentError: for random numbers where randomness is "error", and dims that do not match.

    >>> import miniflow as flow
    >>> flow.func.vmap(flow.dot)(flow.ones(2, 3), flow.ones(2, 3)).tolist()
    [3.0, 3.0]

    Source: `torch.func.vmap`.
    """
    if randomness not in ("error", "same", "different"):
        raise ArgumentError(f"vmap: got randomness={randomness!r}; expected 'error', 'same' or 'different'")

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        tensors, tree = flatten((args, kwargs), tell=False)
        dims = _dims(in_dims, args) + _dims(0, kwargs)
        sizes = {x.shape[d] for x, d in zip(tensors, dims, strict=True) if d is not None}
        if len(sizes) != 1 or sizes == {0}:
            raise ShapeError(f"vmap: got batches of sizes {sorted(sizes)}; expected one size, at least 1: see in_dims")
        state, results = get_rng_state(), []
        for i in range(sizes.pop()):
            if randomness == "same":
                set_rng_state(state)
            parts = [x if d is None else x.select(d, i) for x, d in zip(tensors, dims, strict=True)]
            sample, named = unflatten(tree, parts)
            results.append(func(*sample, **named))
        if randomness == "error" and not state.equal(get_rng_state()):
            raise ArgumentError("vmap: got a function that draws random numbers; pass randomness='different' or 'same'")
        flat = [flatten(result, tell=False) for result in results]
        places = _dims(out_dims, results[0])
        columns = zip(*[ys for ys, _ in flat], strict=True)
        stacked = [ys[0] if d is None else stack(ys, d) for ys, d in zip(columns, places, strict=True)]
        return unflatten(flat[0][1], stacked)

    return run
