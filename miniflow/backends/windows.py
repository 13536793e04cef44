"""Sliding windows over images: the geometry that convolution and pooling share, on every device.

Along one dim of size n, window i covers the positions `i * stride - before + t * dilation` for its taps t < kernel.
"""

from __future__ import annotations

from typing import NamedTuple

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]  # ((top, bottom), (left, right))


def window_count(n: int, kernel: int, stride: int, padding: Pair, dilation: int, ceil_mode: bool = False) -> int:
    """The number of windows that fit along one dim of size n; below 1 if none does.

    With `ceil_mode` the last window may extend over the edge, but it starts on the image or in the padding before it.

    >>> window_count(7, 2, 2, (0, 0), 1), window_count(7, 2, 2, (0, 0), 1, ceil_mode=True)
    (3, 4)
    """
    room = n + sum(padding) - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= n + padding[0] else count


class Windows(NamedTuple):
    """The geometry of windows on an image; each field has one entry for the rows and one for the columns."""

    kernel: Pair
    stride: Pair
    padding: Padding
    dilation: Pair
    ceil_mode: bool = False

    def counts(self, size: Pair) -> Pair:
        """The numbers of windows that fit on an image of `size` (rows, columns)."""
        rows, columns = (
            window_count(*along, self.ceil_mode)
            for along in zip(size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )
        return rows, columns
