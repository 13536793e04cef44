"""nn.init against torch: exact patterns exactly, random ones by their quantiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.nn import init

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

SHAPES = [(100, 300), (300, 100), (50, 20, 5, 6)]


@pytest.mark.parametrize("name", ["linear", "conv1d", "tanh", "relu", "selu", "sigmoid", "leaky_relu"])
@pytest.mark.parametrize("param", [None, 0.3])
def test_calculate_gain(name, param):
    assert math.isclose(init.calculate_gain(name, param), torch.nn.init.calculate_gain(name, param))


FILLS = {
    "uniform_": {"a": -1.0, "b": 3.0},
    "normal_": {"mean": 1.0, "std": 2.0},
    "trunc_normal_": {"mean": 0.5, "std": 1.5, "a": -1.0, "b": 2.0},
    "xavier_uniform_": {"gain": 1.5},
    "xavier_normal_": {"gain": 1.5},
    "kaiming_uniform_": {"a": 0.2, "mode": "fan_out"},
    "kaiming_normal_": {"a": 0.2, "mode": "fan_in", "nonlinearity": "leaky_relu"},
    "orthogonal_": {"gain": 1.5},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FILLS)
def test_quantiles(name, shape):
    ours = getattr(init, name)(flow.empty(*shape), **FILLS[name], generator=flow.Generator().manual_seed(0)).numpy()
    theirs = getattr(torch.nn.init, name)(
        torch.empty(*shape), **FILLS[name], generator=torch.Generator().manual_seed(0)
    )
    shares = np.linspace(0.02, 0.98, 25)
    spread = theirs.std().item()
    got, expected = (np.quantile(x.astype(np.float64), shares) for x in (ours, theirs.numpy()))
    assert_close(got / spread, expected / spread, rtol=0, atol=0.08)


def test_patterns():
    for shape in ((3, 5), (5, 3)):
        assert_same(init.eye_(flow.empty(*shape)), torch.nn.init.eye_(torch.empty(*shape)))
    for shape, groups in (((4, 3, 5), 1), ((6, 4, 3, 4), 2), ((6, 2, 3, 3), 3), ((2, 3, 2, 2, 3), 1)):
        assert_same(init.dirac_(flow.empty(*shape), groups), torch.nn.init.dirac_(torch.empty(*shape), groups))
    assert_same(init.constant_(flow.empty(3), 0.1), torch.nn.init.constant_(torch.empty(3), 0.1))


def test_sparse_has_as_many_zeros():
    ours = init.sparse_(flow.empty(37, 11), 0.3).numpy() == 0
    theirs = torch.nn.init.sparse_(torch.empty(37, 11), 0.3).numpy() == 0
    assert_same(ours.sum(0), theirs.sum(0))
