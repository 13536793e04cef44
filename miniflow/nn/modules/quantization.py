"""Quantization to a few bits as training sees it: observers of ranges, and values rounded as integers would be.

Numbers are those of OneFlow's kernels with quantization_formula="google", the only one that is supported.
"""

from __future__ import annotations

from miniflow.dispatch.composite import composite
from miniflow.dispatch.tape import no_grad
from miniflow.nn.arguments import check_choice
from miniflow.nn.modules.layer import FunctionModule
from miniflow.ops.comparison import maximum
from miniflow.ops.creation import zeros, zeros_like
from miniflow.ops.indexing import where
from miniflow.ops.reduction import amax, amin
from miniflow.tensor import Tensor


class Quantizing(FunctionModule):
    """Base of the layers of this file.

    Args:
        quantization_formula: "google".
        quantization_bit: from 2 to 8.
        quantization_scheme: "symmetric" for signed integers, "affine" for unsigned ones with a zero point.

    Raises:
        ArgumentError: for other values.
    """

    def __init__(
        self, quantization_formula: str = "google", quantization_bit: int = 8, quantization_scheme: str = "symmetric"
    ):
        super().__init__()
        check_choice(self, ["google"], quantization_formula=quantization_formula)
        check_choice(self, list(range(2, 9)), quantization_bit=quantization_bit)
        check_choice(self, ["symmetric", "affine"], quantization_scheme=quantization_scheme)
        self.quantization_formula, self.quantization_bit = quantization_formula, quantization_bit
        self.quantization_scheme = quantization_scheme
        self.symmetric = self.quantization_scheme == "symmetric"
        self.upper = 2 ** (self.quantization_bit - self.symmetric) - 1
        self.lower = -self.upper - 1 if self.symmetric else 0

    def parameters_of(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The scale and zero point of a range; `high` is the largest magnitude if symmetric."""
        if self.symmetric:
            return high / self.upper, zeros_like(high)
        scale = (high - low) / self.upper
        return scale, -(low / scale).round()


class MinMaxObserver(Quantizing):
    """The scale and zero point with which the integers span the values of a tensor.

        symmetric:  scale = max |x| / (2^(bits - 1) - 1),   zero_point = 0
        affine:     scale = (max x - min x) / (2^bits - 1), zero_point = -round(min x / scale)

    Args:
        quantization_formula, quantization_bit, quantization_scheme: see `Quantizing`.
        per_layer_quantization: one pair for all of the tensor, (1,); if False, one for each index of dim 0.

    Source: `oneflow.nn.MinMaxObserver`.
    """

    def __init__(
        self, quantization_formula: str = "google", quantization_bit: int = 8, quantization_scheme: str = "symmetric",
        per_layer_quantization: bool = True,
    ):  # fmt: skip
        super().__init__(quantization_formula, quantization_bit, quantization_scheme)
        self.per_layer_quantization = per_layer_quantization

    @no_grad()
    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:
        rows = input.reshape(1 if self.per_layer_quantization else input.shape[0], -1)
        low, high = amin(rows, 1), amax(rows, 1)
        return self.parameters_of(low, maximum(high.abs(), low.abs()) if self.symmetric else high)


class MovingAverageMinMaxObserver(Quantizing):
    """As `MinMaxObserver`, of moving averages of the least and the largest value: m <- momentum m + (1 - momentum) x.

    Args:
        training: whether it is made in training mode, in which the averages move.
        quantization_formula, quantization_bit, quantization_scheme: see `Quantizing`.
        stop_update_after_iters: the last step, 0, 1 ... in which they do.
        momentum: the weight of the average.

    Attributes:
        moving_max, moving_min: (1,) buffers, 0 until the first step sets them.

    Source: `oneflow.nn.MovingAverageMinMaxObserver`.
    """

    def __init__(
        self, training: bool = False, quantization_formula: str = "google", stop_update_after_iters: int = 0,
        quantization_bit: int = 8, quantization_scheme: str = "symmetric", momentum: float = 0.0,
    ):  # fmt: skip
        super().__init__(quantization_formula, quantization_bit, quantization_scheme)
        self.training, self.stop_update_after_iters, self.momentum = training, stop_update_after_iters, momentum
        self.register_buffer("moving_max", zeros(1))
        self.register_buffer("moving_min", zeros(1))

    @no_grad()
    def forward(self, input: Tensor, current_train_step: Tensor) -> tuple[Tensor, Tensor]:
        if self.training:
            low, high = amin(input).reshape(1), amax(input).reshape(1)
            if self.symmetric:
                low = high = maximum(high.abs(), low.abs())
            moves = current_train_step.reshape(1) <= self.stop_update_after_iters
            for moving, x in ((self.moving_max, high), (self.moving_min, low)):
                average = where(moving == 0, x, moving * self.momentum + x * (1 - self.momentum))
                moving.copy_(where(moves, average, moving))
        return self.parameters_of(self.moving_min, self.moving_max)


class Quantization(Quantizing):
    """round(x / scale), for "affine" round(x / scale + zero_point) - zero_point, within what the bits can say.

    Args: see `Quantizing`. The inputs are a tensor, its scale and its zero point: (1,), or one for each index of dim 0.

    Source: `oneflow.nn.Quantization`.
    """

    def forward(self, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        return quantize(input, scale, zero_point, self.lower, self.upper)


class FakeQuantization(Quantization):
    """What `Quantization` makes of a tensor, times the scale: floating numbers that integers can express.

    The gradient passes as if it were the identity, a straight-through estimator.

    Source: `oneflow.nn.FakeQuantization`; Jacob et al. 2018, "Quantization and Training of Neural Networks".
    """

    def forward(self, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        return fake_quantize(input, scale, zero_point, self.lower, self.upper)


@composite
def quantize(input: Tensor, scale: Tensor, zero_point: Tensor, lower: int, upper: int) -> Tensor:
    shape = (-1, *[1] * (input.ndim - 1))
    scale, zero_point = scale.reshape(shape), zero_point.reshape(shape).round()
    return (input / scale + zero_point).round().clamp(lower, upper) - zero_point


@composite
def fake_quantize(input: Tensor, scale: Tensor, zero_point: Tensor, lower: int, upper: int) -> Tensor:
    with no_grad():
        rounded = quantize(input, scale, zero_point, lower, upper) * scale.reshape(-1, *[1] * (input.ndim - 1))
        change = rounded - input
    return input + change
