"""Kernels that write into given memory give the bits of those that allocate, and write every element."""

from __future__ import annotations

import numpy as np
import pytest
from compare import count_comparison

from miniflow.backends.registry import INTO, KERNELS
from miniflow.dtype import HALF
from miniflow.ops.permute import Transpose
from miniflow.ops.slice import Slice


def draw(*shape, dtype="float32", seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


X, Y, V = draw(5, 7), draw(5, 7, seed=1), draw(7)
LONG = draw(40, 33)
POSITIVE = np.abs(X) + 0.5
WHOLE = (X * 4).astype(np.int64)
TRUTH = X > 0
IMAGES, WEIGHT = draw(3, 4, 9, 8), draw(6, 4, 3, 3)
GEOMETRY = {"stride": (1, 2), "padding": ((1, 1), (0, 2)), "dilation": (1, 1), "groups": 1}
GROUPS = {**GEOMETRY, "groups": 2}
POOL = {"kernel": (3, 2), "stride": (2, 2), "padding": ((1, 1), (0, 0)), "ceil_mode": False}
AVERAGE = {**POOL, "count_include_pad": True, "divisor_override": None}
LABELS = np.array([1, 0, -100, 6, 3])
LOSS = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.1}
STATISTICS = np.linspace(-1, 1, 4), np.linspace(0.5, 2, 4)
STEPS = (Slice, {"index": (..., slice(2, 4))}), (Transpose, {"dim0": 0, "dim1": 1})
SWAPPED = {"transpose_x": True, "transpose_y": True}

UNARY = "Neg Abs Exp Sin Cos Tanh Sign Floor Ceil Trunc Round Isnan Isinf Isfinite".split()
BINARY = "Add Sub Mul Div Maximum Minimum Eq Ne Lt Le Gt Ge".split()
SMOOTH = "Relu Sigmoid Erf Silu".split()
CASES: dict[str, list[tuple]] = {
    **{name: [((X,), {})] for name in (*UNARY, *SMOOTH)},
    **{name: [((X, Y), {}), ((X, V), {}), ((X, 2.0), {})] for name in BINARY},
    **{f"{name}Grad": [((X, Y), {}), ((X[:, ::2], Y[:, 1::2][:, :4].repeat(2, 1)[:, :4]), {})] for name in SMOOTH},
    **{name: [((POSITIVE,), {})] for name in ("Log", "Sqrt", "Rsqrt")},
    **{name: [((TRUTH, ~TRUTH[::-1]), {})] for name in ("LogicalAnd", "LogicalOr", "LogicalXor")},
    **{name: [((WHOLE, WHOLE[::-1]), {})] for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{name: [((WHOLE, abs(WHOLE)), {})] for name in ("BitwiseLeftShift", "BitwiseRightShift")},
    "LogicalNot": [((TRUTH,), {})],
    "BitwiseNot": [((WHOLE,), {})],
    "Where": [((TRUTH, X, Y), {}), ((TRUTH[0], X, 0.0), {}), ((TRUTH, 1.0, V), {})],
    "Clamp": [((X,), {"min": -0.5, "max": None}), ((X,), {"min": -0.5, "max": 0.5})],
    "PowScalar": [((POSITIVE,), {"exponent": e}) for e in (2, 0.5, 3, -1.5)],
    "Cast": [((X,), {"dtype": np.dtype("float64")}), ((WHOLE,), {"dtype": np.dtype("float32")})],
    "Matmul": [
        ((X, V[:, None]), {"transpose_x": False, "transpose_y": False}),
        ((draw(2, 7, 5), draw(3, 1, 4, 7)), SWAPPED),
        ((V[None], X[:, :1]), SWAPPED),
        ((draw(16, 784), draw(256, 784)), {"transpose_x": False, "transpose_y": True}),
    ],
    "Linear": [((X, draw(3, 7), V[:3]), {}), ((X, draw(3, 7), None), {}), ((draw(16, 784), draw(257, 784), None), {})],
    "Cat": [((X, V[None], Y), {"dim": 0, "sizes": (5, 1, 5)}), ((X.T, Y.T), {"dim": -1, "sizes": (5, 5)})],
    "Stack": [((X, Y), {"dim": dim}) for dim in (0, 1, -1)],
    "SetItem": [
        ((X, V[:2], np.array([[1, -1]])), {"basic": (slice(None), ...), "dims": (1,)}),
        ((X, V[0].reshape(()), None), {"basic": (slice(1, 3), ...), "dims": ()}),
    ],
    "MaskedFill": [((X, TRUTH), {"value": -2}), ((V, TRUTH), {"value": np.inf})],
    "ViewScatter": [((X, Y[:, 2:4].T), {"steps": STEPS})],
    "Clone": [((X.T,), {})],
    "Contiguous": [((X[:, ::2],), {})],
    "Flip": [((X,), {"dims": (0, 1)})],
    "SliceIntoZeros": [((X,), {"shape": (9, 7), "index": (slice(1, 6), ...)})],
    "Sum": [
        ((LONG,), {"dim": dim, "keepdim": keep}) for dim in (None, 0, 1, (0, 1)) for keep in (False, True)
    ] + [((IMAGES,), {"dim": (0, 2, 3), "keepdim": False}), ((WHOLE.T,), {"dim": 0, "keepdim": True})],
    "Mean": [((LONG.T,), {"dim": dim, "keepdim": keep}) for dim in (None, -1) for keep in (False, True)],
    "SumToShape": [((IMAGES,), {"shape": (4, 1, 8)}), ((IMAGES,), {"shape": IMAGES.shape})],
    "Amax": [((IMAGES,), {"dim": (1, 3), "keepdim": True})],
    "Amin": [((IMAGES,), {"dim": (), "keepdim": False})],
    "Gelu": [((X,), {"approximate": how}) for how in ("none", "tanh")],
    "GeluGrad": [((X, Y), {"approximate": how}) for how in ("none", "tanh")],
    "Softplus": [((X,), {"beta": 1.5, "threshold": 20.0})],
    "SoftplusGrad": [((X, Y), {"beta": 1.5, "threshold": 20.0})],
    **{name: [((IMAGES,), {"dim": dim}) for dim in (1, 3, -1)] for name in ("Softmax", "LogSoftmax")},
    **{f"{name}Grad": [((IMAGES, IMAGES * 2), {"dim": dim}) for dim in (0, 3)] for name in ("Softmax", "LogSoftmax")},
    "CrossEntropy": [
        ((X, LABELS, weight), {**LOSS, "reduction": r}) for weight in (None, POSITIVE[0]) for r in ("mean", "none")
    ],
    "CrossEntropyGrad": [
        ((np.float32(2.0).reshape(()), X, LABELS, None, np.linspace(1, 2, 5), np.array(4.0)), LOSS),
    ],
    "Embedding": [((np.array([[1, 4], [0, 1]]), X), {"padding_idx": -1})],
    "EmbeddingGrad": [((draw(2, 2, 7), np.array([[1, 4], [0, 1]])), {"rows": 5, "padding_idx": 4})],
    "Conv2d": [
        ((IMAGES, WEIGHT, V[:6]), GEOMETRY),
        ((IMAGES, WEIGHT[:, :2], None), GROUPS),
        ((draw(2, 32, 9, 9), draw(32, 16, 3, 3), None), GROUPS),
        ((draw(8, 16, 12, 12), draw(16, 16, 3, 3), None), {**GEOMETRY, "stride": (1, 1)}),
        ((draw(2, 5, 16, 16), draw(3, 5, 1, 1), None), {**GEOMETRY, "stride": (1, 1), "padding": ((0, 0), (0, 0))}),
    ],
    "Conv2dDataGrad": [
        ((draw(3, 6, 9, 4), WEIGHT), {**GEOMETRY, "size": (9, 8)}),
        ((draw(3, 6, 9, 4), WEIGHT[:, :2]), {**GROUPS, "size": (9, 8)}),
        ((draw(2, 32, 9, 5), draw(32, 16, 3, 3)), {**GROUPS, "size": (9, 9)}),
        (
            (draw(2, 3, 16, 16), draw(3, 5, 1, 1)),
            {"stride": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1, "size": (32, 31)},
        ),
    ],
    "Conv2dWeightGrad": [
        ((draw(3, 6, 9, 4), IMAGES), {**GEOMETRY, "size": (3, 3)}),
        ((draw(3, 6, 9, 4), IMAGES), {**GROUPS, "size": (3, 3)}),
        ((draw(2, 32, 9, 5), draw(2, 32, 9, 9)), {**GROUPS, "size": (3, 3)}),
    ],
    "MaxPool2d": [((IMAGES,), {**POOL, "dilation": (1, 1)})],
    "MaxPool2dGrad": [((draw(3, 4, 5, 4), np.arange(240, dtype=np.int32).reshape(3, 4, 5, 4) % 72), {"size": (9, 8)})],
    "AvgPool2d": [((IMAGES,), AVERAGE)],
    "AvgPool2dGrad": [((draw(3, 4, 5, 4),), {**AVERAGE, "size": (9, 8)})],
    "AdaptiveAvgPool2d": [((IMAGES,), {"output_size": (4, 3)})],
    "AdaptiveAvgPool2dGrad": [((draw(3, 4, 5, 3),), {"size": (9, 8)})],
    "LayerNorm": [((IMAGES, None, None), {"dims": 2, "eps": 1e-5}), ((X.T, V[:5], None), {"dims": 1, "eps": 1e-5})],
    "LayerNormGrad": [((X, Y, V, np.linspace(-1, 1, 5), np.linspace(1, 2, 5)), {"dims": 1})],
    "BatchNorm": [((IMAGES, V[:4], None), {"eps": 1e-5}), ((LONG, None, None), {"eps": 1e-5})],
    "BatchNormInference": [
        ((IMAGES, *STATISTICS, None, V[:4]), {"eps": 1e-5}), ((X[:, :4], *STATISTICS, None, None), {"eps": 1e-5})
    ],
    "BatchNormGrad": [((IMAGES, IMAGES * 2, V[:4], *STATISTICS), {"eps": 1e-5, "training": t}) for t in (True, False)]
    + [((X[:, :4], Y[:, :4], None, *STATISTICS), {"eps": 1e-5, "training": True})],
    "Dropout": [((X.T,), {"p": 0.4, "seed": 3, "offset": 5})],
    "DropoutGrad": [((X.T, TRUTH.T.copy()), {"scale": 1.5})],
}  # fmt: skip


def cases():
    return [
        pytest.param(name, *case, id=f"{name}-{i}") for name, found in CASES.items() for i, case in enumerate(found)
    ]


def same_bits(found, expected):
    count_comparison()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


def compare(name, inputs, attrs):
    """Run both kernels, the second into memory that holds NaN."""
    expected = KERNELS["cpu"][name](*inputs, **attrs)
    several = isinstance(expected, tuple)
    results = [np.asarray(y) for y in (expected if several else (expected,))]
    outs = []
    for y in results:
        out = np.empty(y.shape, y.dtype)
        out.reshape(-1).view(np.uint8)[...] = 0xFF
        outs.append(out)
    INTO["cpu"][name].run(tuple(outs) if several else outs[0], *inputs, **attrs)
    for out, y in zip(outs, results, strict=True):
        same_bits(out, y)
    return results


@pytest.mark.parametrize("name, inputs, attrs", cases())
def test_same_bits(name, inputs, attrs):
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in inputs]
    results = compare(name, inputs, attrs)
    for x, old in zip(inputs, copies, strict=True):
        if isinstance(x, np.ndarray):
            same_bits(x, old)
    for position in INTO["cpu"][name].in_place[: len(inputs)]:
        x = inputs[position]
        if isinstance(x, np.ndarray) and (x.shape, x.dtype) == (results[0].shape, results[0].dtype):
            place = np.array(x, order="C")
            given = [place if i == position else y for i, y in enumerate(inputs)]
            INTO["cpu"][name].run(place, *given, **attrs)
            same_bits(place, results[0])


@pytest.mark.parametrize("dtype", sorted([*HALF, np.dtype("float64")], key=str), ids=str)
@pytest.mark.parametrize(
    "name", ["Matmul", "Linear", "Relu", "Gelu", "Sum", "Softmax", "Conv2d", "LayerNorm", "Add", "Rsqrt"]
)
def test_other_dtypes(name, dtype):
    inputs, attrs = CASES[name][0]
    compare(name, [x.astype(dtype) if isinstance(x, np.ndarray) else x for x in inputs], attrs)
