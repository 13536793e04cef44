"""Activations under flowvision's names."""

from __future__ import annotations

from miniflow import nn

hard_sigmoid = nn.Hardsigmoid
"""min(max(x + 3, 0), 6) / 6. Source: `flowvision.layers.hard_sigmoid`."""

hard_swish = nn.Hardswish
"""x hard_sigmoid(x). Source: Howard et al., "Searching for MobileNetV3", 2019; `flowvision.layers.hard_swish`."""
