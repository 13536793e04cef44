"""One row per operator: sample inputs, a NumPy reference, torch's name, tolerances.

The rows feed `ops/test_samples.py` (values, dtypes, gradients, layouts), `kernels/test_samples.py` (CUDA),
`graph/test_samples.py` (nn.Graph) and `peers/test_samples.py` (torch). A new operator needs one row:

    Row("hardshrink", unary(kinks=(-0.5, 0.5)), lambda x: np.where(np.abs(x) > 0.5, x, 0), gradient="sparse")
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf, inf, lgamma, nan
from typing import Any

import numpy as np

import miniflow as flow

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int32", "int64")
SPECIAL = np.array([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, -1e30, 0.5, -1.5, 2.5, -2.5, 7.0, 88.0, -88.0])
SHAPES = [(), (0, 3), (65,), (2, 3, 1, 4)]
BROADCAST = [((3, 4), (3, 4)), ((), (2, 3)), ((2, 3), ()), ((1,), (5,)), ((2, 1, 1), (3, 1)), ((), ()),
             ((3, 0), (1, 1)), ((0, 1), (4,)), ((2, 0, 3), ())]  # fmt: skip


class Sample:
    """One call: positional and keyword arguments. Arrays become tensors.

    `brief` samples vary the shape only: values and first-order gradients are checked, in one dtype and layout.
    """

    def __init__(self, *args: Any, brief: bool = False, **kwargs: Any):
        self.args, self.kwargs, self.brief = args, kwargs, brief

    def __repr__(self) -> str:
        shown = [f"array{x.shape}" if isinstance(x, np.ndarray) else repr(x) for x in self.args]
        return f"({', '.join(shown + [f'{key}={value!r}' for key, value in self.kwargs.items()])})"

    def bound_to(self, function: Callable) -> Callable:
        """The function of the positional arguments alone."""
        return lambda *args: function(*args, **self.kwargs)

    def of_integers(self, kind: str) -> list[np.ndarray]:
        """Random bools, or integers other than zero that fill one byte, in the shapes of the arguments."""
        found = []
        for seed, x in enumerate(self.args):
            draw = np.random.default_rng(seed)
            values = draw.integers(1, 100, x.shape) * (1 if kind == "uint8" else draw.choice([-1, 1], x.shape))
            found.append((values % 2 == 0 if kind == "bool" else values).astype(kind))
        return found


Samples = Callable[[], Sequence[Sample]]


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        name: of the function, in `miniflow` or `miniflow.nn.functional`.
        samples: makes the sample inputs: floating arrays in float64, which are cast to each of `dtypes`; other arrays
            keep their dtype.
        reference: the same function of NumPy arrays in float64, int64 or bool.
        dtypes: floating dtypes that are checked.
        integers: also checked for these dtypes, for values and the dtype of the result.
        result: dtype of the results, where it does not follow from the reference.
        result_of_integers: dtype of the results of integers, where it is not float32 for floats and else their own.
        gradient: "dense", "sparse" (most are zero), "zero" (all are), or None: the result is not differentiable.
        grad: positions of the arguments with a gradient; by default all floating arrays.
        second, third: whether gradients of higher order are checked.
        special: pointwise: also compared at NaN, infinities and zeros, and over the range `domain`.
        domain: of the operands; None if the operator has no such range.
        torch: torch's function where it has another name; None if there is none.
        rtol, atol: for values in float32 and float64, where they are not those of `compare.TOLERANCE`.
        graph: whether nn.Graph can record it.
    """

    name: str
    samples: Samples
    reference: Callable[..., Any]
    dtypes: Sequence[str] = FLOATS
    integers: Sequence[str] = ()
    result: str | Sequence[str] | None = None
    result_of_integers: str | None = None
    gradient: str | None = "dense"
    grad: Sequence[int] | None = None
    second: bool = True
    third: bool = False
    special: bool = False
    domain: tuple[float, float] | None = None
    torch: str | None = "same"
    rtol: float | None = None
    atol: float | None = None
    graph: bool = True

    def __repr__(self) -> str:
        return self.name

    @property
    def function(self) -> Callable:
        """The public function."""
        return getattr(flow, self.name, None) or getattr(flow.nn.functional, self.name)

    def has_gradient(self, sample: Sample, position: int) -> bool:
        """Whether the gradient of that argument is checked."""
        x = sample.args[position]
        floating = isinstance(x, np.ndarray) and x.dtype.kind == "f"
        return self.gradient is not None and (floating if self.grad is None else position in self.grad)

    def torch_function(self, torch: Any) -> Callable:
        """What torch calls it: a function of `torch`, `torch.nn.functional` or `torch.Tensor`."""
        name = self.name if self.torch == "same" else self.torch
        places = (torch.nn.functional, torch, torch.Tensor)
        return next(getattr(place, name) for place in places if hasattr(place, name))


def away(*shape: int, low: float = 0.5, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Random values of either sign whose magnitude lies between `low` and `high`."""
    draw = np.random.default_rng((seed, *shape))
    return np.asarray(draw.uniform(low, high, shape) * draw.choice([-1.0, 1.0], shape))


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values between 0.5 and 2."""
    return np.asarray(np.abs(away(*shape, seed=seed)))


def between_steps(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values that are not near a whole number or its half."""
    draw = np.random.default_rng((seed, *shape))
    return np.asarray(draw.integers(-4, 5, shape) + draw.choice([0.15, 0.3, 0.7, 0.85], shape))


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    """Whole numbers from -2 to 2: many are equal, some are zero."""
    return np.asarray(np.random.default_rng((seed, *shape)).integers(-2, 3, shape), np.float64)


def codes(*shape: int, seed: int = 0) -> np.ndarray:
    """Integers whose bits are mixed."""
    return np.asarray(np.random.default_rng((seed, *shape)).integers(-100, 100, shape))


def unary(draw: Callable = away, kinks: Sequence[float] = (), **kwargs: Any) -> Samples:
    """One operand of several shapes; all but the first are brief. Values within 0.1 of a kink are moved off it."""

    def make() -> list[Sample]:
        operands = [draw(*shape) for shape in [(3, 5), *SHAPES]]
        for kink in kinks:
            operands = [np.where(np.abs(x - kink) < 0.1, kink + 0.15, x) for x in operands]
        return [Sample(x, brief=i > 0, **kwargs) for i, x in enumerate(operands)]

    return make


def binary(first: Callable = away, second: Callable = away, numbers: Sequence[float] = (), **kwargs: Any) -> Samples:
    """Two operands that broadcast, or of which one is a number; all but the first are brief."""

    def make() -> list[Sample]:
        x = first(3, 1, 2)
        pairs = [(x, second(4, 1, seed=1))]
        pairs += [(first(*a, seed=2), second(*b, seed=3)) for a, b in BROADCAST]
        pairs += [(x, number) for number in numbers] + [(number, second(2, 3)) for number in numbers]
        return [Sample(*pair, brief=i > 0, **kwargs) for i, pair in enumerate(pairs)]

    return make


def joined(*makers: Samples) -> Samples:
    """The samples of all of them."""
    return lambda: [sample for make in makers for sample in make()]


def of(*samples: Callable[[], Sample]) -> Samples:
    """Exactly these samples."""
    return lambda: [make() for make in samples]


# references


def logistic(x):
    return 1 / (1 + np.exp(-1.0 * x))


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + ERF(x / np.sqrt(2)))


def chances(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values between 0 and 1, not near 0, 0.3, 0.7 and 1."""
    draw = np.random.default_rng((seed, *shape))
    return np.asarray(draw.choice([0.05, 0.35, 0.75], shape) + draw.uniform(0, 0.2, shape))


def logit(x, eps=None):
    x = x if eps is None else np.clip(x, eps, 1 - eps)
    return np.log(x / (1 - x))


def resized(x, size=None, scale_factor=None, mode="nearest"):
    """The nearest neighbours, or twice the size by linear interpolation, of (N, C, L)."""
    if mode == "nearest":
        return x[..., np.arange(size) * x.shape[-1] // size]
    places = np.clip((np.arange(2 * x.shape[-1]) + 0.5) / 2 - 0.5, 0, x.shape[-1] - 1)
    return np.apply_along_axis(lambda row: np.interp(places, np.arange(len(row)), row), -1, x)


def sampled(x, grid, align_corners):
    """Bilinear, with zeros outside."""
    y, shape = np.zeros((*x.shape[:2], *grid.shape[1:3])), x.shape[:1:-1]
    for n, row, column in np.ndindex(grid.shape[:3]):
        place = [(g + 1) / 2 * (s - 1) if align_corners else ((g + 1) * s - 1) / 2
                 for g, s in zip(grid[n, row, column], shape, strict=True)]  # fmt: skip
        for k, j in np.ndindex(x.shape[2:]):
            y[n, :, row, column] += x[n, :, k, j] * max(0, 1 - abs(place[0] - j)) * max(0, 1 - abs(place[1] - k))
    return y


def boxes_of_images() -> np.ndarray:
    """(9, 5): an image of two, and the corners of a box in it, of which some lie outside, or have no area."""
    draw = np.random.default_rng(0)
    first = draw.integers(-12, 40, (9, 2)) / 4
    last = first + draw.integers(2, 30, (9, 2)) / 4
    last[7] = first[7]
    return np.concatenate([draw.integers(0, 2, (9, 1)), first, last], 1)


BOXES = boxes_of_images()


def roi_align(x, rois, scale, pooled_h, pooled_w, sampling_ratio=-1, aligned=False):
    """Point by point."""
    out = np.zeros((len(rois), x.shape[1], pooled_h, pooled_w))
    for k, (image, *corners) in enumerate(rois):
        left, top, right, bottom = np.array(corners) * scale - (0.5 if aligned else 0)
        width, height = (max(side, 0 if aligned else 1) for side in (right - left, bottom - top))
        rows, columns = (sampling_ratio if sampling_ratio > 0 else int(np.ceil(side))
                         for side in (height / pooled_h, width / pooled_w))  # fmt: skip
        for p, q, i, j in np.ndindex(pooled_h, pooled_w, rows, columns):
            y, z = top + (p + (i + 0.5) / rows) * height / pooled_h, left + (q + (j + 0.5) / columns) * width / pooled_w
            out[k, :, p, q] += interpolated(x[int(image)], y, z) / (rows * columns)
    return out


def interpolated(image, y, x):
    """Between the four pixels around a point; 0 more than a pixel outside."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    i, j = min(int(y), height - 2), min(int(x), width - 2)
    square = image[:, i : i + 2, j : j + 2]
    return np.einsum("cij,i,j->c", square, [i + 1 - y, y - i], [j + 1 - x, x - j])


def inverse_of_erf(x):
    """By bisection."""
    low, high = -4.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if erf(middle) < x else (low, middle)
    return middle


def hurwitz(s, q):
    """The first terms of the sum of (q + k)^-s, and the integral of the others."""
    s, q = np.broadcast_arrays(s, q)
    k = np.arange(20000.0)
    return np.sum((q[..., None] + k) ** -s[..., None], -1) + (q + 19999.5) ** (1 - s) / (s - 1)


def digamma(x):
    return np.log(x + 99999.5) - np.sum(1 / (x[..., None] + np.arange(1e5)), -1)


def softplus(x, beta=1.0, threshold=20.0):
    return np.where(beta * x > threshold, x, np.log1p(np.exp(np.minimum(beta * x, threshold))) / beta)


def divide(x, y, rounding_mode=None):
    return {None: np.true_divide, "floor": np.floor_divide, "trunc": lambda x, y: np.trunc(x / y)}[rounding_mode](x, y)


ERF = np.vectorize(erf, otypes=[np.float64])
UNARY = {"special": True, "domain": (-120.0, 120.0), "third": True}
OF_POSITIVE = UNARY | {"domain": (0.0, 120.0), "integers": ("uint8", "int64")}
STEPS = {"special": True, "gradient": "zero", "second": False, "integers": INTEGERS, "result_of_integers": "same"}
TEST = {"gradient": None, "special": True, "integers": (*INTEGERS, "bool")}
BITS = {"gradient": None, "dtypes": ("int64",), "integers": (*INTEGERS, "bool")}
ANY_INTEGER = (*INTEGERS, "bool")

POINTWISE = [
    Row("neg", unary(), np.negative, integers=INTEGERS, special=True),
    Row("abs", unary(), np.abs, integers=INTEGERS, special=True),
    Row("square", unary(), np.square, integers=INTEGERS, **UNARY),
    Row("exp", unary(), np.exp, integers=("bool", "int64"), **UNARY | {"domain": (-88.0, 88.0)}),
    Row("log", unary(positive), np.log, **OF_POSITIVE),
    Row("sqrt", unary(positive), np.sqrt, **OF_POSITIVE),
    Row("rsqrt", unary(positive), lambda x: 1 / np.sqrt(x), **OF_POSITIVE),
    Row("sin", unary(), np.sin, integers=ANY_INTEGER, **UNARY),
    Row("cos", unary(), np.cos, integers=ANY_INTEGER, **UNARY),
    Row("tanh", unary(), np.tanh, integers=ANY_INTEGER, **UNARY),
    Row("reciprocal", unary(), lambda x: 1 / x, integers=("uint8", "int64"), **UNARY),
    Row("floor", unary(between_steps), np.floor, **STEPS),
    Row("ceil", unary(between_steps), np.ceil, **STEPS),
    Row("trunc", unary(between_steps), np.trunc, **STEPS),
    Row("sign", unary(between_steps), lambda x: (x > 0) * 1.0 - (x < 0), **STEPS),
    Row("round", unary(between_steps), np.rint, **STEPS),
    Row("sigmoid", unary(), logistic, integers=ANY_INTEGER, **UNARY),
    Row("erf", unary(), ERF, integers=ANY_INTEGER, **UNARY),
    Row("relu", unary(), lambda x: np.maximum(x, 0), integers=INTEGERS, gradient="sparse", special=True),
    Row("gelu", joined(unary(), unary(approximate="tanh")), gelu, **UNARY | {"special": False}),
    Row("silu", unary(), lambda x: x * logistic(x), **UNARY | {"special": False}),
    Row("hardshrink", unary(kinks=(-0.9, 0.9), lambd=0.9), lambda x, lambd: np.where(np.abs(x) <= lambd, 0, x),
        gradient="sparse", special=True),
    Row("leaky_relu", unary(negative_slope=0.2), lambda x, negative_slope: np.where(x > 0, x, negative_slope * x),
        special=True),
    Row("hardswish", unary(), lambda x: x * np.clip(x + 3, 0, 6) / 6, **UNARY | {"special": False}),
    Row("elu", unary(alpha=1.5), lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x))),
        third=True),  # torch's gradient at NaN depends on the dtype
    Row("logit", joined(unary(chances), unary(chances, eps=0.3)), logit, gradient="sparse"),
    Row("softplus", joined(unary(), unary(kinks=(4 / 3,), beta=1.5, threshold=2.0)), softplus, **UNARY),
    Row("hardtanh", unary(kinks=(-0.9, 1.1), min_val=-0.9, max_val=1.1),
        lambda x, min_val, max_val: np.clip(x, min_val, max_val), gradient="sparse", special=True),
    Row("hardtanh", unary(min_val=-9, max_val=11), lambda x, min_val, max_val: np.clip(x, min_val, max_val),
        integers=("int8", "int64"), gradient="dense"),
    Row("relu6", unary(lambda *shape: 4 * away(*shape), kinks=(6,)), lambda x: np.where(x <= 0, 0, np.minimum(x, 6)),
        integers=INTEGERS, gradient="sparse", special=True),
    Row("hardsigmoid", unary(lambda *shape: 2 * away(*shape), kinks=(-3, 3)), lambda x: np.clip(x + 3, 0, 6) / 6,
        gradient="sparse", special=True, torch=None),  # torch's 1 / 6 is that of float32, in float64 too
    Row("celu", unary(alpha=1.5), lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x) / alpha))),
    Row("selu", unary(), lambda x: 1.0507009873554805 * np.where(
        x > 0, x, 1.6732632423543772 * np.expm1(np.where(x > 0, 0, x)))),
    Row("mish", unary(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    Row("logsigmoid", unary(), lambda x: np.log(logistic(x)), **UNARY | {"special": False}),
    Row("softsign", unary(), lambda x: x / (1 + np.abs(x)), integers=("int8", "int64")),
    Row("tanhshrink", unary(), lambda x: x - np.tanh(x), integers=("int8", "int64")),
    Row("softshrink", unary(kinks=(-0.9, 0.9), lambd=0.9), lambda x, lambd: np.where(
        np.abs(x) <= lambd, x * 0, x - np.clip(x, -lambd, lambd)),
        gradient="sparse", special=True),
    Row("threshold", unary(kinks=(0.8,), threshold=0.8, value=-1.5),
        lambda x, threshold, value: np.where(x > threshold, x, value), gradient="sparse"),
    Row("tan", unary(lambda *shape: away(*shape, high=1.2)), np.tan, integers=ANY_INTEGER, special=True),
    *[Row(name, unary(lambda *shape: away(*shape, low=0.1, high=0.9)), getattr(np, "arc" + name[1:]),
          integers=("bool",), special=True) for name in ("asin", "acos", "atanh")],
    *[Row(name, unary(), reference, integers=ANY_INTEGER, special=True) for name, reference in {
        "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh}.items()],
    Row("acosh", unary(lambda *shape: np.asarray(1 + positive(*shape))), np.arccosh, special=True),
    Row("exp2", unary(), np.exp2, integers=("int64",), special=True),
    Row("expm1", unary(), np.expm1, integers=("bool", "int64"), special=True),
    Row("log1p", unary(positive), np.log1p, integers=("uint8",), special=True),
    Row("log2", unary(positive), np.log2, integers=("uint8",), special=True),
    Row("log10", unary(positive), np.log10, integers=("uint8",), special=True),
    Row("erfc", unary(), lambda x: 1 - ERF(x), integers=ANY_INTEGER),
    Row("erfinv", unary(lambda *shape: ERF(away(*shape, high=1.5))), np.vectorize(inverse_of_erf, otypes=[np.float64])),
    Row("lgamma", unary(lambda *shape: away(*shape, low=0.1, high=0.9)), np.vectorize(lgamma, otypes=[np.float64]),
        integers=("uint8",), third=True),
    Row("digamma", unary(lambda *shape: away(*shape, low=0.1, high=0.9)), digamma, integers=("uint8",), third=True,
        torch=None),  # torch's gradient is right to 1e-9: peers/test_special.py
    Row("atan2", binary(), np.arctan2, integers=INTEGERS, special=True),
    Row("hypot", binary(), np.hypot, special=True),
    Row("logaddexp", binary(), np.logaddexp),
    Row("logaddexp2", binary(), np.logaddexp2),
    Row("copysign", binary(), np.copysign, grad=(0,), integers=("int64",)),
    Row("fmax", binary(), np.fmax, integers=ANY_INTEGER, special=True, gradient="sparse"),
    Row("fmin", binary(), np.fmin, integers=ANY_INTEGER, special=True, gradient="sparse"),
    Row("heaviside", binary(whole), np.heaviside, integers=INTEGERS, result_of_integers="same", gradient=None),
    Row("xlogy", joined(binary(second=positive), of(lambda: Sample(whole(3, 4), positive(3, 4), brief=True))),
        lambda x, y: np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y))),
    Row("sinc", unary(), np.sinc, integers=ANY_INTEGER),
    Row("rad2deg", unary(), np.rad2deg, integers=ANY_INTEGER, special=True),
    Row("deg2rad", unary(), np.deg2rad, integers=ANY_INTEGER, special=True),
    Row("frac", unary(between_steps), lambda x: x - np.trunc(x), special=True),
    Row("nan_to_num", unary(nan=0.5, posinf=3, neginf=-2), lambda x, nan, posinf, neginf: np.nan_to_num(
        x, nan=nan, posinf=posinf, neginf=neginf), special=True),
    Row("fmod", binary(between_steps, lambda *shape, seed=0: away(*shape, low=1.1, high=1.2, seed=seed),
        numbers=(1.5,)), np.fmod, integers=INTEGERS, second=False, gradient="sparse"),
    Row("lerp", of(lambda: Sample(away(3, 4), away(3, 4, seed=1), positive(4, seed=2)),
                   lambda: Sample(away(3, 4), away(4, seed=1), 0.25)),
        lambda x, end, weight: x + weight * (end - x)),
    *[Row(name, of(lambda: Sample(away(3, 4), away(4, seed=1), away(3, 1, seed=2), value=0.5),
                   lambda: Sample(away(3, 4), away(3, 4, seed=1), away(3, 4, seed=2), brief=True)), reference)
      for name, reference in {"addcmul": lambda x, y, z, value=1: x + value * y * z,
                              "addcdiv": lambda x, y, z, value=1: x + value * y / z}.items()],
    Row("add", joined(binary(numbers=(2, 0.75)), binary(alpha=2.5)), lambda x, y, alpha=1: x + alpha * y,
        integers=INTEGERS, special=True),
    Row("sub", joined(binary(numbers=(2, 0.75)), binary(alpha=-3)), lambda x, y, alpha=1: x - alpha * y,
        integers=INTEGERS, special=True),
    Row("mul", binary(numbers=(2, 0.75)), np.multiply, integers=ANY_INTEGER, special=True, third=True),
    Row("div", binary(numbers=(2, 0.75)), divide, integers=INTEGERS, special=True, third=True),
    Row("maximum", binary(), np.maximum, integers=ANY_INTEGER, special=True, gradient="sparse"),
    Row("minimum", binary(), np.minimum, integers=ANY_INTEGER, special=True, gradient="sparse"),
    Row("remainder", binary(between_steps, lambda *shape, seed=0: away(*shape, low=1.1, high=1.2, seed=seed),
        numbers=(1.5,)), np.remainder, integers=INTEGERS, second=False, gradient="sparse"),
    Row("floor_divide", binary(between_steps, lambda *shape, seed=0: away(*shape, low=1.1, high=1.2, seed=seed)),
        np.floor_divide, integers=INTEGERS, second=False, gradient="zero", dtypes=FLOATS[:2]),
    Row("pow", joined(binary(positive, numbers=(2.5,)), of(*[lambda n=n: Sample(positive(3, 4), n)
                                                             for n in (2, 3, -1, 0.5, -0.5, 4)]),
        of(lambda: Sample(positive(3, 4), 1, brief=True)),
        of(*[lambda n=n: Sample(away(3, 4), n) for n in (2, 3, -1, -2)])), np.power, gradient="sparse", third=True),
    Row("clamp", joined(*[unary(kinks=(-0.9, 1.1), min=low, max=high)
                          for low, high in ((-0.9, 1.1), (None, 1.1), (-0.9, None))]),
        lambda x, min, max: np.clip(x, min, max), gradient="sparse", special=True),
    Row("where", of(*[lambda a=a, b=b, c=c: Sample(whole(*a) > 0, away(*b), away(*c, seed=1))
                      for a, b, c in (((3, 4), (3, 4), (3, 4)), ((4,), (3, 1), ()), ((3, 1), (4,), (2, 1, 1)))],
                    lambda: Sample(whole(3, 4) > 0, away(4), 2.5, brief=True),
                    lambda: Sample(whole(3, 4) > 0, -1, away(4), brief=True)), np.where, gradient="sparse"),
    *[Row(name, binary(whole, whole, numbers=(1,)), reference, **TEST) for name, reference in {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
        "logical_xor": np.logical_xor}.items()],
    *[Row(name, unary(whole), getattr(np, name), **TEST) for name in (
        "logical_not", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit")],
    *[Row(name, binary(codes, codes, numbers=(5,)), getattr(np, name), **BITS)
      for name in ("bitwise_and", "bitwise_or", "bitwise_xor")],
    Row("bitwise_not", unary(codes), np.invert, **BITS),
]  # fmt: skip


# reductions

DISTINCT = np.random.default_rng(4).permutation(np.linspace(0.4, 2.0, 60)).reshape(3, 4, 5)  # no extremum has a kink
SIGNED = DISTINCT * np.random.default_rng(5).choice([-1.0, 1.0], DISTINCT.shape)
DIMS = [(0, 2), None, -1, 0, 1, (0, 1), (-1, 1), (0, 1, 2), ()]


def axis(dim):
    return None if dim == () else dim


def over_dims(x: np.ndarray = SIGNED, dims: Sequence[Any] = DIMS, **kwargs: Any) -> Samples:
    """Every dim, with and without keepdim; those with keepdim, and all after the fourth dim, are brief."""
    pairs = [(dim, keepdim) for dim in dims for keepdim in (False, True)]
    return lambda: [
        Sample(x, dim=dim, keepdim=keep, brief=keep or i >= 8, **kwargs) for i, (dim, keep) in enumerate(pairs)
    ]


def nothing() -> Sequence[Sample]:
    """No elements to reduce, or no results; a tensor of no dims."""
    return [Sample(np.zeros((0, 3)), dim=dim, keepdim=False, brief=True) for dim in (0, 1)] + [
        Sample(np.array(1.5), dim=dim, keepdim=False, brief=True) for dim in (0, -1)
    ]


def reducing(reduce: Callable) -> Callable:
    """A reference with torch's arguments from one with NumPy's."""
    return lambda x, dim=None, keepdim=False: reduce(x, axis=axis(dim), keepdims=keepdim)


def variance(x, dim=None, keepdim=False, correction=1):
    return x.var(axis(dim), ddof=correction, keepdims=keepdim)


def extremum(pick, best):
    def reference(x, dim=None, keepdim=False):
        values = pick(x, axis=dim, keepdims=keepdim)
        return values if dim is None else (values, best(x, axis=dim, keepdims=keepdim))

    return reference


def norm(x, p=2, dim=None, keepdim=False):
    size, options = np.abs(x), {"axis": axis(dim), "keepdims": keepdim}
    if p in (inf, -inf):
        return (size.max if p > 0 else size.min)(**options)
    return (size != 0).sum(**options) * 1.0 if p == 0 else (size**p).sum(**options) ** (1 / p)


ONE_DIM = [1, 0, -1]
NORM_DIMS = [1, None, (0, 2)]

REDUCTIONS = [
    Row("sum", joined(over_dims(), nothing), reducing(np.sum), integers=ANY_INTEGER, result_of_integers="int64"),
    Row("mean", over_dims(), reducing(np.mean)),
    Row("prod", joined(over_dims(SIGNED[:, 0], [0, -1]), nothing, of(lambda: Sample(SIGNED[:, 0]))),
        reducing(np.prod), third=True, integers=ANY_INTEGER, result_of_integers="int64"),
    Row("amax", over_dims(), reducing(np.max), gradient="sparse", integers=INTEGERS),
    Row("amin", over_dims(), reducing(np.min), gradient="sparse", integers=INTEGERS),
    Row("var", over_dims(correction=1), variance),
    Row("std", joined(over_dims(correction=0), of(lambda: Sample(DISTINCT, dim=1, correction=1))),
        lambda x, **kwargs: np.sqrt(variance(x, **kwargs)), third=True),
    Row("var_mean", over_dims(dims=DIMS[:-1], correction=1), lambda x, dim, keepdim, correction: (
        variance(x, dim, keepdim, correction), x.mean(dim, keepdims=keepdim))),
    Row("std_mean", over_dims(dims=DIMS[:-1], correction=1), lambda x, dim, keepdim, correction: (
        np.sqrt(variance(x, dim, keepdim, correction)), x.mean(dim, keepdims=keepdim))),
    Row("aminmax", over_dims(dims=[1, None]), lambda x, dim, keepdim: (
        x.min(dim, keepdims=keepdim), x.max(dim, keepdims=keepdim)), gradient="sparse"),
    Row("nansum", over_dims(SIGNED, [1, None]), reducing(np.nansum), second=False),
    Row("nanmean", over_dims(SIGNED, [1, None]), reducing(np.nanmean), second=False),
    Row("count_nonzero", of(lambda: Sample(whole(3, 4, 2)), lambda: Sample(whole(3, 4, 2), 1)), np.count_nonzero,
        gradient=None, integers=ANY_INTEGER, result_of_integers="int64"),
    Row("logsumexp", over_dims(dims=[(0, 2), -1, 0, 1]), reducing(
        lambda x, **options: np.log(np.exp(x).sum(**options))), third=True),
    Row("norm", joined(*[over_dims(dims=NORM_DIMS, p=p) for p in (2, 3, 1.5, -1)]), norm),
    Row("norm", over_dims(dims=NORM_DIMS, p=1), norm, second=False),
    Row("norm", joined(over_dims(dims=NORM_DIMS, p=inf), over_dims(dims=NORM_DIMS, p=-inf)), norm,
        gradient="sparse", second=False),
    Row("norm", over_dims(dims=NORM_DIMS, p=0), norm, gradient=None),
    Row("max", joined(over_dims(dims=ONE_DIM), of(lambda: Sample(SIGNED))), extremum(np.max, np.argmax),
        gradient="sparse"),
    Row("min", joined(over_dims(dims=ONE_DIM), of(lambda: Sample(SIGNED))), extremum(np.min, np.argmin),
        gradient="sparse"),
    Row("argmax", over_dims(dims=[1, 0, None]), reducing(np.argmax), gradient=None, result="int64"),
    Row("argmin", over_dims(dims=[1, 0, None]), reducing(np.argmin), gradient=None, result="int64"),
    Row("any", over_dims(whole(2, 3, 2)), reducing(np.any), gradient=None, integers=ANY_INTEGER),
    Row("all", over_dims(whole(2, 3, 2)), reducing(np.all), gradient=None, integers=ANY_INTEGER),
]  # fmt: skip

# scans and sorting


def with_zeros(x: np.ndarray, *places: tuple[int, ...]) -> np.ndarray:
    """A copy with zeros at some places."""
    x = x.copy()
    for place in places:
        x[place] = 0
    return x


def scanned(accumulate: Callable) -> Callable:
    """A reference for scans of torch: with indices for extrema, of which the last of equal ones counts."""
    return lambda x, dim: accumulate(x, dim) if x.ndim else x


def cumulative_extremum(accumulate: Callable) -> Callable:
    def reference(x, dim):
        values = accumulate(x, dim)
        at = np.arange(x.shape[dim]).reshape([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])
        return values, np.maximum.accumulate(np.where(x == values, at, 0), dim)

    return reference


def along(*dims: int, x: np.ndarray = SIGNED) -> Samples:
    """Each dim of a tensor; all but the first two are brief, and so is one of more than a block's elements."""
    return lambda: [Sample(x, dim, brief=i > 1) for i, dim in enumerate(dims)]


def in_order(x, dim=-1, descending=False, count=None):
    """Values and indices; no two are equal."""
    order = np.argsort(-x if descending else x, dim, kind="stable").take(range(count or x.shape[dim]), dim)
    return np.take_along_axis(x, order, dim), order


def kth(x, k, dim=-1, keepdim=False):
    return tuple(np.take(y, [k - 1] if keepdim else k - 1, dim) for y in in_order(x, dim))


def middle(x, dim=None, keepdim=False):
    return kth(x.ravel(), (x.size + 1) // 2)[0] if dim is None else kth(x, (x.shape[dim] + 1) // 2, dim, keepdim)


def most_frequent(x, dim=-1):
    """In rows of one element twice, and others once."""
    at = np.apply_along_axis(
        lambda row: np.flatnonzero(row == np.sort(row)[:-1][np.diff(np.sort(row)) == 0])[-1], dim, x
    )
    return np.take_along_axis(x, np.expand_dims(at, dim), dim).squeeze(dim), at


def quantile(x, q, dim=None, keepdim=False, interpolation="linear"):
    return np.quantile(x, q, axis=dim, keepdims=keepdim, method=interpolation)


TWICE = np.sin(np.array([[3.0, 1, 2, 3], [5, 4, 6, 4]]))
QUANTILES = of(
    lambda: Sample(SIGNED, 0.3, 1), lambda: Sample(SIGNED, np.array([0.1, 0.62]), -1, True),
    lambda: Sample(SIGNED, np.array([0.1, 0.62]), brief=True),
    *[lambda name=name: Sample(SIGNED, 0.3, 0, interpolation=name, brief=True)
      for name in ("lower", "higher", "midpoint", "nearest")])  # fmt: skip
MANY = np.random.default_rng(7).permutation(np.linspace(-2, 2, 600)).reshape(2, 300)
LONG = of(lambda: Sample(away(2, 300), 1, brief=True))
SCANS = [
    Row("cumsum", joined(along(1, -1, 0), LONG, of(lambda: Sample(np.array(1.5), 0, brief=True),
                                                   lambda: Sample(np.zeros((0, 3)), 0, brief=True))),
        scanned(np.add.accumulate)),
    Row("cumprod", joined(along(1, -1), along(1, x=with_zeros(SIGNED, (0, 1, 2), (1, 0, 3), (1, 2, 3)))),
        np.multiply.accumulate, third=True),
    Row("logcumsumexp", along(1, -1), np.logaddexp.accumulate, third=True),
    Row("cummax", along(1, -1), cumulative_extremum(np.maximum.accumulate), gradient="sparse"),
    Row("cummin", along(1, -1), cumulative_extremum(np.minimum.accumulate), gradient="sparse"),
    Row("diff", of(lambda: Sample(SIGNED), lambda: Sample(SIGNED, 2, 1), lambda: Sample(SIGNED, 9, 0, brief=True)),
        np.diff),
    Row("sort", joined(along(1, -1), of(lambda: Sample(SIGNED, 0, descending=True), lambda: Sample(MANY, brief=True))),
        in_order, gradient="sparse"),
    Row("argsort", of(lambda: Sample(SIGNED, 1), lambda: Sample(SIGNED, -1, True)), lambda *args: in_order(*args)[1],
        gradient=None),
    Row("msort", of(lambda: Sample(SIGNED)), lambda x: np.sort(x, 0), gradient="sparse"),
    Row("topk", of(lambda: Sample(SIGNED, 2, 1), lambda: Sample(SIGNED, 3, -1, False),
                   lambda: Sample(MANY, 5, brief=True)),
        lambda x, k, dim=-1, largest=True: in_order(x, dim, largest, k), gradient="sparse"),
    Row("kthvalue", of(lambda: Sample(SIGNED, 2, 1), lambda: Sample(SIGNED, 5, -1, True)), kth, gradient="sparse"),
    Row("median", of(lambda: Sample(SIGNED, 1), lambda: Sample(SIGNED, -1, True), lambda: Sample(SIGNED)), middle,
        gradient="sparse"),
    Row("nanmedian", of(lambda: Sample(SIGNED, 1), lambda: Sample(SIGNED)), middle, gradient="sparse"),
    Row("mode", of(lambda: Sample(TWICE)), most_frequent, gradient=None, dtypes=FLOATS[:2]),
    Row("quantile", QUANTILES, quantile, gradient="sparse", grad=(0,), dtypes=FLOATS[:2]),
    Row("nanquantile", QUANTILES, quantile, gradient="sparse", grad=(0,), dtypes=FLOATS[:2]),
    Row("trapezoid", of(lambda: Sample(SIGNED, away(5)), lambda: Sample(SIGNED, dx=0.5, dim=1)),
        lambda y, x=None, dx=1.0, dim=-1: np.trapezoid(y, x, dx, dim)),
]  # fmt: skip

# families with kernels of their own: references by loops, so that they share nothing with the kernels


def softmax(x, dim):
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def layer_norm(x, shape, weight, bias, eps=1e-5):
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps) * weight + bias


def conv(x, weight, bias, stride=1, padding=0, dilation=1, groups=1):
    """Over as many dims as the kernel has: one number for all of them."""
    out, per_group, *kernel = weight.shape
    x = np.pad(x, ((0, 0), (0, 0), *[(padding, padding)] * len(kernel)))
    counts = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True)]
    y = np.zeros((len(x), out, *counts)) + bias.reshape(-1, *[1] * len(kernel))
    for o, c, *taps in np.ndindex(weight.shape):
        seen = [tap * dilation + stride * np.arange(n) for tap, n in zip(taps, counts, strict=True)]
        y[:, o] += weight[(o, c, *taps)] * x[:, o // (out // groups) * per_group + c][(slice(None), *np.ix_(*seen))]
    return y


def conv_transpose(x, weight, bias, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    channels, per_group, *kernel = weight.shape
    sizes = [(n - 1) * stride + dilation * (k - 1) + 1 + output_padding
             for n, k in zip(x.shape[2:], kernel, strict=True)]  # fmt: skip
    y = np.zeros((len(x), per_group * groups, *sizes))
    for c, o, *taps in np.ndindex(weight.shape):
        place = [tap * dilation + stride * np.arange(n) for tap, n in zip(taps, x.shape[2:], strict=True)]
        part = y[:, c // (channels // groups) * per_group + o]
        part[(slice(None), *np.ix_(*place))] += weight[(c, o, *taps)] * x[:, c]
    cut = tuple([slice(padding, n - padding) for n in sizes])
    return y[(..., *cut)] + bias.reshape(-1, *[1] * len(kernel))


def windows(x, size, stride, padding, fill):
    """(N, C, *counts, size ** dims)"""
    dims = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *[(padding, padding)] * dims), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (size,) * dims, tuple(range(2, dims + 2)))
    view = view[(slice(None), slice(None), *[slice(None, None, stride)] * dims)]
    return view.reshape(*view.shape[: dims + 2], -1)


def evenly(x, count, reduce):
    """What windows that cover each dim but the first two evenly are reduced to."""
    for dim in range(2, x.ndim):
        n = x.shape[dim]
        cuts = [(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]
        x = np.stack([reduce(np.take(x, range(*cut), dim), dim) for cut in cuts], dim)
    return x


def cross_entropy(x, target, weight=None, reduction="mean", label_smoothing=0.0, ignore_index=-100):
    total, weights = 0.0, 0.0
    losses = np.zeros(len(x))
    for i, (row, t) in enumerate(zip(x, target, strict=True)):
        if t != ignore_index:
            logp = row - row.max() - np.log(np.exp(row - row.max()).sum())
            w = np.ones(len(row)) if weight is None else weight
            losses[i] = -(1 - label_smoothing) * w[t] * logp[t] - label_smoothing * (w * logp).mean()
            total, weights = total + losses[i], weights + w[t]
    return losses if reduction == "none" else total if reduction == "sum" else total / weights


def averaged(losses, reduction="mean"):
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](losses)


def pairs_reduced() -> Sequence[Sample]:
    """A prediction and a target, reduced in each way."""
    return [Sample(away(4, 3), away(4, 3, seed=1), reduction=r) for r in ("mean", "sum", "none")]


def similarity_loss(x, y, t, margin):
    cosine = (x * y).sum(-1) / np.sqrt(((x * x).sum(-1) + 1e-12) * ((y * y).sum(-1) + 1e-12))
    return np.where(t == 1, 1 - cosine, 0) + np.where(t == -1, np.maximum(cosine - margin, 0), 0)


def distance(x, y, p=2.0, eps=1e-6, keepdim=False):
    return norm(x - y + eps, p, -1, keepdim)


def triplet(a, p, n, margin, swap):
    far = np.minimum(distance(a, n), distance(p, n)) if swap else distance(a, n)
    return np.maximum(distance(a, p) - far + margin, 0).mean()


def multi_margin(x, t, p, margin):
    return np.mean(
        [sum(max(0, margin - r[i] + r[j]) ** p for j in range(4) if j != i) / 4 for r, i in zip(x, t, strict=True)]
    )


def multilabel_margin(x, t):
    losses = []
    for row, labels in zip(x, t, strict=True):
        labels = labels[: np.argmax(labels < 0)] if (labels < 0).any() else labels
        others = [c for c in range(len(row)) if c not in labels]
        losses.append(sum(max(0, 1 - row[k] + row[c]) for k in labels for c in others) / len(row))
    return np.mean(losses)


def bags(i, w, offsets, mode):
    parts = [w[ids] for ids in np.split(i, offsets[1:])]
    return np.stack([getattr(part, mode)(0) if len(part) else np.zeros(w.shape[1]) for part in parts])


def ctc(logp, targets, frames, lengths):
    """Over all paths of classes, with 0 for the blank."""
    losses = []
    for i, (steps, length) in enumerate(zip(frames, lengths, strict=True)):
        chance = 0.0
        for path in itertools.product(range(logp.shape[2]), repeat=steps):
            spelled = [c for c, _ in itertools.groupby(path) if c]
            if spelled == list(targets[i, :length]):
                chance += np.exp(sum(logp[t, i, c] for t, c in enumerate(path)))
        losses.append(-np.log(chance))
    return np.array(losses)


def group_norm(x, groups, weight, bias, eps=1e-5):
    y = layer_norm(x.reshape(len(x), groups, -1), (x[0].size // groups,), 1.0, 0.0, eps).reshape(x.shape)
    ones = (1,) * (x.ndim - 2)
    return y * weight.reshape(-1, *ones) + bias.reshape(-1, *ones)


def local_response_norm(x, size, alpha, beta, k):
    squares = np.pad(x * x, ((0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    return x / (k + alpha * np.lib.stride_tricks.sliding_window_view(squares, size, 1).mean(-1)) ** beta


def picked(x, dim, index):
    y = np.empty(index.shape)
    for at in np.ndindex(index.shape):
        y[at] = x[(*at[:dim], index[at], *at[dim + 1 :])]
    return y


def scatter(x, dim, index, source, add=False):
    y = x.copy()
    for at in np.ndindex(index.shape):
        place = (*at[:dim], index[at], *at[dim + 1 :])
        y[place] = y[place] + source[at] if add else source[at]
    return y


UFUNCS = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum, "mean": np.add}


def scatter_reduce(x, dim, index, src, reduce, include_self=True):
    y, ufunc, named = x.copy(), UFUNCS[reduce], np.ones(x.shape) * include_self
    for at in np.ndindex(index.shape):
        place = (*at[:dim], index[at], *at[dim + 1 :])
        y[place] = ufunc(y[place], src[at]) if named[place] else src[at]
        named[place] += 1
    return y / np.maximum(named, 1) if reduce == "mean" else y


def assigned(x, key, value, add=False):
    """A copy with x[key] = value, or with the value added."""
    y = x.copy()
    if add:
        np.add.at(y, key, value)
    else:
        y[key] = value
    return y


def masked_scatter(x, mask, source):
    mask = np.broadcast_to(mask, x.shape)
    return assigned(x, mask, source.ravel()[: mask.sum()])


def diagonal_scatter(x, src, offset=0):
    rows = np.arange(len(src))
    return assigned(x, (rows, rows + offset), src)


COLUMNS, REPEATED = np.array([2, 0]), np.array([[2, 0, 1], [0, 2, 2], [2, 1, 0]])
INDEXED = [
    *[Row("scatter_reduce", of(*[lambda inside=inside, name=name: Sample(
        SIGNED[0, :3, :3], 0, REPEATED, SIGNED[1, :3, 2:], name, include_self=inside) for inside in (True, False)]),
        scatter_reduce, gradient="sparse") for name in ("sum", "prod", "mean", "amax", "amin")],
    Row("scatter", of(lambda: Sample(away(3, 4), 1, np.array([[2, 0], [1, 3]]), away(2, 2))), scatter,
        gradient="sparse"),
    Row("scatter", of(lambda: Sample(away(3, 3), 1, REPEATED, away(3, 3, seed=1), reduce="multiply")),
        lambda x, dim, index, src, reduce: scatter_reduce(x, dim, index, src, "prod"), gradient="sparse", torch=None),
    Row("index_fill", of(lambda: Sample(away(3, 4), 1, COLUMNS, 2.5)),
        lambda x, dim, index, value: assigned(x, (slice(None), index), value), gradient="sparse"),
    Row("index_copy", of(lambda: Sample(away(3, 4), 1, COLUMNS, away(3, 2))),
        lambda x, dim, index, source: assigned(x, (slice(None), index), source), gradient="sparse"),
    Row("take", of(lambda: Sample(away(3, 4), np.array([[11, 0], [3, 3]]))), lambda x, index: x.ravel()[index],
        gradient="sparse"),
    Row("put", of(lambda: Sample(away(3, 4), np.array([[11, 0], [3, 3]]), away(2, 2), True)),
        lambda x, index, source, add: assigned(x.ravel(), index.ravel(), source.ravel(), add).reshape(x.shape)),
    Row("masked_scatter", of(lambda: Sample(away(3, 4), whole(3, 4) > 0, away(4, 3)),
                             lambda: Sample(away(3, 4), whole(4) > 0, away(12))), masked_scatter, gradient="sparse"),
    Row("select_scatter", of(lambda: Sample(away(3, 4), away(3), 1, 2)),
        lambda x, src, dim, index: assigned(x, (slice(None), index), src), gradient="sparse"),
    Row("slice_scatter", of(lambda: Sample(away(3, 5), away(3, 2), 1, 1, 5, 2)),
        lambda x, src, dim, *part: assigned(x, (slice(None), slice(*part)), src), gradient="sparse"),
    Row("diagonal_scatter", of(lambda: Sample(away(3, 4), away(3)), lambda: Sample(away(3, 4), away(3, seed=1), 1)),
        diagonal_scatter, gradient="sparse"),
    Row("searchsorted", of(lambda: Sample(np.sort(away(7)), away(2, 3, seed=1)),
                           lambda: Sample(np.sort(away(7)), np.sort(away(7)), right=True)),
        lambda rows, x, right=False: np.searchsorted(rows, x, "right" if right else "left"), gradient=None),
    Row("bucketize", of(lambda: Sample(away(2, 3, seed=1), np.sort(away(7)))), lambda x, rows: np.searchsorted(rows, x),
        gradient=None),
    Row("isin", of(lambda: Sample(whole(3, 4), np.array([1.0, -2.0])), lambda: Sample(whole(3, 4), 1.0, invert=True)),
        np.isin, gradient=None),
    Row("histc", of(lambda: Sample(away(3, 4), 5, -1.3, 1.7), lambda: Sample(away(3, 4), 4)),
        lambda x, bins, *bounds: np.histogram(x, bins, bounds or None)[0] * 1.0, gradient=None, dtypes=FLOATS[:2]),
    *[Row("unique", of(lambda kwargs=kwargs: Sample(whole(3, 4), **kwargs)),
          lambda x, dim=None, **kwargs: np.unique(x, axis=dim, **kwargs), gradient=None,
          graph=False) for kwargs in ({}, {"return_inverse": True, "return_counts": True}, {"dim": 1})],
    Row("roi_align", of(lambda: Sample(away(2, 3, 5, 6), BOXES, 0.5, 2, 3, 2),
                        lambda: Sample(away(2, 3, 5, 6), BOXES, 0.5, 2, 1, aligned=True),
                        lambda: Sample(away(2, 3, 5, 6), BOXES[:0], 0.5, 2, 1, brief=True)),
        roi_align, gradient="any", grad=(0,), torch=None, dtypes=FLOATS[:2]),
    Row("unique_consecutive", of(lambda: Sample(np.array([1.0, 1, 2, 2, 1, 3]), return_counts=True)),
        lambda x, return_counts: (np.array([1.0, 2, 1, 3]), np.array([2, 2, 1, 1])), gradient=None, graph=False),
]  # fmt: skip

IMAGES, KERNELS = away(2, 4, 7, 6), away(6, 4, 3, 2, seed=1)
LOGITS, CLASSES = away(5, 4), np.array([1, 3, 0, 3, 2])
PROBABILITIES = (away(4, 3, seed=2) + 2.5) / 5
WIDE = {"dtypes": ("float32", "float64")}  # torch has no half precision there
SIGNS = np.array([1, -1, -1, 1, -1, 1])
REDUCED = ("mean", "sum", "none")
INDEX = np.array([[2, 0, 1], [0, 2, 2]])
BAGGED = np.array([2, 0, 1, 0, 2, 2])
DISTINCT_IMAGES = np.random.default_rng(6).permutation(np.linspace(-2, 2, 84)).reshape(1, 2, 7, 6)
DISTINCT_SIGNALS = {1: DISTINCT_IMAGES.reshape(1, 12, 7), 2: DISTINCT_IMAGES, 3: DISTINCT_IMAGES.reshape(1, 1, 7, 4, 3)}

FAMILIES = [
    Row("pixel_shuffle", of(lambda: Sample(away(2, 8, 3, 2), 2)),
        lambda x, r: x.reshape(2, 2, r, r, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 3 * r, 2 * r)),
    Row("pixel_unshuffle", of(lambda: Sample(away(2, 2, 6, 4), 2)),
        lambda x, r: x.reshape(2, 2, 3, r, 2, r).transpose(0, 1, 3, 5, 2, 4).reshape(2, 8, 3, 2)),
    Row("channel_shuffle", of(lambda: Sample(away(2, 8, 3), 2)),
        lambda x, groups: x.reshape(2, groups, 4, 3).swapaxes(1, 2).reshape(2, 8, 3)),
    Row("interpolate", of(lambda: Sample(away(2, 4, 5), size=7, mode="nearest"),
                          lambda: Sample(away(2, 4, 5), scale_factor=2.0, mode="linear", brief=True)), resized),
    Row("grid_sample", of(*[
        lambda align=align: Sample(away(2, 3, 4, 5), away(2, 3, 2, 2, low=0.3, high=1.1, seed=1), align_corners=align)
        for align in (False, True)]), sampled, second=False, dtypes=FLOATS[:2]),
    Row("affine_grid", of(lambda: Sample(away(2, 2, 3), (2, 1, 3, 4), True)),
        lambda theta, size, align: np.einsum("nij,yxj->nyxi", theta, np.stack(
            [*np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 3)), np.ones((3, 4))], -1)), dtypes=FLOATS[:2]),
    Row("float_power", of(lambda: Sample(positive(3, 4), positive(4, seed=1)), lambda: Sample(positive(3, 4), 2)),
        np.float_power, result="float64"),
    Row("prelu", of(lambda: Sample(away(2, 3, 4), positive(3)), lambda: Sample(away(2, 3), positive(1)),
                    lambda: Sample(away(5), positive(1), brief=True)),
        lambda x, w: np.where(x > 0, x, x * (w.reshape(1, -1, 1) if x.ndim == 3 else w)), gradient="sparse"),
    Row("glu", of(lambda: Sample(away(3, 4), 1), lambda: Sample(away(4, 2, 3), 0, brief=True)),
        lambda x, dim: np.split(x, 2, dim)[0] * logistic(np.split(x, 2, dim)[1])),
    Row("softmax", of(*[lambda d=d: Sample(SIGNED, dim=d) for d in (1, -1)],
                      lambda: Sample(away(3, 65), dim=1, brief=True)), softmax, third=True),
    Row("log_softmax", of(*[lambda d=d: Sample(SIGNED, dim=d) for d in (1, -1)]),
        lambda x, dim: np.log(softmax(x, dim)), third=True),
    Row("layer_norm", of(lambda: Sample(SIGNED, (5,), away(5), away(5, seed=1)),
                         lambda: Sample(SIGNED, (4, 5), away(4, 5), away(4, 5, seed=1), eps=0.1, brief=True)),
        layer_norm),
    Row("matmul", of(*[
        lambda a=a, b=b, i=i: Sample(away(*a), away(*b, seed=1), brief=i > 1) for i, (a, b) in enumerate((
        ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((0, 4), (4, 3)),
        ((3, 0), (0, 2)), ((33, 17), (17, 9))))]), np.matmul),
    Row("bmm", of(lambda: Sample(away(2, 3, 4), away(2, 4, 5))), np.matmul),
    Row("linear", of(lambda: Sample(away(2, 3, 4), away(5, 4), away(5)), 
                     lambda: Sample(away(7, 4), away(1, 4), away(1))), lambda x, w, b: x @ w.T + b),
    Row("addmm", of(lambda: Sample(away(5), away(3, 4), away(4, 5), beta=0.5, alpha=2)),
        lambda c, x, y, beta, alpha: beta * c + alpha * (x @ y)),
    Row("conv2d", of(lambda: Sample(IMAGES, KERNELS, away(6)),
        *[lambda keywords=keywords, c=c: Sample(IMAGES, KERNELS[:, :c], away(6), brief=True, **keywords)
          for keywords, c in (({"stride": 2, "padding": 1}, 4), ({"dilation": 2, "padding": 2}, 4),
                              ({"groups": 2}, 2))]), conv),
    *[Row(f"conv{len(n)}d", of(lambda n=n, k=k: Sample(away(1, 4, *n), away(2, 4, *k), away(2)),
        lambda n=n, k=k: Sample(away(2, 2, *n), away(4, 1, *k), away(4), 2, 1, 2, 2, brief=True)), conv,
        dtypes=FLOATS[: 4 if len(n) == 1 else 2])  # gradients of planes in several windows are rounded in halves
      for n, k in (((7,), (3,)), ((5, 4, 3), (3, 2, 2)))],
    *[Row(f"conv_transpose{len(n)}d", of(lambda n=n, k=k: Sample(away(1, 2, *n), away(2, 4, *k), away(4)),
        lambda n=n, k=k: Sample(away(2, 4, *n), away(4, 1, *k), away(2), 2, 1, 1, 2, 2, brief=True)), conv_transpose)
      for n, k in (((5,), (3,)), ((3, 4), (3, 2)), ((3, 2, 3), (2, 3, 2)))],
    *[row for d, x in DISTINCT_SIGNALS.items() for row in (
        Row(f"max_pool{d}d", of(lambda x=x: Sample(x, 3, stride=2, padding=1)),
            lambda x, size, stride, padding: windows(x, size, stride, padding, -inf).max(-1), gradient="sparse",
            second=False),
        Row(f"avg_pool{d}d", of(lambda x=x: Sample(x, 3, stride=2, padding=1)),
            lambda x, size, stride, padding: windows(x, size, stride, padding, 0.0).mean(-1),
            dtypes=FLOATS[: 2 if d == 3 else 4]),  # torch has none of volumes in half precision
        Row(f"lp_pool{d}d", of(lambda x=x: Sample(np.abs(x) + 0.5, 2, 2, 1)),
            lambda x, p, size, stride: (windows(x, size, stride, 0, 0.0) ** 2).sum(-1) ** 0.5,
            dtypes=FLOATS[: 2 if d == 3 else 4]),
        Row(f"adaptive_avg_pool{d}d", of(lambda d=d: Sample(away(1, 4, *(5, 3, 4)[:d]), 2)),
            lambda x, count: evenly(x, count, np.mean)),
        Row(f"adaptive_max_pool{d}d", of(lambda x=x: Sample(x, 2)), lambda x, count: evenly(x, count, np.max),
            gradient="sparse", second=False))],
    Row("cross_entropy", of(lambda: Sample(LOGITS, CLASSES),
        *[lambda kwargs=kwargs: Sample(LOGITS, CLASSES, brief=True, **kwargs) for kwargs in (
            {"reduction": "none"}, {"reduction": "sum"}, {"label_smoothing": 0.2}, {"ignore_index": 3})]),
        cross_entropy),
    Row("mse_loss", pairs_reduced,
        lambda x, t, reduction: averaged((x - t) ** 2, reduction)),
    Row("l1_loss", pairs_reduced,
        lambda x, t, reduction: averaged(np.abs(x - t), reduction)),
    Row("binary_cross_entropy", of(lambda: Sample(PROBABILITIES, PROBABILITIES[::-1].copy())),
        lambda x, t: averaged(-t * np.log(x) - (1 - t) * np.log(1 - x)), grad=(0,)),
    Row("binary_cross_entropy_with_logits", of(lambda: Sample(away(4, 3), PROBABILITIES)),
        lambda x, t: averaged(np.log1p(np.exp(x)) - t * x), grad=(0,)),
    Row("smooth_l1_loss", lambda: [Sample(away(4, 3), away(4, 3, seed=1), beta=0.7, reduction=r) for r in REDUCED],
        lambda x, t, beta, reduction: averaged(np.where(
            abs(x - t) < beta, (x - t) ** 2 / 2 / beta, abs(x - t) - beta / 2), reduction)),
    Row("huber_loss", of(lambda: Sample(away(4, 3), away(4, 3, seed=1), delta=0.7)),
        lambda x, t, delta: np.mean(np.where(abs(x - t) < delta, (x - t) ** 2 / 2, delta * (abs(x - t) - delta / 2)))),
    Row("zeta", of(lambda: Sample(2.5, positive(3, 5)), *[lambda shape=shape: Sample(3, positive(*shape), brief=True)
                                                          for shape in SHAPES],
                    lambda: Sample(1 + positive(3, 5), positive(5), brief=True)), hurwitz, grad=(1,), third=True,
        torch=None),
    Row("kl_div", of(*[lambda r=r: Sample(away(4, 3), PROBABILITIES, reduction=r) for r in (*REDUCED, "batchmean")]),
        lambda x, t, reduction: (t * (np.log(t) - x)).sum() / 4 if reduction == "batchmean" else averaged(
            t * (np.log(t) - x), reduction)),
    Row("kl_div", of(lambda: Sample(away(4, 3), np.log(PROBABILITIES), log_target=True)),
        lambda x, t, log_target: (np.exp(t) * (t - x)).mean()),
    Row("poisson_nll_loss", of(lambda: Sample(away(4, 3), 2 * positive(4, 3, seed=1)),
                               lambda: Sample(positive(4, 3), 2 * positive(4, 3, seed=1), log_input=False, full=True)),
        lambda x, t, log_input=True, full=False: (np.exp(x) - t * x if log_input else x - t * np.log(x + 1e-8) + (
            np.where(t > 1, t * np.log(t) - t + np.log(2 * np.pi * t) / 2, 0))).mean()),
    Row("gaussian_nll_loss", of(*[lambda shape=shape: Sample(
            away(4, 3), away(4, 3, seed=1), positive(*shape, seed=2), full=True) for shape in ((4, 3), (4,))]),
        lambda x, t, v, full: ((np.log(v.reshape(4, -1)) + (x - t) ** 2 / v.reshape(4, -1) + np.log(
            2 * np.pi)) / 2).mean()),
    Row("margin_ranking_loss", of(lambda: Sample(away(6), away(6, seed=1), SIGNS, margin=0.3)),
        lambda x, y, t, margin: np.maximum(-t * (x - y) + margin, 0).mean(), grad=(0, 1), gradient="any"),
    Row("hinge_embedding_loss", of(lambda: Sample(away(6), SIGNS, margin=1.2)),
        lambda x, t, margin: np.where(t == 1, x, np.maximum(margin - x, 0)).mean(), grad=(0,), gradient="any"),
    Row("cosine_embedding_loss", of(lambda: Sample(away(6, 3), away(6, 3, seed=1), SIGNS, margin=-0.4)),
        lambda x, y, t, margin: similarity_loss(x, y, t, margin).mean(), grad=(0, 1), gradient="any"),
    Row("triplet_margin_loss", of(*[lambda swap=swap: Sample(
            away(4, 3), away(4, 3, seed=1), away(4, 3, seed=2), margin=1.5, swap=swap) for swap in (True, False)]),
        triplet, gradient="any"),
    Row("triplet_margin_with_distance_loss", of(lambda: Sample(
            away(4, 3), away(4, 3, seed=1), away(4, 3, seed=2), margin=1.5, swap=True)), triplet, gradient="any"),
    Row("soft_margin_loss", of(lambda: Sample(away(6), SIGNS)),
        lambda x, t: np.log1p(np.exp(-t * x)).mean(), grad=(0,)),
    Row("multilabel_soft_margin_loss", of(lambda: Sample(away(4, 3), PROBABILITIES, positive(3), reduction="none")),
        lambda x, t, w, reduction: (w * (np.log1p(np.exp(x)) - t * x)).mean(1), grad=(0,)),
    Row("multi_margin_loss", of(*[lambda p=p: Sample(LOGITS, CLASSES, p, 0.9) for p in (2, 1)]), multi_margin,
        gradient="any", **WIDE),
    Row("multilabel_margin_loss", of(lambda: Sample(LOGITS, np.array(
        [[1, 3, -1, 0], [2, -1, 1, 1], [0, 0, 2, -1], [-1, 1, 2, 3], [3, 2, 1, 0]]))), multilabel_margin,
        gradient="any", **WIDE),
    Row("ctc_loss", of(lambda: Sample(np.log(softmax(away(4, 2, 3), -1)), np.array([[1, 1], [2, 0]]), (4, 3), (2, 1),
                                      reduction="none")),
        lambda x, t, frames, lengths, reduction: ctc(x, t, frames, lengths), dtypes=("float32", "float64"),
        gradient="any", torch=None),  # torch gives the gradient of logits: peers/test_loss.py
    Row("group_norm", of(lambda: Sample(away(2, 6, 5), 3, away(6), away(6, seed=1)),
                         lambda: Sample(away(3, 8), 2, away(8), away(8, seed=1), brief=True)), group_norm),
    Row("instance_norm", of(lambda: Sample(away(2, 3, 5), None, None, positive(3), away(3, seed=1))),
        lambda x, mean, var, weight, bias: group_norm(x, 3, weight, bias)),
    Row("rms_norm", of(lambda: Sample(SIGNED, (5,), away(5), 0.1), lambda: Sample(SIGNED, (4, 5), away(4, 5), 0.1)),
        lambda x, shape, w, eps: x / np.sqrt((x**2).mean(
            tuple(range(-len(shape), 0)), keepdims=True) + eps) * w),
    Row("local_response_norm", of(lambda: Sample(away(2, 5, 3), 4, 0.5, 0.75, 2.0)), local_response_norm),
    Row("normalize", of(lambda: Sample(SIGNED), lambda: Sample(SIGNED, 3.0, -1)),
        lambda x, p=2.0, dim=1: x / norm(x, p, dim, True)),
    Row("cosine_similarity", of(lambda: Sample(away(4, 3), away(4, 3, seed=1)),
                                lambda: Sample(away(2, 3), away(4, 1, 3), -1, brief=True)),
        lambda x, y, dim=1: (x * y).sum(dim) / np.sqrt((x * x).sum(dim) * (y * y).sum(dim))),
    Row("pairwise_distance", of(lambda: Sample(away(4, 3), away(4, 3, seed=1)),
                                lambda: Sample(away(4, 3), away(3, seed=1), 3.0, keepdim=True, brief=True)), distance),
    Row("cdist", of(lambda: Sample(away(2, 4, 3), away(5, 3, seed=1)),
                    lambda: Sample(away(4, 3), 3 * away(5, 3, seed=1), compute_mode="use_mm_for_euclid_dist")),
        lambda x, y, compute_mode=None: distance(x[..., :, None, :], y[..., None, :, :], eps=0.0), **WIDE),
    Row("pdist", of(lambda: Sample(away(4, 3))), lambda x: np.array([
        norm(x[i] - x[j]) for i in range(4) for j in range(i + 1, 4)]), **WIDE),
    Row("bilinear", of(lambda: Sample(away(2, 3), away(2, 4), away(5, 3, 4), away(5))),
        lambda x, y, w, b: np.einsum("ni,oij,nj->no", x, w, y) + b,
        dtypes=("float32", "float64")),  # half precision rounds the products, which cancel
    Row("embedding", of(lambda: Sample(INDEX, away(4, 3))), lambda i, w: w[i], gradient="sparse"),
    Row("embedding_bag", of(*[lambda mode=mode: Sample(BAGGED, away(4, 3), np.array([0, 2, 2, 3]), mode=mode)
                              for mode in ("sum", "mean", "max")]), bags, gradient="any"),
    Row("gather", of(lambda: Sample(away(3, 3), 1, INDEX), lambda: Sample(away(3, 4), 0, INDEX)), picked,
        gradient="sparse"),
    Row("index_select", of(lambda: Sample(away(3, 4), 0, INDEX[0]), lambda: Sample(away(3, 4), 1, INDEX[1])),
        lambda x, dim, index: np.take(x, index, dim), gradient="sparse"),
    Row("scatter_add", of(lambda: Sample(away(3, 4), 0, INDEX, away(2, 3))),
        lambda *args: scatter(*args, add=True)),
    Row("index_add", of(lambda: Sample(away(4, 3), 0, INDEX[1], away(3, 3))),
        lambda x, dim, index, source: scatter(x, 0, np.repeat(index[:, None], 3, 1), source, add=True)),
    Row("masked_fill", of(lambda: Sample(away(3, 4), whole(4) > 0, 2.5),
                           lambda: Sample(away(3, 4), whole(4) > 0, np.array(2.5))), lambda x, m, v: np.where(m, v, x),
        gradient="sparse"),
    *[Row(name, of(lambda: Sample(away(2, 3, 4)), lambda: Sample(away(2, 3, 4), -1)), getattr(np, name),
          gradient="sparse") for name in ("tril", "triu")],
    Row("flip", of(lambda: Sample(away(2, 3, 4), (0, 2))), np.flip),
    Row("transpose", of(lambda: Sample(away(2, 3, 4), 0, 2)), np.swapaxes),
    Row("permute", of(lambda: Sample(away(2, 3, 4), (2, 0, 1))), np.transpose),
    Row("reshape", of(lambda: Sample(away(2, 3, 4), (4, -1))), np.reshape),
    Row("expand", of(lambda: Sample(away(3, 1), (2, 3, 4))), np.broadcast_to, torch="expand"),
    Row("tile", of(lambda: Sample(away(3, 2), (2, 1, 2))), np.tile),
]  # fmt: skip

PAIRS = np.array([[2, 0], [0, 3], [1, 1]])
SLICES = [(0, 3, 2), (1, None, None)]


def every(index):
    return tuple(np.moveaxis(index, -1, 0))


def batch_gathered(x, index):
    places = index.reshape(*index.shape, *[1] * (x.ndim - index.ndim))
    return np.take_along_axis(x, np.broadcast_to(places, (*index.shape, *x.shape[index.ndim :])), index.ndim - 1)


ONEFLOW = [
    Row("gather_nd", of(lambda: Sample(away(3, 4, 2), PAIRS), lambda: Sample(away(3, 4), PAIRS[None])),
        lambda x, index: x[every(index)], gradient="sparse", torch=None),
    Row("scatter_nd", of(lambda: Sample(np.array([[1], [4], [1]]), away(3, 2), (5, 2))),
        lambda index, update, shape: assigned(np.zeros(shape), every(index), update, True), torch=None),
    Row("tensor_scatter_nd_update", of(lambda: Sample(away(3, 4), PAIRS, away(3))),
        lambda x, index, update: assigned(x, every(index), update), torch=None),
    Row("batch_gather", of(lambda: Sample(away(2, 4, 3), REPEATED[:2]), lambda: Sample(away(4, 2), REPEATED[0])),
        batch_gathered, gradient="sparse", torch=None),
    Row("broadcast_like",
        of(lambda: Sample(away(3, 1), whole(2, 3, 4)), lambda: Sample(away(2, 4), whole(2, 3, 4), (1,))),
        lambda x, like, axes=(): np.broadcast_to(np.expand_dims(x, axes), like.shape), grad=(0,), torch=None),
    Row("in_top_k", of(lambda: Sample(np.array([2, 0, 1, 2, 0]), away(5, 3), 2)),
        lambda targets, x, k: (x > x[np.arange(5), targets][:, None]).sum(1) < k, gradient=None, torch=None),
    Row("slice", of(lambda: Sample(away(4, 3), SLICES)), lambda x, slices: x[0:3:2, 1:], gradient="sparse", torch=None),
    Row("slice_update", of(lambda: Sample(away(4, 3), away(2, 2), SLICES)),
        lambda x, update, slices: assigned(x, (slice(0, 3, 2), slice(1, None)), update), torch=None),
    Row("sparse_softmax_cross_entropy", of(lambda: Sample(np.array([[1, 0], [2, 2]]), away(2, 2, 3))),
        lambda labels, x: np.log(np.exp(x).sum(-1)) - np.take_along_axis(x, labels[..., None], -1)[..., 0], torch=None),
]  # fmt: skip

ROWS = POINTWISE + REDUCTIONS + SCANS + INDEXED + FAMILIES + ONEFLOW
