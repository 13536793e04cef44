"""Pictures of a training run: the loss curve, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAIN, TEST = "#4c78a8", "#e45756"
RIGHT, WRONG = "#999999", "#222222"


def losses(train: Sequence[float], test: Sequence[float] = (), *, axes: Axes | None = None) -> Axes:
    """Draw the training loss of every step, and the loss on held-out data after every epoch.

    Args:
        train: one loss for each step.
        test: one loss for each epoch; the epochs have equally many steps.
        axes: matplotlib axes to draw into; by default, those of a new pyplot figure.

    Returns:
        the axes.

    >>> from matplotlib.figure import Figure
    >>> losses([2.3, 1.1, 0.4, 0.3], [0.9, 0.5], axes=Figure().subplots()).get_xlabel()
    'epoch'
    """
    axes = axes or _new_axes()
    per_epoch = len(train) / len(test) if test else 1
    epochs = np.arange(1, len(train) + 1) / per_epoch
    axes.plot(epochs, train, color=TRAIN, alpha=0.35, linewidth=1)
    axes.plot(epochs, _running_mean(train), color=TRAIN, linewidth=1.8, label="training, running mean")
    if test:
        axes.plot(np.arange(1, len(test) + 1), test, "o-", color=TEST, linewidth=1.8, markersize=5, label="test")
    axes.set(xlabel="epoch" if test else "step", ylabel="cross-entropy loss", title="Loss", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def confusion(predicted: Any, actual: Any, classes: Sequence[str] | int = 10, *, axes: Axes | None = None) -> Axes:
    """Draw the confusion matrix: row = actual class, column = predicted class, mistakes counted in red.

    Args:
        predicted: (N,) the class predicted for each example, tensor or array.
        actual: (N,) its true class.
        classes: the names of the classes, or how many there are.
        axes: matplotlib axes to draw into; by default, those of a new pyplot figure.

    Returns:
        the axes.

    Raises:
        ShapeError: unless both are (N,).
        ValueError: for a class that `classes` does not name.

    >>> from matplotlib.figure import Figure
    >>> confusion([0, 1, 1], [0, 1, 0], 2, axes=Figure().subplots()).get_title()
    'Predictions: 2 of 3 right (66.7 %)'
    """
    axes = axes or _new_axes()
    names = [str(i) for i in range(classes)] if isinstance(classes, int) else list(classes)
    counts = confusion_counts(predicted, actual, len(names))
    mistakes = counts * (1 - np.eye(len(names), dtype=counts.dtype))
    axes.imshow(mistakes, cmap="Reds", vmin=0, vmax=max(2.5 * mistakes.max(), 1))
    for row, column in np.argwhere(counts):
        color = RIGHT if row == column else WRONG
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", size=8, color=color)
    right, total = int(np.trace(counts)), int(counts.sum())
    title = f"Predictions: {right:,} of {total:,} right ({100 * right / max(total, 1):.1f} %)"
    axes.set(xlabel="predicted", ylabel="actual", title=title)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    return axes


def confusion_counts(predicted: Any, actual: Any, classes: int) -> np.ndarray:
    """(classes, classes) int64: how often each actual class (row) was predicted as each class (column)."""
    predicted, actual = np.asarray(predicted), np.asarray(actual)
    if predicted.ndim != 1 or predicted.shape != actual.shape:
        raise ShapeError(
            f"show.confusion: got {predicted.shape} predicted and {actual.shape} actual; expected (N,) each"
        )
    cells = np.ravel_multi_index((actual, predicted), (classes, classes))
    return np.bincount(cells, minlength=classes**2).reshape(classes, classes)


def _running_mean(values: Sequence[float], decay: float = 0.9) -> list[float]:
    """The exponentially weighted mean so far, with the correction for its start (Kingma and Ba, 2015, section 3)."""
    result, mean = [], 0.0
    for step, value in enumerate(values, start=1):
        mean = decay * mean + (1 - decay) * value
        result.append(mean / (1 - decay**step))
    return result


def _new_axes() -> Axes:
    import matplotlib.pyplot

    return matplotlib.pyplot.figure(figsize=(5, 4), layout="constrained").subplots()
