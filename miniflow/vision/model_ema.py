"""A moving average of a model's weights, which is often better than the weights themselves."""

from __future__ import annotations

from typing import Any

from miniflow.nn.modules.module import Module
from miniflow.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class ModelEma(AveragedModel):
    """The exponential moving average of parameters and floating buffers: average = decay * average + (1 - decay) * new.

    Args:
        model: whose weights are the first average.
        decay: from 0 to 1.
        device: of the average; that of the model if it is not given.

    Attributes:
        ema: the model with the averages, in eval mode; its parameters want no gradients. `module` is the same.

    Raises:
        ArgumentError: for another decay.

    >>> import miniflow as flow
    >>> model = flow.nn.Linear(1, 1, bias=False)
    >>> average = ModelEma(model.requires_grad_(False), decay=0.75)
    >>> first = model.weight.item()
    >>> _ = model.weight.add_(1)
    >>> average.update(model)
    >>> round(average.ema.weight.item() - first, 4)
    0.25

    Source: timm's `ModelEma`, which averages integers too; here they are copied.
    """

    def __init__(self, model: Module, decay: float = 0.9999, device: Any = None):
        super().__init__(model, device or None, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
        self.n_averaged.fill_(1)  # the weights that there are count as the first average
        self.decay = decay
        self.module.eval().requires_grad_(False)

    @property
    def ema(self) -> Module:
        """The model with the averages."""
        return self.module

    def update(self, model: Module) -> None:
        """Take the weights of a model into the averages, after a step of its optimizer."""
        self.update_parameters(model)
