"""Models of other frameworks as modules, through the ONNX exporters of these frameworks."""

from __future__ import annotations

import importlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from miniflow.errors import OnnxError
from miniflow.onnx.loader.module import OnnxModule, load


def imported(name: str) -> Any:
    """A module that miniflow does not depend on.

    Raises:
        OnnxError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OnnxError(f"{name} is needed for this, and not installed: pip install {name}") from error


def from_pytorch(module: Any, inputs: Any, **options: Any) -> OnnxModule:
    """A module of PyTorch, as it is in eval mode.

    Args:
        module: of PyTorch.
        inputs: its arguments: a tensor, or a tuple of them.
        options: of `torch.onnx.export`, such as `dynamic_shapes`.

    Raises:
        OnnxError: if PyTorch is not installed, or if an operator is not supported.

    Source: `oneflow_onnx.x2oneflow.util.from_pytorch`.
    """
    torch = imported("torch")
    training = module.training
    with TemporaryDirectory() as folder:
        try:
            torch.onnx.export(module.eval(), inputs, Path(folder, "model.onnx"), **options)
        finally:
            module.train(training)
        return load(Path(folder, "model.onnx"))


def from_tensorflow2(model: Any, inputs: Any = None, **options: Any) -> OnnxModule:
    """A model of Keras.

    Args:
        model: of Keras.
        inputs: a list of `tf.TensorSpec`; by default what the model says itself.
        options: of `tf2onnx.convert.from_keras`.

    Raises:
        OnnxError: if tf2onnx is not installed, or if an operator is not supported.
    """
    imported("tf2onnx")
    return load(imported("tf2onnx.convert").from_keras(model, inputs, **options)[0])


def from_paddle(layer: Any, inputs: Any, **options: Any) -> OnnxModule:
    """A layer of PaddlePaddle.

    Args:
        layer: of PaddlePaddle.
        inputs: a list of `paddle.static.InputSpec` or of tensors.
        options: of `paddle.onnx.export`.

    Raises:
        OnnxError: if paddle or paddle2onnx is not installed, or if an operator is not supported.
    """
    imported("paddle2onnx")
    with TemporaryDirectory() as folder:
        imported("paddle").onnx.export(layer, str(Path(folder, "model")), input_spec=inputs, **options)
        return load(Path(folder, "model.onnx"))
