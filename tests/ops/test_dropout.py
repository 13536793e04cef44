"""Dropout: its mask, its scale, its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import assert_close, assert_same, check_op
from philox_reference import words_reference

import miniflow as flow
from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError, DTypeError, ShapeError
from miniflow.ops.dropout import dropout
from miniflow.ops.generator import Generator


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("p", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(5, 7), (4,), (3, 1, 2), ()])
def test_dropout_is_differentiable_to_any_order(p, shape):
    x = np.random.default_rng(1).uniform(0.5, 2, shape)
    keep = words_reference(9, 0, -(-x.size // 4)).ravel()[: x.size].reshape(shape) >= round(p * 2**32)
    check_op(
        lambda x: dropout(x, p, generator=generator(9)),
        [x],
        lambda x: np.where(keep, x / (1 - p) if p < 1 else 0.0, 0.0),
        dtypes=("float32", "float64", "float16", "bfloat16"),
        gradient="dense" if keep.mean() > 0.5 else "sparse" if keep.any() else "zero",
        graph=False,  # which refuses to seed
    )


def test_dropout_within_a_nonlinear_function_has_a_third_derivative():
    x = np.random.default_rng(1).uniform(0.5, 2, (3, 5))
    keep = words_reference(2, 0, 4).ravel()[:15].reshape(3, 5) >= round(0.25 * 2**32)

    def cube(x):
        y = dropout(x, 0.25, generator=generator(2))
        return y * y * y

    check_op(cube, [x], lambda x: np.where(keep, (x / 0.75) ** 3, 0), third=True, graph=False)


def test_dropout_statistics_and_modes(seed):
    x = flow.ones(200_000)
    y = dropout(x, 0.2, generator=generator(seed)).cpu().numpy()
    assert set(np.unique(y).tolist()) == {0.0, 1.25}
    assert abs((y == 0).mean() - 0.2) < 0.006
    assert dropout(x, 0.2, training=False) is x and dropout(x, 0.0) is x
    assert_same(dropout(flow.tensor([math.inf, math.nan]), 1.0), [0.0, 0.0])
    z = flow.ones(10)
    assert dropout(z, 0.5, inplace=True, generator=generator(1)) is z
    assert_same(z, dropout(flow.ones(10), 0.5, generator=generator(1)).cpu().numpy())


def test_dropout_in_place_has_the_gradient_of_dropout():
    results = []
    for inplace in (False, True):
        x = flow.arange(1.0, 8.0, requires_grad=True)
        y = dropout(x * 2, 0.5, inplace=inplace, generator=generator(1))
        (y * y).sum().backward()
        results.append(x.grad.cpu().numpy())
    assert results[0].any()
    assert_same(results[1], results[0])


ERRORS = [
    (lambda: flow.nn.functional.dropout(flow.ones(3), "a"), ArgumentTypeError, "dropout: got .*p='a'"),
    (lambda: dropout(flow.ones(2), 1.5), ArgumentError, r"dropout: got p=1.5; expected a probability from 0 to 1"),
    (lambda: dropout(flow.ones(2), math.nan), ArgumentError, "dropout: got p=nan"),
    (lambda: dropout(flow.tensor([1, 2])), DTypeError, "dropout: got int64; expected a floating dtype"),
    (lambda: dropout(flow.ones(2, requires_grad=True), inplace=True), AutogradError, "dropout_: a leaf tensor"),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()


CHANNELS = [
    ("dropout1d", (40, 30, 3), 2), ("dropout1d", (800, 3), 1), ("dropout2d", (40, 30, 3, 2), 2),
    ("dropout2d", (40, 30, 3), 2), ("dropout3d", (40, 30, 3, 2, 2), 2), ("dropout3d", (900, 3, 2, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize("name, shape, kept", CHANNELS)
def test_whole_channels_are_dropped(name, shape, kept):
    x = np.random.default_rng(0).uniform(1, 2, shape).astype("float32")
    y = getattr(flow.nn.functional, name)(flow.tensor(x), 0.25).numpy()
    channels = (y.reshape(*shape[:kept], -1) != 0).all(-1)
    assert_close(
        y,
        np.where(channels.reshape(*channels.shape, *(1,) * (len(shape) - kept)), x / 0.75, 0).astype("float32"),
        rtol=1e-6,
    )
    assert abs(channels.mean() - 0.75) < 0.06
    assert_same(getattr(flow.nn.functional, name)(flow.tensor(x), 0.25, False), x)


def test_channels_are_dropped_in_place():
    x = flow.ones(20, 30, 2)
    assert flow.nn.Dropout1d(0.5, inplace=True)(x) is x
    assert_same(np.unique(x.numpy()), np.array([0, 2], "float32"))


@pytest.mark.parametrize("name, draws", [("alpha_dropout", 300), ("feature_alpha_dropout", 300)])
def test_alpha_dropout(name, draws):
    """Klambauer et al. 2017, section 3: mean 0 and variance 1 stay, for any p."""
    x = np.random.default_rng(0).normal(size=(draws, 100, 3)).astype("float32")
    y = getattr(flow.nn.functional, name)(flow.tensor(x), 0.3, True).numpy()
    scale = (0.7 * (1 + 0.3 * 1.7580993408473766**2)) ** -0.5
    kept = np.abs(y - scale * (-1.7580993408473766 + 0.3 * 1.7580993408473766)) > 1e-5
    assert_close(y[kept], scale * (x + 0.3 * 1.7580993408473766)[kept], rtol=1e-5, atol=1e-5)
    assert abs(kept.mean() - 0.7) < 0.02 and abs(y.mean()) < 0.03 and abs(y.var() - 1) < 0.05
    assert (kept.all(-1) | ~kept.any(-1)).all() == (name == "feature_alpha_dropout")
    assert_same(getattr(flow.nn.functional, name)(flow.tensor(x), 0.3), x)
    assert_same(getattr(flow.nn.functional, name)(flow.tensor(x), 1.0, True), np.zeros_like(x))


@pytest.mark.parametrize("name, shape", [("dropout1d", (3,)), ("dropout2d", (3,)), ("dropout3d", (3, 2, 1))])
def test_inputs_without_channels_are_refused(name, shape):
    with pytest.raises(ShapeError, match=f"{name}: got input"):
        getattr(flow.nn.functional, name)(flow.ones(*shape))
