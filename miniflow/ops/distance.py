"""Distances and similarities of vectors, and bilinear forms."""

from __future__ import annotations

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dtype import float32, promote_types
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.indexing import where
from miniflow.ops.matmul import linear
from miniflow.ops.method import method
from miniflow.ops.promotion import broadcast_shape, cast
from miniflow.ops.statistics import norm
from miniflow.tensor import Tensor, constant_like

CDIST_MODES = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")


@takes_tensors
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) over `dim`.

    Args:
        x1, x2: floating, broadcast with each other.
        dim: of the vectors; it is left out of the result.
        eps: the smallest length that counts.

    >>> import miniflow as flow
    >>> flow.cosine_similarity(flow.tensor([1.0, 0.0]), flow.tensor([0.0, 2.0]), dim=0).item()
    0.0

    Source: `torch.nn.functional.cosine_similarity`.
    """
    shape = broadcast_shape("cosine_similarity", x1.shape, x2.shape)
    x1, x2 = x1.expand(shape), x2.expand(shape)
    lengths = [norm(x, 2, dim).clamp(eps) for x in (x1, x2)]
    return (x1 * x2).sum(dim) / (lengths[0] * lengths[1])


@takes_tensors
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps over the last dim.

    Args:
        x1, x2: (N, D) or (D,), floating, broadcast with each other.
        p: the exponent of the norm.
        eps: keeps the distance of equal vectors from zero, where it has no gradient.
        keepdim: leave the last dim with size 1.

    Source: `torch.nn.functional.pairwise_distance`.
    """
    return norm(x1 - x2 + eps, p, -1, keepdim)


@method
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other, of all elements: a number, ().

    Args:
        input, other: floating, broadcast with each other.
        p: the exponent of the norm.

    Raises:
        ShapeError: if the shapes cannot be broadcast.

    Source: `torch.dist`.
    """
    return norm(input - other, p)


@takes_tensors
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = CDIST_MODES[0]) -> Tensor:
    """The p-norm of the difference of each row of x1 and each row of x2.

    Args:
        x1: (..., P, M), floating.
        x2: (..., R, M); the leading dims are broadcast.
        p: the exponent of the norm.
        compute_mode: whether p = 2 is computed from a matrix product, |x|^2 + |y|^2 - 2 x.y, which is fast and less
            precise: "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", or by default above 25 rows
            ("use_mm_for_euclid_dist_if_necessary"). All other norms take memory for P R M numbers.

    Returns:
        (..., P, R)

    Raises:
        ShapeError: for vectors of different sizes, or fewer than 2 dims.
        ArgumentError: for an unknown compute_mode, or a negative p.

    >>> import miniflow as flow
    >>> flow.cdist(flow.tensor([[0.0, 0.0]]), flow.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]

    Source: `torch.cdist`.
    """
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"cdist: got {tuple(x1.shape)} and {tuple(x2.shape)}; expected (..., P, M) and (..., R, M)")
    if compute_mode not in CDIST_MODES or p < 0:
        raise ArgumentError(f"cdist: got compute_mode={compute_mode!r}, p={p}; expected one of {CDIST_MODES}, p >= 0")
    many = max(x1.shape[-2], x2.shape[-2]) > 25
    if p == 2 and (compute_mode == CDIST_MODES[1] or many and compute_mode == CDIST_MODES[0]):
        return cast(_by_product(*(cast(x, promote_types(x.dtype, float32)) for x in (x1, x2))), x1.dtype)
    return norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def _by_product(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(|x|^2 + |y|^2 - 2 x.y); where that is 0, so is the gradient."""
    squares = (x1 * x1).sum(-1, True) + (x2 * x2).sum(-1, True).transpose(-1, -2)
    squares = squares - x1 @ x2.transpose(-1, -2) * 2.0
    is_positive = squares > 0
    return where(is_positive, where(is_positive, squares, 1.0).sqrt(), 0.0)


@takes_tensors
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of the difference of each pair of rows i < j of a matrix (N, M): N (N - 1) / 2 numbers.

    Source: `torch.nn.functional.pdist`.
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist: got {tuple(input.shape)}; expected a matrix (N, M)")
    first, second = (input.index_select(0, constant_like(input, i)) for i in np.triu_indices(len(input), 1))
    return norm(first - second, p, -1)


@takes_tensors
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x1 W_o x2 + b_o

    Args:
        input1: x1, (..., in1).
        input2: x2, (..., in2).
        weight: W, (out, in1, in2).
        bias: b, (out,).

    Raises:
        ShapeError: if the shapes do not fit together.

    Source: `torch.nn.functional.bilinear`.
    """
    if not (input1.ndim and input2.ndim and weight.ndim == 3):
        expected = "(..., in1), (..., in2) and (out, in1, in2)"
        raise refusal(ShapeError, "bilinear", expected, input1=input1, input2=input2, weight=weight)
    rows, (out, in1, in2) = tuple(input1.shape[:-1]), weight.shape
    if tuple(input2.shape[:-1]) != rows or (input1.shape[-1], input2.shape[-1]) != (in1, in2):
        expected = f"(..., {in1}) and (..., {in2})"
        raise refusal(ShapeError, "bilinear", expected, input1=input1, input2=input2, weight=weight)
    products = input1.unsqueeze(-1) * input2.unsqueeze(-2)
    return linear(products.reshape((*rows, in1 * in2)), weight.reshape((out, in1 * in2)), bias)
