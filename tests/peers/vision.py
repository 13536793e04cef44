"""A model of miniflow.vision beside that of torchvision or timm on torch, with weights drawn from names and shapes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from compare import count_comparison
from models import BATCH, compare_gradients, compare_values, needed, state_of, torch

import miniflow as flow
from benchmarks.models import numbers


def pair(name: str, library: str = "torchvision", theirs: str | None = None, **options: Any) -> tuple[Any, Any]:
    """Our model and theirs, with the same weights, in evaluation mode.

    Args:
        name: our model.
        library: "torchvision" or "timm".
        theirs: the name there, if it is another.
        options: for both.
    """
    peer = needed(library)
    make = peer.create_model if library == "timm" else peer.models.get_model
    with undrawn():
        mine, other = flow.vision.models.create_model(name, **options), make(theirs or name, **options)
    if library == "torchvision":
        compare_settings(mine, other)
    return equal(mine, other)


def compare_settings(mine: Any, other: Any) -> None:
    """What outputs in evaluation mode do not show: the rates of dropout, and the momenta of normalizations."""
    found = [
        sorted(
            (key, round(value, 6))
            for layer in model.modules()
            for key, value in vars(layer).items()
            if key in ("p", "drop_rate", "eps", "momentum") and value
        )
        for model in (mine, other)
    ]
    assert found[0] == found[1]


def equal(mine: Any, other: Any) -> tuple[Any, Any]:
    """Both, with the same weights, in evaluation mode."""
    draw = np.random.default_rng(0)
    for key, value in other.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.tensor(numbers(key, tuple(value.shape), draw)))
    mine.load_state_dict(state_of(other))
    return mine.eval(), other.eval()


def check_outputs(
    name: str, size: int, library: str = "torchvision", theirs: str | None = None, **options: Any
) -> None:
    """The outputs of images of this size."""
    compare_outputs(*pair(name, library, theirs, **options), size)


def compare_outputs(mine: Any, other: Any, size: int) -> None:
    """Of our model and theirs."""
    images = np.random.default_rng(1).standard_normal((BATCH, 3, size, size), np.float32)
    with torch.no_grad(), flow.no_grad():
        found = mine(flow.tensor(images)), other(torch.tensor(images))
    for got, want in zip(*map(outputs, found), strict=True):
        compare_values(got, want)


def check_names(name: str, library: str = "torchvision", theirs: str | None = None, **options: Any) -> None:
    """The names and shapes in the state dict of a model that is too large to be run here."""
    peer = needed(library)
    with torch.device("meta"):
        other = (peer.create_model if library == "timm" else peer.models.get_model)(theirs or name, **options)
    want = {key: tuple(value.shape) for key, value in other.state_dict().items()}
    with undrawn():
        mine = flow.vision.models.create_model(name, **options)
    assert {key: tuple(value.shape) for key, value in mine.state_dict().items()} == want
    if library == "torchvision":
        compare_settings(mine, other)
    count_comparison()


@contextmanager
def undrawn() -> Iterator[None]:
    """Where models are made without first weights, which takes no time and hardly any memory."""
    with ExitStack() as stack:
        for init in (flow.nn.init, torch.nn.init):
            for name in ("uniform_", "normal_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_"):
                stack.enter_context(patch.object(init, name, lambda tensor, *_, **__: tensor))
        yield


def check_training(
    name: str, size: int, library: str = "torchvision", theirs: str | None = None, batch: int = 4, **options: Any
) -> None:
    """The gradients of a step in training mode, in float64, since a small batch's statistics amplify rounding.

    Nothing is dropped out.
    """
    compare_training(*pair(name, library, theirs, **options), size, batch)


def compare_training(mine: Any, other: Any, size: int, batch: int = 4) -> None:
    """Of our model and theirs."""
    mine, other = mine.double(), other.double()
    images = np.random.default_rng(1).standard_normal((batch, 3, size, size))
    found = []
    for module, tensor in ((mine, flow.tensor), (other, torch.tensor)):
        for layer in module.train().modules():
            for rate in {"p", "drop_prob", "drop_rate"} & set(vars(layer)):
                setattr(layer, rate, 0.0)
        found.append(outputs(module(tensor(images))))
    draw = np.random.default_rng(2)
    for got, want in zip(*found, strict=True):  # some models have auxiliary outputs
        compare_values(got, want)
    cotangents = [draw.standard_normal(tuple(x.shape)) for x in found[0]]
    for results, tensor in zip(found, (flow.tensor, torch.tensor), strict=True):
        sum((x * tensor(cotangent)).sum() for x, cotangent in zip(results, cotangents, strict=True)).backward()
    compare_gradients(mine, other)


def check_first_weights(name: str, library: str = "torchvision", **options: Any) -> None:
    """Of each parameter the deviation of the numbers that are drawn for it, and the largest; constants are equal."""
    peer = needed(library)
    other = (peer.create_model if library == "timm" else peer.models.get_model)(name, **options)
    state = {key: value.numpy() for key, value in flow.vision.models.create_model(name, **options).state_dict().items()}
    for key, value in other.state_dict().items():
        got, want = state[key], value.numpy()
        if (want == want.flat[0]).all():
            np.testing.assert_array_equal(got, want, key)
        else:
            assert abs(np.log(got.std() / want.std())) <= 6 / np.sqrt(want.size), key
            largest = np.abs(got).max() / np.abs(want).max()  # for numbers of one deviation it tells the distribution
            assert want.size < 1000 or 0.6 < largest < 1.6, key
    count_comparison()


def outputs(found: Any) -> list[Any]:
    """What a model returned, as a list of tensors."""
    return list(found.values()) if isinstance(found, dict) else list(found) if isinstance(found, tuple) else [found]


def check_graph_and_onnx(name: str, size: int, tmp_path: Any, **options: Any) -> None:
    """Of a model by name."""
    with undrawn():
        compare_graph_and_onnx(flow.vision.models.create_model(name, **options), size, tmp_path)


def compare_graph_and_onnx(model: Any, size: int, tmp_path: Any) -> None:
    """In evaluation mode nn.Graph computes what the model computes, and so does onnxruntime with the exported model."""
    session = importlib.import_module("onnxruntime").InferenceSession
    model.eval()
    draw = np.random.default_rng(0)
    state = {
        key: flow.tensor(numbers(key, tuple(value.shape), draw)) if value.is_floating_point() else value
        for key, value in model.state_dict().items()
    }
    model.load_state_dict(state)

    class Predict(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, images: flow.Tensor) -> flow.Tensor:
            return self.model(images)

    images = flow.tensor(draw.standard_normal((BATCH, 3, size, size), np.float32))
    with flow.no_grad():
        want = outputs(model(images))
        graph = Predict()
        got = [outputs(graph(images)), outputs(graph(images))]
    flow.onnx.export(model, (images,), tmp_path / "model.onnx")
    run = session(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    got.append(run.run(None, {run.get_inputs()[0].name: images.numpy()}))
    for found in got:
        for x, y in zip(found, want, strict=True):
            assert np.abs(np.asarray(x) - y.numpy()).max() <= 1e-4 * np.abs(y.numpy()).max()
    count_comparison()
