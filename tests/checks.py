"""The comparisons that every test of an op goes through; they enforce the project's rules for tests that can fail.

    check_op              one op: values, dtypes, layouts, gradients of all orders, shape rule, aliasing, accumulation
    check_against_torch   one op and its PyTorch namesake: values, dtype, shape, all gradients
    assert_close          two arrays: dtype, shape, and every element
    assert_same           as assert_close, but exactly equal

Every comparison is counted; `conftest.py` turns a test that made none into an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from compare import (
    FRESH_SEED,
    TOLERANCE,
    as_array,
    assert_close,
    assert_elements,
    assert_same,
    comparisons_made,
    count_comparison,
)
from graph_twin import check_twin
from layouts import LAYOUTS, laid_out, placed
from watch import share_memory, watching_ops

import miniflow as flow
from miniflow.autograd import grad as gradients_of
from miniflow.autograd import gradcheck, gradgradcheck
from miniflow.dtype import as_dtype, dtype
from miniflow.errors import GradientCheckError
from miniflow.tensor import Tensor

__all__ = [
    "FRESH_SEED",
    "as_array",
    "assert_close",
    "assert_same",
    "check_against_torch",
    "check_op",
    "comparisons_made",
    "count_comparison",
    "gradients",
    "laid_out",
    "named_dtype",
    "on_device",
    "share_memory",
    "to_tensors",
    "torch_tensor",
    "watching_ops",
]


def named_dtype(name: str | dtype | np.dtype) -> dtype:
    """The dtype of that name; dtypes pass through."""
    return getattr(flow, name) if isinstance(name, str) else as_dtype(name)


def check_op(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    reference: Callable[..., Any] | None = None,
    *,
    dtypes: Sequence[str] = ("float32", "float64"),
    result: str | Sequence[str] | None = None,
    grad: bool | Sequence[int] = True,
    gradient: str = "dense",
    second: bool = True,
    third: bool = False,
    layouts: Sequence[str] = LAYOUTS,
    graph: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> None:
    """Check an op, or any function of tensors, by every rule at once.

    Args:
        function: takes tensors (and what else is in `inputs`), returns a Tensor or a tuple of Tensors.
        inputs: NumPy arrays become tensors; anything else (numbers, None) is passed as it is. Floating arrays, in
            float64, are cast to each of `dtypes`; integer and bool arrays keep their dtype.
        reference: the same function of float64 (or integer, bool) NumPy arrays, in NumPy.
        dtypes: checked for values against the reference of the rounded inputs; the floating ones also for gradients.
            For an integer dtype, the floating arrays are cut to integers.
        result: the dtype of the results, or of each of them. By default bool where the reference is bool; else that of
            the input if both are floating or both integer, int64 for integers from floats, float32 for the opposite.
        grad: whether gradients are checked: of all floating arrays, or of those at these positions.
        gradient: "dense"; "sparse" if most true gradients are zero (max, indexing); "zero" if all are (floor);
            "any" if they may be.
        second, third: check second order by finite differences along random directions; third order as well.
        layouts: memory layouts of the inputs under which values and gradients must not change.
        graph: whether the function can be recorded by nn.Graph, and then gives the same bits; False for shapes that
            depend on values.
        rtol, atol: override the tolerance of the values in float32 and float64 (default: `TOLERANCE`).
        seed: draws the cotangents.

    Raises:
        AssertionError, GradientCheckError: with what differs, where.
    """
    inputs = [np.asarray(x) if isinstance(x, np.ndarray | np.generic) else x for x in inputs]
    floating = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    checked = floating if grad is True else [] if grad is False else list(grad)
    if flow.get_default_device().type == "cuda":  # each dtype and layout is compiled; the rules are checked on the CPU
        dtypes = [name for name in dtypes if name in ("float32", "float64")] or dtypes[:1]
        layouts, third = layouts[-1:], False
    with watching_ops() as ran:
        for name in dtypes:
            _check_values(function, inputs, reference, name, result, rtol, atol)
        _check_layouts(function, inputs, checked, layouts, seed)
    assert ran or reference is None, "check_op: no op was dispatched; does the function use the tensors?"
    if checked:  # hundreds of calls of the same ops, which are watched before and after
        gradcheck(function, to_tensors(inputs, "float64", checked), seed=seed, check_alive=gradient == "dense")
    with watching_ops():
        if checked:
            _check_first_order(function, inputs, checked, gradient, seed)
            for name in dtypes:
                if named_dtype(name).is_floating_point and name != "float64":
                    _check_gradient_dtype(function, inputs, checked, name, seed)
            _check_roads(function, inputs, checked, seed, second)
            _check_accumulation(function, inputs, checked, seed)
        if graph:
            for name in dtypes[:1]:
                rounded = [x.astype(named_dtype(name).numpy) if i in floating else x for i, x in enumerate(inputs)]
                check_twin(function, rounded, checked, lambda outputs: _cotangents(outputs, seed))
    if checked and second:
        _check_higher_order(function, inputs, checked, third, seed)


def to_tensors(inputs: Sequence[Any], name: str = "float64", requires_grad: Sequence[int] = ()) -> list[Any]:
    """Tensors for the arrays among `inputs`, the floating ones cast to the dtype `name`; the layout is kept.

    They are made on the default device.
    """
    kind = named_dtype(name)
    results = []
    for i, x in enumerate(inputs):
        if isinstance(x, np.ndarray):
            cast = x.dtype.kind == "f" and x.dtype != kind.numpy
            x = on_device(x.astype(kind.numpy) if cast else x)
        results.append(x.requires_grad_() if i in requires_grad else x)
    return results


def on_device(array: np.ndarray) -> Tensor:
    """A tensor with the values of an array, in its layout, on the default device; on the CPU its memory is shared."""
    return Tensor._wrap(placed(array, flow.get_default_device()))


def as_tuple(result: Any) -> tuple:
    """The results of a function as a tuple of them."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _check_values(function, inputs, reference, name, result, rtol, atol) -> None:
    tensors = to_tensors([x.copy() if isinstance(x, np.ndarray) else x for x in inputs], name)
    outputs = as_tuple(function(*tensors))
    assert all(isinstance(y, Tensor) for y in outputs), f"got {[type(y).__name__ for y in outputs]}; expected Tensors"
    if reference is None:
        return
    exact = [_wide(as_array(t)) if isinstance(t, Tensor) else t for t in tensors]
    with np.errstate(all="ignore"):
        expected = as_tuple(reference(*exact))
    assert len(outputs) == len(expected), f"got {len(outputs)} results, the reference has {len(expected)}"
    kinds = [result] * len(expected) if result is None or isinstance(result, str) else result
    for i, (y, want, kind) in enumerate(zip(outputs, expected, kinds, strict=True)):
        count_comparison()
        want = np.asarray(want)
        kind = named_dtype(kind or _result_dtype(want, name))
        what = f"result {i} for {name}"
        assert y.dtype is kind, f"{what}: got dtype {y.dtype}, expected {kind}"
        assert y.device == flow.get_default_device(), f"{what}: got {y.device}"
        own = name in ("float32", "float64")
        assert_elements(as_array(y), want, rtol if own else None, atol if own else None, what)


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "fV":
        return array.astype(np.float64)
    return array.copy() if array.dtype == np.bool_ else array.astype(np.int64)


def _result_dtype(want: np.ndarray, name: str) -> str:
    if want.dtype == np.bool_:
        return "bool"
    floating = named_dtype(name).is_floating_point
    if want.dtype.kind in "iu":
        return "int64" if floating else name
    return name if floating else "float32"


# gradients


def _cotangents(outputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Random, of either sign, and never near zero."""
    draw = np.random.default_rng(seed)
    arrays = [draw.uniform(0.5, 1.5, y.shape) * draw.choice([-1.0, 1.0], y.shape) for y in outputs]
    return [flow.tensor(a, dtype=y.dtype, device=y.device) for a, y in zip(arrays, outputs, strict=True)]


def _differentiable(result: Any) -> list[Tensor]:
    return [y for y in as_tuple(result) if isinstance(y, Tensor) and y.requires_grad]


def gradients(
    function: Callable,
    inputs: Sequence[Any],
    wanted: Sequence[int],
    name: str = "float64",
    seed: int = 0,
    create_graph: bool = False,
) -> list[np.ndarray]:
    """The gradients of `function` contracted with random cotangents; only the inputs at `wanted` require grad."""
    tensors = to_tensors(inputs, name, wanted)
    outputs = _differentiable(function(*tensors))
    assert outputs, "no output requires grad: does the op have a backward, and are its inputs used?"
    sources = [tensors[i] for i in wanted]
    found = gradients_of(outputs, sources, _cotangents(outputs, seed), create_graph=create_graph, allow_unused=True)
    for i, g, x in zip(wanted, found, sources, strict=True):
        assert g is None or (g.shape, g.dtype) == (x.shape, x.dtype), (
            f"gradient {i}: {g.shape} {g.dtype} for {x.shape} {x.dtype}"
        )
    return [
        np.zeros(x.shape, x.dtype.numpy) if g is None else as_array(g).copy()
        for g, x in zip(found, sources, strict=True)
    ]


def _check_first_order(function, inputs, checked, gradient, seed) -> None:
    count_comparison()
    every = gradients(function, inputs, checked, seed=seed)
    if gradient == "zero":
        assert all(not g.any() for g in every), "gradient='zero', but some are not"
    for i, g in zip(checked, every, strict=True):
        if gradient in ("dense", "sparse"):
            assert g.size == 0 or np.abs(g).max() > 1e-4, (
                f"the gradient of input {i} is zero everywhere: the check cannot tell"
            )
        if len(checked) > 1:
            (alone,) = gradients(function, inputs, [i], seed=seed)
            assert_close(alone, g, what=f"gradient of input {i} when no other requires grad")


def _check_gradient_dtype(function, inputs, checked, name, seed) -> None:
    rounded = [x.astype(named_dtype(name).numpy).astype(x.dtype) if isinstance(x, np.ndarray) else x for x in inputs]
    rounded = [
        r if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x, r in zip(inputs, rounded, strict=True)
    ]
    rtol, atol = (10 * t for t in TOLERANCE[name])
    exact = gradients(function, rounded, checked, seed=seed)
    for i, g, want in zip(checked, gradients(function, rounded, checked, name, seed), exact, strict=True):
        scale = max(1.0, np.abs(want).max(initial=0.0))
        assert_close(g.astype(np.float64), want, rtol=rtol, atol=atol * scale, what=f"gradient of input {i} in {name}")


def _check_roads(function, inputs, checked, seed, second) -> None:
    """The fused first-order gradient and the one recorded by create_graph are the same."""
    if second:
        for name, rtol in (("float64", 1e-9), ("float32", 2e-4)):
            fused = gradients(function, inputs, checked, name, seed)
            recorded = gradients(function, inputs, checked, name, seed, create_graph=True)
            for i, a, b in zip(checked, fused, recorded, strict=True):
                what = f"gradient of input {i}, create_graph=False against True, {name}"
                assert_close(a, b, rtol=rtol, atol=rtol * max(1.0, np.abs(b).max(initial=0.0)), what=what)


def _check_accumulation(function, inputs, checked, seed) -> None:
    """`.grad` is the gradient, twice it after two backwards, and memory of its own."""
    tensors = to_tensors(inputs, "float64", checked)
    leaves = [tensors[i] for i in checked]
    expected = gradients(function, inputs, checked, seed=seed)
    for factor in (1, 2):
        outputs = _differentiable(function(*tensors))
        cotangents = _cotangents(outputs, seed)
        kept = [as_array(c).copy() for c in cotangents]
        flow.autograd.backward(outputs, cotangents)
        for i, x, want in zip(checked, leaves, expected, strict=True):
            got = np.zeros_like(want) if x.grad is None else x.grad
            assert_close(got, factor * want, what=f".grad of input {i} after {factor} backward")
        for c, old in zip(cotangents, kept, strict=True):
            assert_same(c, old, what="a cotangent given to backward")
    owners = (
        [x.grad._array for x in leaves if x.grad is not None]
        + [c._array for c in cotangents]
        + [x._array for x in leaves]
    )
    for i, a in enumerate(owners):
        assert not any(share_memory(a, b) for b in owners[:i] if a.size), "a .grad shares memory with another tensor"


def _check_higher_order(function, inputs, checked, third, seed) -> None:
    count_comparison()
    tensors = to_tensors(inputs, "float64", checked)

    def first(*arguments):
        """The gradients of the outputs contracted with the last of the arguments."""
        values, weights = arguments[: len(tensors)], arguments[len(tensors) :]
        wanted = [values[i] for i in checked]
        found = gradients_of(_differentiable(function(*values)), wanted, weights, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None and g.requires_grad)

    weights = _cotangents(_differentiable(function(*tensors)), seed + 1)
    _check_along_directions(first, [*tensors, *[w.requires_grad_() for w in weights]], seed)
    if third:
        weights = _cotangents(weights, seed + 2)
        gradgradcheck(lambda *values: first(*values, *weights), tensors, seed=seed)


def _check_along_directions(function, inputs, seed, *, count=2, eps=1e-6, atol=1e-5, rtol=1e-5) -> None:
    """The derivative along random directions, in which all inputs move at once, is what the gradients say.

    One number, which two calls give, for what finite differences of each element give with two calls for each: of a
    wrong gradient almost no direction is right. If one is wrong, `gradcheck` says where.
    """
    moving = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    outputs = _differentiable(function(*inputs))
    cotangents = _cotangents(outputs, seed)
    computed = gradients_of(outputs, [inputs[i] for i in moving], cotangents, allow_unused=True)
    weights = [as_array(c) for c in cotangents]
    for direction_seed in range(seed + 3, seed + 3 + count):
        directions = [as_array(v) for v in _cotangents([inputs[i] for i in moving], direction_seed)]

        def value(step, directions=directions):
            moved = list(inputs)
            for i, direction in zip(moving, directions, strict=True):
                moved[i] = on_device(np.asarray(as_array(inputs[i]) + step * direction)).requires_grad_()
            outputs = _differentiable(function(*moved))
            return sum(float(np.sum(as_array(y) * w)) for y, w in zip(outputs, weights, strict=True))

        terms = [as_array(g) * v for g, v in zip(computed, directions, strict=True) if g is not None]
        actual, expected = sum(float(t.sum()) for t in terms), (value(eps) - value(-eps)) / (2 * eps)
        if not abs(actual - expected) <= atol + rtol * sum(float(np.abs(t).sum()) for t in terms):
            gradcheck(function, inputs, seed=seed, atol=1e-5, rtol=1e-4, check_alive=False)
            raise GradientCheckError(f"the derivative along a direction is {actual:.9g}, by differences {expected:.9g}")


def _check_layouts(function, inputs, checked, layouts, seed) -> None:
    for layout in layouts:
        odd = [laid_out(x, layout) if isinstance(x, np.ndarray) else x for x in inputs]
        plain = [np.ascontiguousarray(x).reshape(x.shape) if isinstance(x, np.ndarray) else x for x in odd]
        results = [as_tuple(function(*to_tensors(version))) for version in (odd, plain)]
        for i, (a, b) in enumerate(zip(*results, strict=True)):
            assert_close(a, b, what=f"result {i} of {layout} inputs")
        if checked:
            pair = [gradients(function, version, checked, seed=seed) for version in (odd, plain)]
            for i, a, b in zip(checked, *pair, strict=True):
                assert_close(a, b, atol=1e-10, what=f"gradient of input {i} with {layout} inputs")


# torch as a peer


def check_against_torch(
    flow_function: Callable[..., Any],
    torch_function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    dtype: str = "float32",
    grad: bool | Sequence[int] = True,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> None:
    """Run both functions on the same inputs and compare dtype, shape, values and all gradients of the results.

    Args:
        inputs: as for `check_op`; floating float64 arrays are cast to `dtype`, other arrays keep their dtype.
        grad: whether gradients are compared: of all floating arrays, or of those at these positions.
        rtol, atol: override `TOLERANCE[dtype]`.
    """
    floating = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    checked = floating if grad is True else [] if grad is False else list(grad)
    ours = to_tensors([x.copy() if isinstance(x, np.ndarray) else x for x in inputs], dtype, checked)
    theirs = [
        torch_tensor(as_array(x)).requires_grad_(i in checked) if isinstance(x, Tensor) else x
        for i, x in enumerate(ours)
    ]
    got, want = as_tuple(flow_function(*ours)), as_tuple(torch_function(*theirs))
    assert len(got) == len(want), f"got {len(got)} results, torch has {len(want)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert_close(a, as_array(b), rtol=rtol, atol=atol, what=f"result {i} against torch")
    if checked:
        pairs = [(a, b) for a, b in zip(got, want, strict=True) if b.requires_grad]
        assert all(a.requires_grad for a, _ in pairs), "torch's result requires grad, ours does not"
        cotangents = _cotangents([a for a, _ in pairs], seed)
        flow.autograd.backward([a for a, _ in pairs], cotangents)
        import torch

        torch.autograd.backward([b for _, b in pairs], [torch_tensor(as_array(c)) for c in cotangents])
        for i in checked:
            assert (ours[i].grad is None) == (theirs[i].grad is None), (
                f"gradient {i}: {ours[i].grad}, torch {theirs[i].grad}"
            )
            if ours[i].grad is not None:
                assert_close(
                    ours[i].grad, as_array(theirs[i].grad), rtol=rtol, atol=atol, what=f"gradient {i} against torch"
                )


def torch_tensor(array: np.ndarray) -> Any:
    """A torch tensor with a copy of these values."""
    import torch

    if array.dtype == flow.bfloat16.numpy:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array.copy())
