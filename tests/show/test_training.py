"""The pictures of a training run show the numbers they were given."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import miniflow as flow
from miniflow.errors import ShapeError
from miniflow.show.training import confusion_counts


def test_losses_draws_every_step_and_every_epoch():
    train, test = [2.0, 1.5, 1.0, 0.8, 0.7, 0.6], [0.9, 0.5]
    axes = flow.show.losses(train, test, axes=Figure().subplots())
    steps, mean, epochs = axes.lines
    np.testing.assert_allclose(steps.get_ydata(), train)
    np.testing.assert_allclose(steps.get_xdata(), np.arange(1, 7) / 3)  # three steps an epoch
    np.testing.assert_allclose(epochs.get_ydata(), test)
    np.testing.assert_allclose(epochs.get_xdata(), [1, 2])
    expected = [np.average(train[:n], weights=0.9 ** np.arange(n)[::-1]) for n in range(1, 7)]
    np.testing.assert_allclose(mean.get_ydata(), expected)
    assert axes.get_ylim()[0] == 0 and axes.get_xlabel() == "epoch"


def test_losses_without_test_counts_steps():
    axes = flow.show.losses([2.0, 1.0], axes=Figure().subplots())
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [1, 2])
    assert axes.get_xlabel() == "step" and len(axes.lines) == 2


def test_confusion_counts_against_a_loop():
    random = np.random.default_rng(2)
    actual, predicted = random.integers(0, 4, 60), random.integers(0, 4, 60)
    expected = [[sum((actual == i) & (predicted == j)) for j in range(4)] for i in range(4)]
    counts = confusion_counts(flow.tensor(predicted), actual, 4)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, expected)


def test_confusion_writes_each_count_at_its_row_and_column():
    axes = flow.show.confusion([0, 2, 2, 1], [0, 2, 1, 1], ["cat", "dog", "cow"], axes=Figure().subplots())
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {(0, 0): "1", (1, 1): "1", (2, 1): "1", (2, 2): "1"}  # (column, row)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "dog", "cow"]
    assert axes.get_title() == "Predictions: 3 of 4 right (75.0 %)"


def test_wrong_inputs():
    with pytest.raises(
        ShapeError, match=r"show.confusion: got \(3,\) predicted and \(2,\) actual; expected \(N,\) each"
    ):
        flow.show.confusion([0, 1, 1], [0, 1], 2, axes=Figure().subplots())
    for classes in ([0, 5], [-1, 1]):
        with pytest.raises(ValueError, match="invalid entry"):
            flow.show.confusion(classes, [0, 1], 3, axes=Figure().subplots())
