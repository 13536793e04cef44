"""Pooling over planes (P, H, W): the channels of all images.

A block is a box of threads over (planes, rows, columns) of what it makes: thread (x, y, z) of the grid owns the element
in column x and row y of plane z. So small images fill blocks too, and no index has to be taken apart. Each thread makes
one element and writes it once; neighbours share the cache lines of their windows.

Averages know nothing of strides and borders: along each dim they get the bounds (OH, 2) of the part of each window
that lies on the image, and its weight; the weight of a window is that of its rows times that of its columns. So one
kernel serves adaptive pooling too.
"""

from miniflow.hostcuda import cuda


@cuda.jit
def max_pool(x, y, index, window, step, first, spread, lowest):
    """y = the maximum over a window, and where in its plane it was found: KH * KW reads, two writes.

    The first of equal elements is taken, but the last NaN if there is one. A window that sees nothing has `lowest`, -1.

    Args:
        x: (P, H, W).
        y, index: (P, OH, OW), the index int32.
        window, step, first, spread: pairs, for rows and columns; window i covers the positions
            i * step + first + a * spread.
        lowest: -inf, or the smallest integer.
    """
    j, i, plane = cuda.grid(3)
    if plane < x.shape[0] and i < y.shape[1] and j < y.shape[2]:
        top, left = i * step[0] + first[0], j * step[1] + first[1]
        best, where = x.dtype.type(lowest), -1
        for a in range(window[0]):
            h = top + a * spread[0]
            if h >= 0 and h < x.shape[1]:
                for b in range(window[1]):
                    w = left + b * spread[1]
                    if w >= 0 and w < x.shape[2]:
                        value = x[plane, h, w]
                        if value > best or value != value or where < 0:
                            best, where = value, h * x.shape[2] + w
        y[plane, i, j] = best
        index[plane, i, j] = where


@cuda.jit
def max_pool_gradient(dy, index, dx):
    """dx[plane, index] += dy, into zeros: a thread owns a window. One read of each, one atomic addition.

    Only where windows overlap can two threads add to one element, in any order.

    Args:
        dy, index: (P, OH, OW). An index below 0 belongs to a window that saw nothing.
        dx: (P, H * W), zeros.
    """
    j, i, plane = cuda.grid(3)
    if plane < dy.shape[0] and i < dy.shape[1] and j < dy.shape[2]:
        where = index[plane, i, j]
        if where >= 0:
            cuda.atomic.add(dx, (plane, where), dy[plane, i, j])


@cuda.jit
def average(x, y, rows, columns, row_weights, column_weights):
    """y = the sum over a window times its weight: reads the window, writes once.

    Args:
        x: (P, H, W).
        y: (P, OH, OW).
        rows, columns: (OH, 2) and (OW, 2), first and past-last position of each window.
        row_weights, column_weights: (OH,) and (OW,).
    """
    j, i, plane = cuda.grid(3)
    if plane < x.shape[0] and i < y.shape[1] and j < y.shape[2]:
        weight = row_weights[i] * column_weights[j]
        total = x.dtype.type(0)
        for h in range(rows[i, 0], rows[i, 1]):
            for w in range(columns[j, 0], columns[j, 1]):
                total += x[plane, h, w]
        y[plane, i, j] = total * weight


@cuda.jit
def average_gradient(dy, dx, rows, columns, row_weights, column_weights):
    """dx = the sum of dy times its weight over the windows that cover an element: each is read where it is needed.

    A thread gathers for its element, so that nobody adds to what another thread adds to.

    Args:
        dy: (P, OH, OW).
        dx: (P, H, W).
        rows, columns: (H, 2) and (W, 2), first and past-last window that covers each position.
        row_weights, column_weights: (OH,) and (OW,).
    """
    w, h, plane = cuda.grid(3)
    if plane < dx.shape[0] and h < dx.shape[1] and w < dx.shape[2]:
        total = dx.dtype.type(0)
        for i in range(rows[h, 0], rows[h, 1]):
            for j in range(columns[w, 0], columns[w, 1]):
                total += dy[plane, i, j] * (row_weights[i] * column_weights[j])
        dx[plane, h, w] = total
