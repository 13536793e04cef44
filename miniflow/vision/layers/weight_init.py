"""How models draw their first weights."""

from __future__ import annotations

from miniflow import nn


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
