"""Activation functions against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.ops.activation import erf, gelu, relu, sigmoid, silu, softplus

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
F = torch.nn.functional
draw = np.random.default_rng(1)

PAIRS = {
    "relu": (relu, torch.relu),
    "sigmoid": (sigmoid, torch.sigmoid),
    "erf": (erf, torch.erf),
    "gelu": (gelu, F.gelu),
    "gelu_tanh": (lambda x: gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "silu": (silu, F.silu),
    "softplus": (softplus, F.softplus),
    "softplus_steep": (lambda x: softplus(x, 3.0, 2.0), lambda x: F.softplus(x, 3.0, 2.0)),
}


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients(name, kind):
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2}.get(kind)  # torch rounds between the steps of some gradients
    checks.check_against_torch(*PAIRS[name], [4 * draw.normal(size=(7, 9))], dtype=kind, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PAIRS)
def test_special_values(name):
    """NaN, infinities and zeros, and the gradients there."""
    ours, theirs = PAIRS[name]
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 88.0, -88.0, 1e30, -1e30], np.float32)
    tensor, peer = flow.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = ours(tensor), theirs(peer)
    if name in ("gelu", "gelu_tanh", "silu"):  # torch's gelu of inf is NaN in vector code
        finite = np.isfinite(x)
        checks.assert_close(y.detach().numpy()[finite], z.detach().numpy()[finite], rtol=1e-6, atol=1e-30)
    else:
        checks.assert_close(y, z, rtol=1e-6, atol=1e-30)
    if name in ("relu", "sigmoid", "erf", "softplus"):
        y.sum().backward()
        z.sum().backward()
        checks.assert_close(tensor.grad, peer.grad, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("name", ["sigmoid", "erf"])
def test_integers(name):
    ours, theirs = PAIRS[name]
    x = np.array([-2, 0, 3])
    checks.assert_close(ours(flow.tensor(x)), theirs(torch.tensor(x)))
