"""Observers and quantization against their formulas in NumPy."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError

X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32) + np.float32(0.3)


def scale_and_zero_point(low, high, bits, scheme):
    if scheme == "symmetric":
        return np.maximum(abs(low), abs(high)) / (2 ** (bits - 1) - 1), 0 * high
    scale = (high - low) / (2**bits - 1)
    return scale, -np.rint(low / scale)


@pytest.mark.parametrize("scheme", ["symmetric", "affine"])
@pytest.mark.parametrize("bits", [2, 8])
@pytest.mark.parametrize("per_layer", [True, False])
def test_quantization(scheme, bits, per_layer):
    observer = nn.MinMaxObserver("google", bits, scheme, per_layer)
    x = flow.tensor(X, requires_grad=True)
    scale, zero_point = observer(x)
    rows = X.reshape(1 if per_layer else 3, -1)
    want, zero = scale_and_zero_point(rows.min(1), rows.max(1), bits, scheme)
    assert_close(scale, want, rtol=1e-6)
    assert_close(zero_point, zero)
    assert not scale.requires_grad
    want, zero = want.reshape(-1, 1, 1), zero.reshape(-1, 1, 1)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if scheme == "symmetric" else (0, 2**bits - 1)
    integers = np.clip(np.rint(1.5 * X / want + zero), low, high) - zero
    assert_close(nn.Quantization("google", bits, scheme)(1.5 * x, scale, zero_point).detach(), integers)
    y = nn.FakeQuantization("google", bits, scheme)(1.5 * x, scale, zero_point)
    assert_close(y.detach(), integers * want, rtol=1e-6, atol=1e-6)
    g = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
    (y * flow.tensor(g)).sum().backward()
    assert_close(x.grad, 1.5 * g, rtol=1e-6)


@pytest.mark.parametrize("scheme", ["symmetric", "affine"])
def test_moving_averages(scheme):
    observer = nn.MovingAverageMinMaxObserver(
        training=True, stop_update_after_iters=2, quantization_scheme=scheme, momentum=0.75
    )
    low = high = None
    for step in range(5):
        x = np.random.default_rng(step).normal(size=(4, 6)).astype(np.float32)
        if step == 4:
            observer.eval()
        found = observer(flow.tensor(x), flow.tensor([step]))
        if step <= 2:
            a, b = x.min(), x.max()
            a, b = (max(-a, b), max(-a, b)) if scheme == "symmetric" else (a, b)
            low, high = (a, b) if step == 0 else (0.75 * low + 0.25 * a, 0.75 * high + 0.25 * b)
        for got, want in zip(found, scale_and_zero_point(low, high, 8, scheme), strict=True):
            assert_close(got, np.float32([want]), rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("cambricon",), "quantization_formula='cambricon'; expected 'google'"),
        (("google", 9), "quantization_bit=9; expected 2, 3, 4, 5, 6, 7 or 8"),
        (("google", 8, "signed"), "quantization_scheme='signed'; expected 'symmetric' or 'affine'"),
    ],
)
@pytest.mark.parametrize("layer", [nn.MinMaxObserver, nn.Quantization, nn.FakeQuantization])
def test_what_is_not_there_is_refused(layer, options, words):
    with pytest.raises(ArgumentError, match=f"{layer.__name__}: got {words}"):
        layer(*options)
