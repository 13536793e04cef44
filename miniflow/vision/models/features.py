"""Feature maps inside a classifier, which detectors and segmentation build on."""

from __future__ import annotations

from collections.abc import Mapping

from miniflow import nn
from miniflow.errors import ArgumentError
from miniflow.tensor import Tensor

# of mobilenet_v3_large.features: the blocks after which images are 2, 4, 8, 16 and 32 times smaller begin here; the
# last entry is the last block. Where the kernels of the last stage are dilated, its images are 16 times smaller.
MOBILENET_V3_STAGES = (0, 2, 4, 7, 13, 16)


class IntermediateLayerGetter(nn.ModuleDict):
    """What some children of a network compute, where each child takes what the one before it returned.

    Args:
        model: the network; its children up to the last one wanted become children here, under their names.
        return_layers: names of children, and the names under which to return what they compute.

    >>> import miniflow as flow
    >>> layers = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 5, 1), nn.ReLU())
    >>> maps = IntermediateLayerGetter(layers, {"0": "low", "1": "high"})(flow.zeros(1, 3, 4, 4))
    >>> {name: x.shape for name, x in maps.items()}
    {'low': miniflow.Size([1, 8, 4, 4]), 'high': miniflow.Size([1, 5, 4, 4])}

    Source: `torchvision.models._utils.IntermediateLayerGetter`.
    """

    def __init__(self, model: nn.Module, return_layers: Mapping[str, str]):
        children = dict(model.named_children())
        absent = set(return_layers) - set(children)
        if absent:
            raise ArgumentError(
                f"{type(model).__name__} has no {', '.join(sorted(absent))}; expected some of {[*children]}"
            )
        last = max(map(list(children).index, return_layers))
        super().__init__(dict(list(children.items())[: last + 1]))
        self.return_layers = dict(return_layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = {}
        for name, layer in self.items():
            x = layer(x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found
