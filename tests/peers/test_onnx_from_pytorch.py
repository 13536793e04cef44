"""Modules of PyTorch, through its exporter."""

from __future__ import annotations

import numpy as np
import pytest

import miniflow as flow

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.peers


def test_a_network_of_pytorch() -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(4 * 3 * 4, 5),
    )  # fmt: skip
    x = torch.randn(2, 3, 6, 8)
    network(x)
    loaded = flow.onnx.from_pytorch(network, (x,))
    assert network.training
    expected = network.eval()(x).detach().numpy()
    np.testing.assert_allclose(loaded(flow.from_numpy(x.numpy())).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
