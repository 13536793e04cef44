"""Inputs at the edge of an operator, with PyTorch's results: no dims, no elements, -0.0, inf, nan, 2**62, ties.

`ops/test_edges.py` compares with the results written here, on every device and in nn.Graph; `peers/test_edges.py` with
PyTorch, which confirms what is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np

from miniflow.errors import ArgumentError, DimError, DTypeError, IndexRangeError, ShapeError


class Edge(NamedTuple):
    """One call.

    Attributes:
        name: what is at the edge.
        function: of `miniflow` or `torch`, and of tensors.
        inputs: arrays; floating ones require grad.
        results: of the function; None if PyTorch alone is asked.
        gradients: of the floating inputs, for the cotangents 1, 2, 3, ...; None if there are none.
    """

    name: str
    function: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    results: Sequence[Any] | None = None
    gradients: Sequence[Any] | None = None


class Refused(NamedTuple):
    """One call that is refused, with the class of the error and words of its message."""

    name: str
    function: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    error: type[Exception]
    words: str


def floats(*values: Any) -> np.ndarray:
    return np.array(values, np.float64)


MATRIX, ONES = np.arange(1.0, 7).reshape(2, 3), np.ones((1, 1, 3))
BOOLS = np.array([True, False, True]), np.array([True, True, False])
FIRST, LAST = np.array([0]), np.array([-1])
EMPTY = [(0, 0), (0, 3), (3, 0), (2, 0, 3), (2, 3, 0), (0, 3, 3)]
CELLS = np.array([[1.0, inf], [2.0, 3.0]])
CUBE = np.arange(27.0).reshape(1, 3, 3, 3)
VOLUMES = np.zeros((0, 2, 3, 3, 3))
FAR = 2**62

EDGES = [
    Edge("tril far above", lambda m, x: m.tril(x, FAR), [MATRIX], [MATRIX], [MATRIX]),
    Edge("tril far below", lambda m, x: m.tril(x, -FAR), [MATRIX], [MATRIX * 0], [MATRIX * 0]),
    Edge("triu far above", lambda m, x: m.triu(x, 2**63 - 1), [MATRIX], [MATRIX * 0], [MATRIX * 0]),
    Edge("triu far below", lambda m, x: m.triu(x, -(2**63)), [MATRIX], [MATRIX], [MATRIX]),
    Edge("alpha of bools", lambda m, x, y: m.add(x, y, alpha=2), BOOLS, [[True, True, True]]),
    *[Edge(f"diff {n} times", lambda m, x, n=n: m.diff(x, n=n), [MATRIX], [MATRIX[:, :0]], [MATRIX * 0])
      for n in (3, 4, 10**18)],
    *[Edge(f"matrix_rank of {shape}", lambda m, x: m.linalg.matrix_rank(x), [np.zeros(shape)],
           [np.zeros(shape[:-2], int)]) for shape in EMPTY],
    *[Edge(f"matrix_rank of {shape} with tolerances", lambda m, x: m.linalg.matrix_rank(x, atol=0.5, rtol=0.1),
           [np.zeros(shape)], [np.zeros(shape[:-2], int)]) for shape in EMPTY],
    *[Edge(f"cond {p} of {shape}", lambda m, x, p=p: m.linalg.cond(x.detach(), p), [np.zeros(shape)],
           [np.zeros(shape[:-2])])
      for p in (None, -2, 1, inf, "fro", "nuc") for shape in EMPTY if shape == (0, 0) or p not in ("fro", "nuc")],
    *[Edge(f"matrix_norm {p} of {shape}", lambda m, x, p=p: m.linalg.matrix_norm(x.detach(), p), [np.zeros(shape)],
           [np.zeros(shape[:-2])]) for p in ("nuc", 2, 1, inf) for shape in EMPTY],
    *[Edge(f"lstsq of {shape}", lambda m, x, y: m.linalg.lstsq(x.detach(), y.detach())[:3],
           [np.ones(shape), np.ones((*shape[:-1], 2))],
           [np.zeros((*shape[:-2], shape[-1], 2)), np.zeros(0), np.zeros(shape[:-2], int)]) for shape in EMPTY],
    Edge("index_reduce of no dims", lambda m, x: m.index_reduce(x, 0, m.tensor([0], device=x.device), x + 1, "prod"),
         [np.array(2.0)], [6.0], [5.0]),
    Edge("alpha of a number", lambda m, x: m.add(x, 2, alpha=3), [floats(1, 2)], [[7.0, 8.0]], [[1.0, 2.0]]),
    Edge("alpha of a number in place", lambda m, x: (x * 1).sub_(1, alpha=2), [floats(1, 2)], [[-1.0, 0.0]],
         [[1.0, 2.0]]),
    Edge("a number and alpha of a tensor", lambda m, x: m.sub(2, x, alpha=3), [floats(1, 2)], [[-1.0, -4.0]],
         [[-3.0, -6.0]]),
    Edge("rsub of a number", lambda m, x: m.rsub(x, 2, alpha=3), [np.array([1, 2])], [[-1, -4]]),
    Edge("alpha of a number to integers", lambda m, x: m.add(x, 2, alpha=3), [np.array([1, 2])], [[7, 8]]),
    Edge("alpha of a bool to integers", lambda m, x: m.add(x, True, alpha=3), [np.array([1, 2])], [[4, 5]]),
    Edge("alpha of a number to narrow integers", lambda m, x: m.add(x, 100, alpha=3), [np.ones(1, np.int8)],
         [np.array([45], np.int8)]),
    Edge("alpha of a fraction to integers", lambda m, x: m.add(x, 2.5, alpha=1.5), [np.array([1, 2])],
         [np.array([4.75, 5.75], np.float32)]),
    Edge("alpha of a number to bools", lambda m, x: m.add(x, 2, alpha=3), BOOLS[:1], [[7, 6, 7]]),
    Edge("alpha of a bool to bools", lambda m, x: m.add(x, True, alpha=2), BOOLS[:1], [[True, True, True]]),
    Edge("alpha 0 of bools", lambda m, x, y: m.add(x, y, alpha=0), BOOLS, [[True, False, True]]),
    Edge(
        "index_add of bools",
        lambda m, x, y: m.index_add(x, 0, m.tensor([1, 1, 0], device=x.device), y, alpha=2),
        [BOOLS[1] & False, BOOLS[0]],
        [[True, True, False]],
    ),
    Edge(
        "batch_norm of inf, eval",
        lambda m, x, w: m.nn.functional.batch_norm(x, x.detach()[0] * 0, x.detach()[1] * 0 + 1, w, eps=0.0),
        [np.array([[1.0, 4.0], [inf, 3.0]])[:, ::-1].copy(), floats(1, 2)],
    ),
    Edge("power -0.5", lambda m, x: x**-0.5, [floats(-0.0, 0.0, 4.0)], [[-inf, inf, 0.5]], [[-inf, -inf, -0.1875]]),
    Edge("diag of a far diagonal", lambda m, x: m.diag(x, -3), [MATRIX], [np.zeros(0)], [MATRIX * 0]),
    Edge("a far diagonal", lambda m, x: m.diagonal(x, FAR), [MATRIX], [np.zeros(0)], [MATRIX * 0]),
    Edge("a far diagonal below", lambda m, x: m.diagonal(x, -(2**31)), [MATRIX], [np.zeros(0)], [MATRIX * 0]),
    Edge("take_along_dim from the end", lambda m, x, i: m.take_along_dim(x, i, 1), [MATRIX, LAST[None]],
         [[[3.0], [6.0]]], [[[0.0, 0.0, 1.0], [0.0, 0.0, 2.0]]]),
    Edge("max_pool3d whose last element is the largest",
         lambda m, x: m.nn.functional.max_pool3d(x, 2, 1, return_indices=True), [CUBE],
         [CUBE[:, 1:, 1:, 1:], CUBE[:, 1:, 1:, 1:].astype(int)],
         [np.pad(np.arange(1.0, 9).reshape(1, 2, 2, 2), ((0, 0), (1, 0), (1, 0), (1, 0)))]),
    Edge("max_pool3d of integers whose first is the largest",
         lambda m, x: m.nn.functional.max_pool3d(x, 2, 1, return_indices=True), [-CUBE.astype(int)],
         [-CUBE[:, :2, :2, :2].astype(int), CUBE[:, :2, :2, :2].astype(int)]),
    Edge("max_pool3d of no volumes", lambda m, x: m.nn.functional.max_pool3d(x, 2, return_indices=True), [VOLUMES],
         [VOLUMES[..., :1, :1, :1], VOLUMES[..., :1, :1, :1].astype(int)], [VOLUMES]),
    Edge("topk of no dims", lambda m, x: m.topk(x, 1), [np.array(3.0)], [3.0, 0], [1.0]),
    Edge("topk of no dims, none", lambda m, x: m.topk(x, 0), [np.array(3.0)], [3.0, 0], [1.0]),
    Edge("tensordot over nothing", lambda m, x, y: m.tensordot(x, y, 1), [np.ones((3, 0)), np.ones((0, 2))],
         [np.zeros((3, 2))], [np.ones((3, 0)), np.ones((0, 2))]),
    Edge("tensordot of nothing", lambda m, x, y: m.tensordot(x, y, 1), [np.ones((0, 3)), np.ones((3, 2))],
         [np.zeros((0, 2))], [np.ones((0, 3)), np.zeros((3, 2))]),
    Edge("adaptive_avg_pool3d, no batch", lambda m, x: m.nn.functional.adaptive_avg_pool3d(x, 2), [VOLUMES],
         [np.zeros((0, 2, 2, 2, 2))], [VOLUMES]),
    Edge("adaptive_avg_pool2d, no channels", lambda m, x: m.nn.functional.adaptive_avg_pool2d(x.detach(), 2),
         [np.zeros((2, 0, 3, 3))], [np.zeros((2, 0, 2, 2))]),
    Edge("median of ties", lambda m, x: m.median(x), [floats(2, 1, 2, 3)], [2.0], [[0.5, 0.0, 0.5, 0.0]]),
    Edge("slopes at the ends", lambda m, x: m.nn.functional.relu6(x), [floats(5, 0, 6, 1)],
         [[5.0, 0.0, 6.0, 1.0]], [[1.0, 0.0, 0.0, 4.0]]),
    Edge("median of nothing", lambda m, x: m.median(x), [np.ones((0, 2))], [nan], [np.ones((0, 2))]),
    Edge("median of nan", lambda m, x: m.median(x), [floats(nan, 1, nan)], [nan], [[0.5, 0.0, 0.5]]),
    Edge("median of -inf", lambda m, x: m.median(x), [floats(-inf, -inf, 1)], [-inf], [[0.5, 0.5, 0.0]]),
    Edge("nanmedian of inf", lambda m, x: m.nanmedian(x), [floats(inf, nan, inf)], [inf], [[0.5, 0.0, 0.5]]),
    Edge("logsumexp of integers", lambda m, x: m.logsumexp(x, 1), [np.array([[1000, 0], [0, -1000]])],
         [np.array([1000, 0], np.float32)]),
    Edge("logit of integers", lambda m, x: m.logit(x), [np.array([0, 1])], [np.array([-inf, inf], np.float32)]),
    Edge("logit of bools", lambda m, x: m.special.logit(x, 0.5), [BOOLS[0]], [np.zeros(3, np.float32)]),
    Edge("sign of bools", lambda m, x: m.sign(x), [BOOLS[0]], [BOOLS[0]]),
    Edge("trapezoid of bytes", lambda m, x: m.trapezoid(x), [np.array([100, 200, 100], np.uint8)],
         [np.float32(300)]),
    Edge("entr at 0 and below", lambda m, x: m.special.entr(x), [floats(0, -0.0, 1, -1, nan)],
         [[0.0, 0.0, 0.0, -inf, nan]], [[inf, inf, -3.0, nan, nan]]),
    Edge("norm of inf, p = -1", lambda m, x: m.norm(x, -1), [floats(inf, 2, -2)], [1.0], [[0.0, 0.25, -0.25]]),
    Edge("logcumsumexp of inf", lambda m, x: m.logcumsumexp(x, 0), [floats(1, inf, 2)], [[1.0, inf, inf]],
         [[1.0, nan, 0.0]]),
    Edge("copysign of nan", lambda m, x, y: m.copysign(x, y), [floats(nan, 1, -1, 0), floats(1, nan, 1, -1)], [
         [nan, 1.0, 1.0, -0.0]], [[nan, 2.0, -3.0, 0.0], np.zeros(4)]),
    Edge("attention of width 0", lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v),
         [np.ones((2, 0)), np.ones((2, 0)), MATRIX], [[[2.5, 3.5, 4.5]] * 2],
         [np.ones((2, 0)), np.ones((2, 0)), [[2.5, 3.5, 4.5]] * 2]),
]  # fmt: skip
EDGES += [
    Edge(
        f"conv_transpose{n}d, output_padding below the dilation, padding {p}",
        lambda m, x, w, n=n, p=p: getattr(m.nn.functional, f"conv_transpose{n}d")(
            x, w, stride=1, padding=p, output_padding=2, dilation=3
        ),
        [np.arange(1.0, 1 + 3**n).reshape(1, 1, *(3,) * n), np.arange(1.0, 1 + 2**n).reshape(1, 1, *(2,) * n)],
    )
    for n in (1, 2, 3)
    for p in (0, 1, 2)
]
EDGES += [
    Edge(
        f"slopes of {name} at the ends",
        lambda m, x, name=name: getattr(m.nn.functional, name)(x),
        [floats(0.25, at, -at, 1.5 - at)],
    )
    for name, at in (("hardtanh", 1), ("hardshrink", 0.5), ("softshrink", 0.5))
]
EDGES += [
    Edge(
        f"max_pool{n}d of {dtype}",
        lambda m, x, n=n: getattr(m.nn.functional, f"max_pool{n}d")(x, 3, 2, 1, return_indices=True),
        [
            np.array([-7, -(2**62), -5, -9, 0, 3, 2**62, 8, -8, -8, -8, -8] * 5**n)[: 5**n]
            .reshape(1, 1, *(5,) * n)
            .astype(dtype)
        ],
    )
    for n in (2, 3)
    for dtype in ("int8", "uint8", "int64")
]
EDGES += [
    Edge(
        f"adaptive_max_pool{n}d to nothing",
        lambda m, x, n=n: getattr(m.nn.functional, f"adaptive_max_pool{n}d")(
            x.detach(), (0, 2, 1)[:n], return_indices=True
        ),
        [np.ones((1, 2, *(4,) * n))],
        [np.zeros((1, 2, *(0, 2, 1)[:n])), np.zeros((1, 2, *(0, 2, 1)[:n]), int)],
    )
    for n in (1, 2, 3)
]

SCORES, LABELS = floats([1, 0, 2]), np.array([[0, -1, 2]])
EDGES += [
    Edge(
        f"slopes of {name} at the margin",
        lambda m, *x, f=function: f(m.nn.functional, *x),
        inputs,
        [floats(result)[0]],
        [np.asarray(x, np.float64) for x in slopes],
    )
    for name, function, inputs, result, slopes in [
        (
            "margin_ranking_loss",
            lambda F, a, b: F.margin_ranking_loss(a, b, b * 0 + 1),
            [floats(1), floats(1)],
            0.0,
            [[-1], [1]],
        ),
        ("hinge_embedding_loss", lambda F, x: F.hinge_embedding_loss(x, x.detach() * 0 - 1), [floats(1)], 0.0, [[-1]]),
        (
            "triplet_margin_loss",
            lambda F, a, b, c: F.triplet_margin_loss(a, b, c, eps=0.0),
            [floats([0, 0]), floats([1, 0]), floats([2, 0])],
            0.0,
            [[[0, 0]], [[1, 0]], [[-1, 0]]],
        ),
        (
            "multi_margin_loss",
            lambda F, x, t: F.multi_margin_loss(x, t),
            [SCORES, FIRST],
            2 / 3,
            [[[-1 / 3, 0, 1 / 3]]],
        ),
        (
            "multi_margin_loss, p = 2",
            lambda F, x, t: F.multi_margin_loss(x, t, p=2),
            [SCORES, FIRST],
            4 / 3,
            [[[-4 / 3, 0, 4 / 3]]],
        ),
        (
            "multilabel_margin_loss",
            lambda F, x, t: F.multilabel_margin_loss(x, t),
            [SCORES, LABELS],
            2 / 3,
            [[[-1 / 3, 0, 1 / 3]]],
        ),
        ("smooth_l1_loss", lambda F, x: F.smooth_l1_loss(x, x.detach() * 0), [floats(1, -1)], 0.5, [[0.5, -0.5]]),
        ("huber_loss", lambda F, x: F.huber_loss(x, x.detach() * 0), [floats(1, -1)], 0.5, [[0.5, -0.5]]),
        ("l1_loss", lambda F, x: F.l1_loss(x, x.detach()), [floats(1, -1)], 0.0, [[0, 0]]),
    ]
]

REFUSED = [
    Refused("alpha of bools", lambda m, x, y: m.sub(x, y, alpha=2), BOOLS, DTypeError, "sub: "),
    Refused("a fraction as alpha", lambda m, x: m.add(x, 2, alpha=1.5), [np.array([1])], DTypeError, "add: got alpha"),
    Refused(
        "index_select from the end", lambda m, x, i: m.index_select(x, 1, i), [MATRIX, LAST], IndexRangeError,
        r"index_select: index -1 is out of range for dim 1 of size 3 .* expected from 0 to 2",
    ),
    *[
        Refused(f"label {label}", lambda m, x, t: m.nn.functional.multilabel_margin_loss(x, t),
                [SCORES, np.array([labels])], IndexRangeError, f"multilabel_margin_loss: .*index {label} ")
        for label, labels in {7: [0, -1, 7], -5: [0, -5, 2], -9: [0, -1, -9], 5: [5, -1, 0]}.items()
    ],
    Refused("topk of no dims", lambda m, x: m.topk(x, 2), [np.array(3.0)], ShapeError,
            r"topk: got k=2 for dim 0 of shape \(\)"),
    Refused("take_along_dim before the first", lambda m, x, i: m.take_along_dim(x, i), [MATRIX, np.array([-7])],
            IndexRangeError, "take_along_dim: .*index -7"),
    Refused("multi_dot", lambda m, x: m.linalg.multi_dot([x, x.mT, x.mT]), [MATRIX], ShapeError,
            r"multi_dot: got shapes \(3, 2\) and \(3, 2\) at positions 1 and 2"),
    *[Refused(f"{name} of no dims with a source {shape}",
              lambda m, x, y, name=name, n=n, more=more: getattr(m, name)(
                  x, 0, m.zeros(n, dtype=m.int64, device=x.device), y, *more),
              [np.array(2.0), np.ones(shape)], ShapeError, f"{name}: ")
      for name, more in (("index_reduce", ["prod"]), ("index_add", [])) for n, shape in ((1, (1,)), (2, (2,)))],
    Refused("index_select of no dims", lambda m, x, i: m.index_select(x, 0, i), [np.array(1.0), LAST],
            IndexRangeError, "index_select: index -1"),
    Refused("index_add from the end", lambda m, x, i: m.index_add(x, 0, i, x[:1]), [MATRIX, LAST], IndexRangeError,
            "index_add: index -1"),
    Refused("index_copy from the end", lambda m, x, i: m.index_copy(x, 0, i, x[:1]), [MATRIX, LAST], IndexRangeError,
            "index_copy: index -1"),
    Refused("tensordot over -1 dims", lambda m, x: m.tensordot(x, x, -1), [MATRIX], ArgumentError, "dims=-1"),
    Refused("a dim of quantile", lambda m, x: m.quantile(x, 0.5, -2), [np.array(1.0)], DimError,
            "quantile: got dim=-2"),
    Refused("a dim of flip", lambda m, x: m.flip(x, (1,)), [np.array(1.0)], DimError, "flip: got dim=1"),
    Refused("glu of no dims", lambda m, x: m.nn.functional.glu(x), [np.array(1.0)], ShapeError, "glu: got shape"),
    Refused("a dim of glu", lambda m, x: m.nn.functional.glu(x, 2), [MATRIX], DimError, "glu: got dim=2"),
    Refused("roll of no dims", lambda m, x: m.roll(x, 1, 0), [np.array(1.0)], ShapeError, "roll: .* no dims"),
    Refused("unflatten of no dims", lambda m, x: m.unflatten(x, 0, (1,)), [np.array(1.0)], ShapeError, "unflatten: "),
    Refused("cross of no dims", lambda m, x: m.linalg.cross(x, x), [np.array(1.0)], ShapeError, "cross: "),
    Refused("a dim of cross", lambda m, x: m.linalg.cross(x, x, dim=2), [MATRIX], DimError, "cross: got dim=2"),
    Refused("split of no dims", lambda m, x: m.tensor_split(x, 1), [np.array(1.0)], ShapeError, "tensor_split: "),
    Refused("a dim of index_fill", lambda m, x, i: m.index_fill(x, 2, i, 0), [np.array(1.0), FIRST], DimError,
            "index_fill: got dim=2"),
    Refused("diag_embed of no dims", lambda m, x: m.diag_embed(x), [np.array(1.0)], ShapeError,
            "diag_embed: .* no dims"),
    Refused("linear interpolation of integers", lambda m, x: m.nn.functional.interpolate(x.long(), 5, mode="linear"),
            [ONES], DTypeError, "interpolate: got int64"),
    Refused("interpolate to -1", lambda m, x: m.nn.functional.interpolate(x, -1), [ONES], ShapeError,
            "interpolate: .* at least 1"),
    Refused("interpolate to 0", lambda m, x: m.nn.functional.interpolate(x, 0, mode="linear"), [ONES], ShapeError,
            "interpolate: .* at least 1"),
    Refused("interpolate by 0.1", lambda m, x: m.nn.functional.interpolate(x, scale_factor=0.1), [ONES], ShapeError,
            "interpolate: .* at least 1"),
    Refused("interpolate nothing", lambda m, x: m.nn.functional.interpolate(x, 2), [ONES[..., :0]], ShapeError,
            "interpolate: .* at least 1"),
    Refused(
        "output_padding of stride and dilation",
        lambda m, x: m.nn.functional.conv_transpose1d(x, x, stride=2, dilation=3, output_padding=3),
        [ONES], ArgumentError, "less than the stride or the dilation",
    ),
    Refused("bilinear of no dims", lambda m, x, w: m.nn.functional.bilinear(x, x, w), [np.array(1.0), ONES], ShapeError,
            r"bilinear: got input1 \(\)"),
    Refused("bilinear by a weight of no dims", lambda m, x, w: m.nn.functional.bilinear(x, x, w),
            [MATRIX, np.array(1.0)], ShapeError, r"bilinear: .* weight \(\); expected .* \(out, in1, in2\)"),
    Refused("trapz of no dims", lambda m, x: m.trapz(x), [np.array(1.0)], ShapeError, "trapezoid: .* no dims"),
    Refused("trapezoid at places of no dims", lambda m, y, x: m.trapezoid(y, x), [MATRIX, np.array(1.0)], ShapeError,
            "trapezoid: .* no dims"),
    Refused("searchsorted of no dims", lambda m, x: m.searchsorted(x, x), [np.array(1.0)], ShapeError,
            "searchsorted: .* no dims"),
    Refused("bucketize by no dims", lambda m, x: m.bucketize(x, x), [np.array(1.0)], ShapeError,
            "bucketize: .* no dims"),
    Refused("attention of no dims", lambda m, q, k: m.nn.functional.scaled_dot_product_attention(q, k, k),
            [np.array(1.0), MATRIX], ShapeError, r"scaled_dot_product_attention: got query \(\)"),
    Refused("a far stride", lambda m, x: m.nn.functional.avg_pool1d(x, 2, FAR), [ONES], ArgumentError,
            r"avg_pool1d: got stride=4611686018427387904; .* below 2\*\*31"),
    Refused("a far dilation", lambda m, x: m.nn.functional.max_pool2d(x, 2, dilation=FAR), [ONES], ArgumentError,
            r"max_pool2d: got dilation=4611686018427387904; .* below 2\*\*31"),
    Refused("diff of no dims", lambda m, x: m.diff(x), [np.array(1.0)], ShapeError, "diff: .* no dims"),
    Refused("a dim of diff", lambda m, x: m.diff(x, dim=2), [MATRIX], DimError, "diff: got dim=2"),
    Refused("multi_dot of no dims", lambda m, x: m.linalg.multi_dot([x, x]), [np.array(1.0)], ShapeError,
            r"multi_dot: got shapes \[\(\), \(\)\]"),
    Refused("multi_dot with a vector between", lambda m, x, y: m.linalg.multi_dot([x, y, x]), [MATRIX, np.ones(3)],
            ShapeError, r"multi_dot: got shapes .* \(3,\)"),
    Refused("hstack of nothing", lambda m: m.hstack([]), [], ShapeError, "hstack: got no tensors"),
    Refused("packed sequences of no dims", lambda m, x: m.nn.utils.rnn.pack_padded_sequence(x, [1]),
            [np.array(1.0)], ShapeError, r"pack_padded_sequence: got input \(\)"),
]  # fmt: skip
