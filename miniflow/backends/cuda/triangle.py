"""Triangles of matrices."""

from __future__ import annotations

from math import prod

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.registry import kernel
from miniflow.kernels import mask as kernels


def _triangle(sign: int, y: DeviceArray, x: DeviceArray, diagonal: int) -> None:
    matrices = (prod(x.shape[:-2]), *x.shape[-2:])
    source, target = bits(contiguous(x).reshape(matrices)), bits(y.reshape(matrices))
    over_rows(kernels.triangle, matrices[0] * matrices[1], matrices[2], source, sign, sign * diagonal, target)


@kernel("cuda", half="native")
def tril(y: DeviceArray, x: DeviceArray, *, diagonal: int) -> None:
    _triangle(1, y, x, diagonal)


@kernel("cuda", half="native")
def triu(y: DeviceArray, x: DeviceArray, *, diagonal: int) -> None:
    _triangle(-1, y, x, diagonal)
