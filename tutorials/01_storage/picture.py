"""The picture of lesson 1: where in storage the elements of four views are."""

import matplotlib.pyplot as plt
import numpy as np


def draw(impl):
    """A grid for each view; the number and the shade of a cell are its place in storage."""
    rows, columns = 4, 6
    step = impl.contiguous_strides((rows, columns))
    views = {
        "row-major": ((rows, columns), step),
        "transposed": ((columns, rows), step[::-1]),
        "every second column": ((rows, columns // 2), (step[0], 2 * step[1])),
        "one row, broadcast": ((rows, columns), impl.broadcast_strides((columns,), step[1:], (rows, columns))),
    }
    figure, axes = plt.subplots(1, len(views), figsize=(12, 3), layout="constrained")
    for axis, (title, (shape, strides)) in zip(axes, views.items()):
        places = np.array([impl.offset(index, strides, 0) for index in np.ndindex(shape)]).reshape(shape)
        axis.imshow(places, cmap="viridis", vmin=0, vmax=rows * columns)
        for i, j in np.ndindex(shape):
            axis.text(j, i, places[i, j], ha="center", va="center", color="white" if places[i, j] < 16 else "black")
        axis.set(title=f"{title}\nstrides {tuple(int(s) for s in strides)}", xticks=[], yticks=[])
    return figure
