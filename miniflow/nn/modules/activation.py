"""Activations as layers."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ShapeError
from miniflow.nn import functional as F
from miniflow.nn.modules.layer import FunctionModule, Layer
from miniflow.nn.parameter import Parameter
from miniflow.ops.creation import full
from miniflow.tensor import Tensor


class Activation(FunctionModule):
    """Base of the activations, elementwise: with `inplace` the result is written into the memory of the input."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Sigmoid(Activation):
    """1 / (1 + exp(-x)). `torch.nn.Sigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input, inplace=self.inplace)


class Tanh(Activation):
    """The hyperbolic tangent. `torch.nn.Tanh`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input, inplace=self.inplace)


class ReLU(Activation):
    """max(x, 0); the gradient at 0 is 0.

    >>> import miniflow as flow
    >>> flow.nn.ReLU()(flow.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]

    Source: `torch.nn.ReLU`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class ReLU6(Activation):
    """min(max(x, 0), 6). `torch.nn.ReLU6`; Howard et al. 2017, "MobileNets"."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, inplace=self.inplace)


class LeakyReLU(Activation):
    """x where x > 0, else negative_slope * x. `torch.nn.LeakyReLU`; Maas, Hannun and Ng 2013."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, inplace=self.inplace)


class GELU(Activation):
    """The Gaussian error linear unit x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    Args:
        approximate: "none", or "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
        inplace: write the result into the memory of the input.

    >>> import miniflow as flow
    >>> [round(v, 4) for v in flow.nn.GELU()(flow.tensor([-1.0, 1.0])).tolist()]
    [-0.1587, 0.8413]

    Source: `torch.nn.GELU`; Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
    """

    def __init__(self, approximate: str = "none", inplace: bool = False):
        super().__init__(inplace)
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate, inplace=self.inplace)


class SiLU(Activation):
    """x sigmoid(x); also called swish. `torch.nn.SiLU`; Elfwing, Uchibe and Doya 2017."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(Activation):
    """x tanh(softplus(x)). `torch.nn.Mish`; Misra 2019."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class Softplus(Activation):
    """log(1 + exp(beta x)) / beta, a smooth relu; x itself where beta x is above `threshold`. `torch.nn.Softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0, inplace: bool = False):
        super().__init__(inplace)
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold, inplace=self.inplace)


class ELU(Activation):
    """x where x > 0, else alpha (e^x - 1). `torch.nn.ELU`; Clevert, Unterthiner and Hochreiter 2016."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, inplace=self.inplace)


class CELU(Activation):
    """x where x > 0, else alpha (e^(x / alpha) - 1), whose slope at 0 is 1. `torch.nn.CELU`; Barron 2017."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, inplace=self.inplace)


class SELU(Activation):
    """1.0507 (x where x > 0, else 1.6733 (e^x - 1)), which keeps mean 0 and variance 1.

    Source: `torch.nn.SELU`; Klambauer et al. 2017, "Self-Normalizing Neural Networks".
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, inplace=self.inplace)


class Hardtanh(Activation):
    """x kept within [min_val, max_val]; the gradient at both ends is 0. `torch.nn.Hardtanh`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        super().__init__(inplace)
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, inplace=self.inplace)


class Hardsigmoid(Activation):
    """min(max(x + 3, 0), 6) / 6: sigmoid in straight lines. `torch.nn.Hardsigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, inplace=self.inplace)


class Hardswish(Activation):
    """x min(max(x + 3, 0), 6) / 6: silu in straight lines. `torch.nn.Hardswish`; Howard et al. 2019."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, inplace=self.inplace)


class Hardshrink(Activation):
    """x where |x| > lambd, else 0. `torch.nn.Hardshrink`."""

    def __init__(self, lambd: float = 0.5, inplace: bool = False):
        super().__init__(inplace)
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd, inplace=self.inplace)


class Softshrink(Activation):
    """x moved by `lambd` towards 0, and 0 where |x| <= lambd. `torch.nn.Softshrink`."""

    def __init__(self, lambd: float = 0.5, inplace: bool = False):
        super().__init__(inplace)
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd, inplace=self.inplace)


class Tanhshrink(Activation):
    """x - tanh x. `torch.nn.Tanhshrink`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input, inplace=self.inplace)


class LogSigmoid(Activation):
    """log(sigmoid(x)), without overflow. `torch.nn.LogSigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input, inplace=self.inplace)


class Softsign(Activation):
    """x / (1 + |x|). `torch.nn.Softsign`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input, inplace=self.inplace)


class Threshold(Activation):
    """x where x > threshold, else `value`. `torch.nn.Threshold`."""

    def __init__(self, threshold: float = 0.0, value: float = 0.0, inplace: bool = False):
        super().__init__(inplace)
        self.threshold, self.value = threshold, value

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, inplace=self.inplace)


class Softmax(FunctionModule):
    """exp(x_i) / sum_j exp(x_j) along `dim`.

    Args:
        dim: along which the results sum to 1. It must be given: PyTorch's guess from the number of dims is deprecated.

    >>> import miniflow as flow
    >>> flow.nn.Softmax(dim=-1)(flow.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]

    Source: `torch.nn.Softmax`.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class LogSoftmax(Softmax):
    """log(exp(x_i) / sum_j exp(x_j)) along `dim`, without overflow.

    Args:
        dim: along which the exponentials of the results sum to 1; it must be given.

    Source: `torch.nn.LogSoftmax`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmin(Softmax):
    """softmax(-x) along `dim`. `torch.nn.Softmin`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class Softmax2d(FunctionModule):
    """Softmax over the channels at each place of images [N, C, H, W]. `torch.nn.Softmax2d`."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: got {tuple(input.shape)}; expected [N, C, H, W] or [C, H, W]")
        return F.softmax(input, -3)


class GLU(FunctionModule):
    """The first half along `dim`, times the sigmoid of the second. `torch.nn.GLU`."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)


class RReLU(Activation):
    """`LeakyReLU` with a random slope for each element in training, and their mean in evaluation. `torch.nn.RReLU`."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        super().__init__(inplace)
        self.lower, self.upper = lower, upper

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Layer):
    """x where x > 0, else weight * x, with a learned slope.

    Args:
        num_parameters: 1, or the number of channels: a slope for each of them.
        init: the first value of the slopes.
        device, dtype: of the slopes.

    Attributes:
        weight: (num_parameters,).

    Source: `torch.nn.PReLU`.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
