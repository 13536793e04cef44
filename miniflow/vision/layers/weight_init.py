"""How models draw their first weights."""

from __future__ import annotations

import math

from miniflow import nn
from miniflow.errors import ArgumentError
from miniflow.nn.init import trunc_normal_
from miniflow.tensor import Tensor

__all__ = ["init_convolutions", "init_linears", "init_truncated", "lecun_normal_", "trunc_normal_", "variance_scaling_"]


def init_convolutions(model: nn.Module) -> None:
    """Draw the weights of all convolutions from N(0, 2 / (out_channels kernel_height kernel_width)); biases are zero.

    Activations keep their variance through ReLU on the way back, whatever the depth.

    Source: He et al., "Delving deep into rectifiers", 2015, with the outputs counted (`mode="fan_out"`).
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def init_linears(model: nn.Module, std: float = 0.01) -> None:
    """Draw the weights of all linear layers from N(0, std^2); biases are zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            nn.init.zeros_(module.bias)


def init_truncated(model: nn.Module, *kinds: type[nn.Module], std: float = 0.02) -> None:
    """Draw the weights of layers of these kinds from N(0, std^2), without what is beyond 2; biases are zero.

    Source: Devlin et al., "BERT", 2019 (its code); what transformers for images begin with.
    """
    for module in model.modules():
        if isinstance(module, kinds):
            nn.init.trunc_normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def variance_scaling_(tensor: Tensor, scale: float = 1.0, mode: str = "fan_in", distribution: str = "normal") -> Tensor:
    """Overwrite `tensor` with random numbers of the variance scale / fan, and return it.

    Args:
        tensor: a weight of shape (outputs, inputs, ...).
        scale: the variance of the result if inputs have the variance 1.
        mode: "fan_in", "fan_out" or "fan_avg", the mean of both.
        distribution: "normal", "truncated_normal" (cut off at two standard deviations) or "uniform".

    Raises:
        ArgumentError: for another mode or distribution.

    Source: `timm.layers.variance_scaling_`, Keras' `VarianceScaling`.
    """
    inputs, outputs = nn.init._calculate_fan_in_and_fan_out(tensor)
    fans = {"fan_in": inputs, "fan_out": outputs, "fan_avg": (inputs + outputs) / 2}
    distributions = ("normal", "truncated_normal", "uniform")
    if mode not in fans or distribution not in distributions:
        raise ArgumentError(
            f"variance_scaling_: got mode={mode!r}, distribution={distribution!r}; expected one of {[*fans]}, and one "
            f"of {[*distributions]}"
        )
    std = math.sqrt(scale / max(fans[mode], 1))  # a tensor may be empty
    if distribution == "uniform":
        return nn.init.uniform_(tensor, -math.sqrt(3) * std, math.sqrt(3) * std)
    if distribution == "normal":
        return nn.init.normal_(tensor, std=std)
    std /= 0.87962566103423978  # the standard deviation of N(0, 1) between -2 and 2
    return trunc_normal_(tensor, std=std, a=-2 * std, b=2 * std)


def lecun_normal_(tensor: Tensor) -> Tensor:
    """Truncated normal numbers of the variance 1 / fan_in. LeCun et al., "Efficient BackProp", 1998."""
    return variance_scaling_(tensor, distribution="truncated_normal")
