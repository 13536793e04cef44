"""What `gpu` measures: every family of `miniflow.kernels`, as lines that miniflow and torch run alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sizes:
    """How large the inputs are: far beyond the 50 MB cache of an H200, or tiny to try everything out."""

    n: int = 1 << 25
    rows: int = 1 << 15
    width: int = 1 << 10
    wide: int = 1 << 13
    side: int = 1 << 12  # of the matrices
    images: int = 128
    channels: int = 64
    pixels: int = 56  # along each side of an image


FULL = Sizes()
TINY = Sizes(n=1000, rows=9, width=40, wide=1100, side=33, images=2, channels=3, pixels=9)


@dataclass(frozen=True)
class Case:
    """A computation.

    Attributes:
        name: for the table.
        inputs: makes the NumPy arrays from the sizes.
        run: run(f, *tensors) with f miniflow or torch; returns a tensor.
        wrt: None to measure `run`; else the numbers of the inputs whose gradients are measured, for random cotangents.
        prepare: instead of `run`, prepare(f, *tensors) returns the function that is measured.
        flops: floating-point operations by the sizes, where these are what limits.
        moved: bytes that have to be read and written, by the sizes; by default all inputs and results once.
        random: whether results are random numbers, of which only mean and deviation are compared.
    """

    name: str
    inputs: Callable[[Sizes], Sequence[np.ndarray]]
    run: Callable[..., Any] | None = None
    wrt: tuple[int, ...] | None = None
    prepare: Callable[..., Callable[[], Any]] | None = None
    flops: Callable[[Sizes], float] | None = None
    moved: Callable[[Sizes], float] | None = None
    random: bool = False


# inputs


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed float32."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def indices(count: int | tuple[int, ...], below: int) -> np.ndarray:
    """Integers from 0 to `below`, exclusive."""
    return np.random.default_rng(1).integers(0, below, count)


def flat(count: int) -> Callable[[Sizes], list[np.ndarray]]:
    """`count` long vectors."""
    return lambda s: [normal(s.n, seed=seed) for seed in range(count)]


def rows(s: Sizes) -> list[np.ndarray]:
    """A matrix of many rows."""
    return [normal(s.rows, s.width)]


def rows_and_parameters(s: Sizes) -> list[np.ndarray]:
    """With weight and bias of its columns."""
    return [*rows(s), normal(s.width, seed=1), normal(s.width, seed=2)]


def wide_rows_and_parameters(s: Sizes) -> list[np.ndarray]:
    """The same with long rows, as many elements in all."""
    return [normal(max(1, s.n // s.wide), s.wide), normal(s.wide, seed=1), normal(s.wide, seed=2)]


def rows_and_classes(s: Sizes) -> list[np.ndarray]:
    """Logits and targets."""
    return [*rows(s), indices(s.rows, s.width)]


def matrices(s: Sizes) -> list[np.ndarray]:
    """Two square matrices."""
    return [normal(s.side, s.side), normal(s.side, s.side, seed=1)]


def images(s: Sizes) -> list[np.ndarray]:
    """Images, twice as large along each side as those of the convolutions."""
    return [normal(s.images, s.channels, 2 * s.pixels, 2 * s.pixels)]


def images_and_parameters(s: Sizes) -> list[np.ndarray]:
    """With weight and bias of the channels."""
    return [*images(s), normal(s.channels, seed=1), normal(s.channels, seed=2)]


def convolution(kernel: int, depthwise: bool = False) -> Callable[[Sizes], list[np.ndarray]]:
    """Images and a weight that keeps the number of channels."""

    def make(s: Sizes) -> list[np.ndarray]:
        inputs = 1 if depthwise else s.channels
        return [normal(s.images, s.channels, s.pixels, s.pixels), normal(s.channels, inputs, kernel, kernel, seed=1)]

    return make


# computations that are more than a line


def rung(name: str) -> Callable[[Any, Any, Any], Any]:
    """A matrix product by another rung of kernels/ladders/matmul.py than the library's; by torch's best in torch."""

    def multiply(f: Any, x: Any, y: Any) -> Any:
        if f.__name__ == "torch":
            return x @ y
        from miniflow.kernels.ladders import matmul

        out = f.empty_like(x)
        is_square = name == "register_square"
        side, threads = (matmul.SQUARE, matmul.ACROSS) if is_square else (matmul.TILE, matmul.TILE)
        getattr(matmul, name)[(-(-x.shape[0] // side),) * 2, (threads,) * 2](x, y, out)
        return out

    return multiply


def optimizer(name: str, **options: Any) -> Callable[..., Callable[[], Any]]:
    """Steps of an optimizer over one parameter; torch's are its fused ones where it has a GPU."""

    def prepare(f: Any, param: Any, grad: Any) -> Callable[[], Any]:
        param.requires_grad_(True)
        param.grad = grad
        fused = {"fused": True} if f.__name__ == "torch" and param.is_cuda else {}
        steps = getattr(f.optim, name)([param], **options, **fused)

        def step() -> Any:
            steps.step()
            return param.detach()

        return step

    return prepare


def matmul_flops(s: Sizes) -> float:
    """Of a product of square matrices."""
    return 2.0 * s.side**3


def conv_flops(kernel: int) -> Callable[[Sizes], float]:
    """Of a convolution, or of one of its gradients."""
    return lambda s: 2.0 * s.images * s.pixels**2 * s.channels**2 * kernel**2


def batch_norm(f: Any, x: Any, weight: Any, bias: Any) -> Any:
    """With the statistics of the batch."""
    return f.nn.functional.batch_norm(x, None, None, weight, bias, training=True)


def conv(padding: int) -> Callable[[Any, Any, Any], Any]:
    """A convolution with stride 1."""
    return lambda f, x, w: f.nn.functional.conv2d(x, w, padding=padding)


def depthwise(f: Any, x: Any, w: Any) -> Any:
    """3x3, a channel a group."""
    return f.nn.functional.conv2d(x, w, padding=1, groups=x.shape[1])


def layer_norm(f: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Of the last dim."""
    return f.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)


FAMILIES: dict[str, list[Case]] = {
    "elementwise": [
        Case("x + y", flat(2), lambda f, x, y: x + y),
        Case("exp", flat(1), lambda f, x: f.exp(x)),
        Case("rows + bias", lambda s: rows_and_parameters(s)[:2], lambda f, x, b: x + b),
        Case("where", flat(3), lambda f, c, x, y: f.where(c > 0, x, y), moved=lambda s: 18 * s.n),
    ],
    "activation": [
        Case("gelu", flat(1), lambda f, x: f.nn.functional.gelu(x)),
        Case("gelu, gradient", flat(1), lambda f, x: f.nn.functional.gelu(x), wrt=(0,)),
        Case("relu, gradient", flat(1), lambda f, x: f.relu(x), wrt=(0,)),
    ],
    "copy": [
        Case("transpose", matrices, lambda f, x, y: x.t().contiguous(), moved=lambda s: 8 * s.side**2),
        Case("fill", flat(1), lambda f, x: f.full_like(x, 1.5), moved=lambda s: 4 * s.n),
        Case("float32 to float16", flat(1), lambda f, x: x.to(f.float16)),
    ],
    "reduce": [
        Case("sum of all", flat(1), lambda f, x: x.sum()),
        Case("sum of rows", rows, lambda f, x: x.sum(1)),
        Case("sum of columns", rows, lambda f, x: x.sum(0)),
        Case("amax of rows", rows, lambda f, x: f.amax(x, 1)),
        Case("var of rows", rows, lambda f, x: f.var(x, 1)),
    ],
    "arg_reduce and scan": [
        Case("argmax of rows", rows, lambda f, x: f.argmax(x, 1)),
        Case("argmax of all", flat(1), lambda f, x: f.argmax(x)),
        Case("cumsum of rows", rows, lambda f, x: f.cumsum(x, 1)),
    ],
    "softmax and loss": [
        Case("softmax", rows, lambda f, x: f.softmax(x, 1)),
        Case("softmax, gradient", rows, lambda f, x: f.softmax(x, 1), wrt=(0,)),
        Case("log_softmax", rows, lambda f, x: f.log_softmax(x, 1)),
        Case("log_softmax, gradient", rows, lambda f, x: f.log_softmax(x, 1), wrt=(0,)),
        Case("cross_entropy", rows_and_classes, lambda f, x, t: f.nn.functional.cross_entropy(x, t)),
        Case("cross_entropy, gradient", rows_and_classes, lambda f, x, t: f.nn.functional.cross_entropy(x, t), (0,)),
    ],
    "norm": [
        Case("layer_norm", rows_and_parameters, layer_norm),
        Case("layer_norm, gradients", rows_and_parameters, layer_norm, (0, 1, 2)),
        Case("layer_norm, long rows", wide_rows_and_parameters, layer_norm),
        Case("layer_norm, long rows, gradients", wide_rows_and_parameters, layer_norm, (0, 1, 2)),
        Case("batch_norm", images_and_parameters, batch_norm),
        Case("batch_norm, gradients", images_and_parameters, batch_norm, (0, 1, 2)),
    ],
    "matmul": [
        Case("matmul, naive", matrices, rung("naive"), flops=matmul_flops),
        Case("matmul, tiled", matrices, rung("tiled"), flops=matmul_flops),
        Case("matmul, register_square", matrices, rung("register_square"), flops=matmul_flops),
        Case("matmul, register_tiled", matrices, lambda f, x, y: x @ y, flops=matmul_flops),
        Case(
            "matmul, 16 of a 16th",
            lambda s: [normal(16, *(s.side // 4,) * 2, seed=seed) for seed in range(2)],
            lambda f, x, y: x @ y,
            flops=lambda s: 32.0 * (s.side // 4) ** 3,
        ),
        Case(
            "linear",
            lambda s: [*matrices(s), normal(s.side, seed=2)],
            lambda f, x, w, b: f.nn.functional.linear(x, w, b),
            flops=matmul_flops,
        ),
    ],
    "conv": [
        Case("conv2d 3x3", convolution(3), conv(1), flops=conv_flops(3)),
        Case("conv2d 3x3, data gradient", convolution(3), conv(1), (0,), flops=conv_flops(3)),
        Case("conv2d 3x3, weight gradient", convolution(3), conv(1), (1,), flops=conv_flops(3)),
        Case("conv2d 1x1", convolution(1), conv(0), flops=conv_flops(1)),
        Case("conv2d 3x3, depthwise", convolution(3, True), depthwise),
        Case("conv2d 3x3, depthwise, data gradient", convolution(3, True), depthwise, (0,)),
        Case("conv2d 3x3, depthwise, weight gradient", convolution(3, True), depthwise, (1,)),
    ],
    "pool": [
        Case("max_pool2d", images, lambda f, x: f.nn.functional.max_pool2d(x, 2)),
        Case("max_pool2d, gradient", images, lambda f, x: f.nn.functional.max_pool2d(x, 2), (0,)),
        Case("max_pool2d 3x3", images, lambda f, x: f.nn.functional.max_pool2d(x, 3, 2, 1)),
        Case("max_pool2d 3x3, gradient", images, lambda f, x: f.nn.functional.max_pool2d(x, 3, 2, 1), (0,)),
        Case("avg_pool2d", images, lambda f, x: f.nn.functional.avg_pool2d(x, 2)),
        Case("avg_pool2d, gradient", images, lambda f, x: f.nn.functional.avg_pool2d(x, 2), (0,)),
        Case("adaptive_avg_pool2d", images, lambda f, x: f.nn.functional.adaptive_avg_pool2d(x, 7)),
        Case("adaptive_avg_pool2d, gradient", images, lambda f, x: f.nn.functional.adaptive_avg_pool2d(x, 7), (0,)),
    ],
    "gather, scatter and embedding": [
        Case(
            "index_select",
            lambda s: [*rows(s), indices(s.rows, s.rows)],
            lambda f, x, i: f.index_select(x, 0, i),
            moved=lambda s: 8 * s.rows * (s.width + 1),
        ),
        Case(
            "gather",
            lambda s: [*rows(s), indices((s.rows, s.width), s.width)],
            lambda f, x, i: f.gather(x, 1, i),
        ),
        Case(
            "scatter_add",
            lambda s: [*rows(s), indices((s.rows, s.width), s.width)],
            lambda f, x, i: f.scatter_add(f.zeros_like(x), 1, i, x),
            moved=lambda s: 20 * s.rows * s.width,
        ),
        Case(
            "embedding",
            lambda s: [normal(s.rows, s.width), indices(s.rows, s.rows)],
            lambda f, w, i: f.nn.functional.embedding(i, w),
            moved=lambda s: 8 * s.rows * (s.width + 1),
        ),
        Case(
            "embedding, gradient",
            lambda s: [normal(s.rows, s.width), indices(s.rows, s.rows)],
            lambda f, w, i: f.nn.functional.embedding(i, w),
            (0,),
            moved=lambda s: 8 * s.rows * (s.width + 1),
        ),
    ],
    "mask and pad": [
        Case("masked_fill", flat(2), lambda f, x, m: x.masked_fill(m > 0, 0.5), moved=lambda s: 14 * s.n),
        Case("tril", lambda s: matrices(s)[:1], lambda f, x: f.tril(x), moved=lambda s: 6 * s.side**2),
        Case("pad", images, lambda f, x: f.nn.functional.pad(x, (1, 1, 1, 1))),
        Case("one_hot", lambda s: [indices(s.rows, 512)], lambda f, c: f.nn.functional.one_hot(c, 512)),
    ],
    "random and dropout": [
        Case("rand", flat(1), lambda f, x: f.rand_like(x), moved=lambda s: 4 * s.n, random=True),
        Case("randn", flat(1), lambda f, x: f.randn_like(x), moved=lambda s: 4 * s.n, random=True),
        Case("dropout", flat(1), lambda f, x: f.nn.functional.dropout(x, 0.5), moved=lambda s: 9 * s.n, random=True),
        Case(
            "dropout, gradient",
            flat(1),
            lambda f, x: f.nn.functional.dropout(x, 0.5),
            (0,),
            moved=lambda s: 9 * s.n,
            random=True,
        ),
    ],
    "optim": [
        Case("SGD, momentum", flat(2), prepare=optimizer("SGD", lr=0.1, momentum=0.9), moved=lambda s: 20 * s.n),
        Case("Adam", flat(2), prepare=optimizer("Adam", lr=0.1), moved=lambda s: 28 * s.n),
    ],
}
