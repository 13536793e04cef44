"""Compare gradients with central finite differences.

The check contracts both sides with random cotangents, so that a gradient which is zero, permuted, or off by a constant
fails, and it refuses to pass when nearly all true gradients are too small to tell (see Hairer, Norsett, Wanner,
"Solving Ordinary Differential Equations I", II.4, for step sizes of central differences).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from miniflow.autograd.engine import grad
from miniflow.backends.memory import to_host
from miniflow.errors import DTypeError, GradientCheckError
from miniflow.tensor import Tensor, constant_like

ALIVE = 0.5  # at least this share of the true gradients must be telling: larger than 100 times the tolerance


def gradcheck(
    function: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Tensor | Sequence[object],
    *,
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    seed: int = 0,
    check_alive: bool = True,
) -> bool:
    """Compare the gradients of `function` with central finite differences.

    Args:
        function: computes one or several tensors from the inputs.
        inputs: the arguments; the float64 tensors that require grad are checked.
        eps: the step.
        atol, rtol: a gradient g passes against the true g' if |g - g'| <= atol + rtol * |g'|.
        seed: of the random cotangents.
        check_alive: also fail when nearly all true gradients are below 100 * atol, since then anything would pass.

    Returns:
        True.

    Raises:
        GradientCheckError: with the input, element and both values.
        DTypeError: for an input in less than float64, where differences are too noisy.
    """
    inputs, checked = _checked(inputs)
    if not checked:
        raise GradientCheckError("gradcheck: no input requires grad, so there is nothing to compare")
    for i in checked:
        if inputs[i]._array.dtype != np.float64:
            raise DTypeError(f"gradcheck: input {i} has {inputs[i].dtype}; expected float64: x.double()")
    outputs = _differentiable(function(*inputs))
    cotangents = _random_like(outputs, seed)
    analytical = grad(outputs, [inputs[i] for i in checked], cotangents, allow_unused=True)
    true = [_finite_differences(function, inputs, i, cotangents, eps) for i in checked]
    for i, computed, expected in zip(checked, analytical, true, strict=True):
        actual = np.zeros_like(expected) if computed is None else computed.detach().cpu().numpy()
        _compare(i, actual, expected, atol, rtol)
    alive = np.concatenate([np.abs(t).ravel() for t in true]) > 100 * atol
    if check_alive and alive.size and alive.mean() < ALIVE:
        raise GradientCheckError(
            f"gradcheck: {alive.size - alive.sum()} of {alive.size} true gradients are below {100 * atol:g}, so the "
            "check cannot tell right from wrong; choose other inputs or scale the output"
        )
    return True


def gradgradcheck(
    function: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Tensor | Sequence[object],
    *,
    seed: int = 0,
    **options: float,
) -> bool:
    """Compare the gradients of the gradients of `function` with finite differences, with respect to inputs and
    cotangents.

    The arguments are those of `gradcheck`, with atol=1e-5 and rtol=1e-4 by default; `check_alive` is off because second
    derivatives are often zero.
    """
    inputs, checked = _checked(inputs)
    count = len(inputs)
    cotangents = [c.requires_grad_() for c in _random_like(_differentiable(function(*inputs)), seed + 1)]

    def gradients(*arguments: object) -> tuple[Tensor, ...]:
        values, weights = arguments[:count], arguments[count:]
        outputs = _differentiable(function(*values))
        inputs = [values[i] for i in checked]
        gradients = grad(outputs, inputs, weights, create_graph=True, allow_unused=True)
        return tuple(g for g in gradients if g is not None and g.requires_grad)

    options = {"atol": 1e-5, "rtol": 1e-4, "check_alive": False, **options}
    return gradcheck(gradients, [*inputs, *cotangents], seed=seed, **options)


def _checked(inputs: Tensor | Sequence[object]) -> tuple[list, list[int]]:
    """The inputs, and the positions of those that require grad."""
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return inputs, [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]


def _differentiable(result: Tensor | Sequence[Tensor]) -> list[Tensor]:
    results = [result] if isinstance(result, Tensor) else list(result)
    outputs = [y for y in results if isinstance(y, Tensor) and y.requires_grad]
    if not outputs:
        raise GradientCheckError("gradcheck: no output requires grad; is the function differentiable, and recorded?")
    return outputs


def _random_like(outputs: list[Tensor], seed: int) -> list[Tensor]:
    random = np.random.default_rng(seed)
    return [
        constant_like(y, np.asarray(random.uniform(0.5, 1.5, y.shape) * random.choice([-1, 1], y.shape)))
        for y in outputs
    ]


def _finite_differences(function: Callable, inputs: list, position: int, cotangents: list, eps: float) -> np.ndarray:
    """d(sum of outputs * cotangents) / d input, by (f(x + eps) - f(x - eps)) / (2 eps) for each element."""
    x = inputs[position]
    base = np.array(to_host(x._array), order="C")
    weights = [to_host(c._array) for c in cotangents]
    result = np.empty(base.shape, np.float64)

    def value(shifted: np.ndarray) -> list[np.ndarray]:
        moved = constant_like(x, shifted).requires_grad_()
        outputs = _differentiable(function(*[moved if i == position else v for i, v in enumerate(inputs)]))
        return [to_host(y._array).copy() for y in outputs]

    for index in np.ndindex(base.shape):
        up, down = base.copy(), base.copy()
        up[index] += eps
        down[index] -= eps
        pairs = zip(value(up), value(down), weights, strict=True)
        result[index] = sum(float(np.sum((high - low) * w)) for high, low, w in pairs) / (2 * eps)
    return result


def _compare(position: int, actual: np.ndarray, expected: np.ndarray, atol: float, rtol: float) -> None:
    wrong = ~(np.abs(actual - expected) <= atol + rtol * np.abs(expected))
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise GradientCheckError(
            f"gradcheck: the gradient of input {position} at {index} is {actual[index]:.9g}, finite differences give "
            f"{expected[index]:.9g}; {int(wrong.sum())} of {wrong.size} elements differ"
        )
