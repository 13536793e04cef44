"""Where a region of an image is read, written once for both devices: at points on a grid, each between four pixels."""

from __future__ import annotations

import math

from numba.extending import register_jitable

MOST_POINTS = 2.0**31  # of a bin; a region that is longer, or NaN, has none


@register_jitable(error_model="numpy")
def bins_along(first, last, scale, bins, ratio, aligned):
    """Along one dim: where the first bin of a region starts, how long a bin is, and how many points it has."""
    half = 0.5 if aligned else 0.0
    start, side = first * scale - half, (last - first) * scale
    if not aligned and side < 1.0:
        side = 1.0
    length = side / bins
    count = ratio
    if ratio <= 0:
        count = int(math.ceil(length)) if 0.0 < length < MOST_POINTS else 0
    return start, length, count


@register_jitable(error_model="numpy")
def pixels_around(position, n):
    """Along a dim of n pixels: those before and behind a position, and their weights, zeros far outside."""
    if not (-1.0 <= position <= n):
        return 0, 0, 0.0, 0.0
    position = min(max(position, 0.0), n - 1.0)
    before = int(position)
    part = position - before
    return before, min(before + 1, n - 1), 1.0 - part, part
