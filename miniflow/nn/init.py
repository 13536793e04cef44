"""Initialization of parameters.

Each function overwrites a tensor in place, outside the tape, and returns it. Numbers come from the default generator
unless one is given. For weights of shape (outputs, inputs, ...), as those of Linear and convolutions, fan_in counts the
inputs that one output sees and fan_out the outputs that one input reaches: both times the size of the receptive field.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.dispatch.tape import no_grad
from miniflow.dtype import float64
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops import creation, random
from miniflow.ops.creation import empty, eye, zeros
from miniflow.ops.generator import Generator
from miniflow.ops.method import METHODS
from miniflow.ops.special_functions import erfinv
from miniflow.tensor import Tensor

GAINS = {f"conv{variant}{n}d": 1.0 for variant in ("", "_transpose") for n in (1, 2, 3)}
GAINS |= {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0), "selu": 3.0 / 4.0}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor for the standard deviation of weights that are followed by this nonlinearity.

    Args:
        nonlinearity: "linear", "conv1d" and so on, "sigmoid" (all 1), "tanh" (5/3), "relu" (sqrt 2), "selu" (3/4) or
            "leaky_relu" (sqrt(2 / (1 + param^2))).
        param: the negative slope of "leaky_relu", 0.01 unless given.

    Raises:
        ArgumentError: for another name, or a slope that is not a number.

    >>> calculate_gain("leaky_relu", 1.0)
    1.0

    Source: `torch.nn.init.calculate_gain`.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise ArgumentError(f"calculate_gain: got param={param!r}; expected the negative slope, a number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in GAINS:
        names = ", ".join([*GAINS, "leaky_relu"])
        raise ArgumentError(f"calculate_gain: got nonlinearity={nonlinearity!r}; expected one of {names}")
    return GAINS[nonlinearity]


@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers uniform in [a, b).

    Raises:
        ArgumentError: unless a <= b.

    >>> import miniflow as flow
    >>> x = uniform_(flow.empty(100), 2.0, 3.0)
    >>> bool((x >= 2).all() and (x < 3).all())
    True

    Source: `torch.nn.init.uniform_`.
    """
    return random.uniform_(tensor, a, b, generator=generator)


@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers.

    Raises:
        ArgumentError: for a negative `std`.

    >>> import miniflow as flow
    >>> normal_(flow.empty(2), mean=1.0, std=0.0)
    tensor([1., 1.], dtype=miniflow.float32)

    Source: `torch.nn.init.normal_`.
    """
    return random.normal_(tensor, mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers, given that they are in [a, b].

    By inversion: mean + std sqrt(2) erfinv(u) with u uniform between erf((a - mean) / (std sqrt 2)) and the same of b.

    Args:
        tensor: floating; the numbers are accurate to 1e-5 of `std`, within 5 `std` of the mean.
        mean, std: of the distribution before the cut.
        a, b: the bounds, in the units of the values (not of `std`).
        generator: where the randomness comes from; None for the default generator.

    Raises:
        ArgumentError: unless std > 0 and a < b, or if the interval is where the distribution has no mass.

    >>> import miniflow as flow
    >>> bool((trunc_normal_(flow.empty(1000), std=5.0).abs() <= 2).all())
    True

    Source: `torch.nn.init.trunc_normal_`.
    """
    if not (std > 0 and a < b):
        raise ArgumentError(f"trunc_normal_: got std={std}, a={a}, b={b}; expected std > 0 and a < b")
    low, high = (math.erf((bound - mean) / (std * math.sqrt(2.0))) for bound in (a, b))
    if not low < high:
        raise ArgumentError(
            f"trunc_normal_: got mean={mean}, std={std}, a={a}, b={b}; expected bounds within a few std of the mean"
        )
    u = empty(tensor.shape, dtype=float64, device=tensor._device_and_sbp)
    random.uniform_(u, low, high, generator=generator)
    return tensor.copy_((erfinv(u) * (std * math.sqrt(2.0)) + mean).clamp(a, b))


@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`.

    >>> import miniflow as flow
    >>> constant_(flow.empty(2), 0.5)
    tensor([0.5000, 0.5000], dtype=miniflow.float32)

    Source: `torch.nn.init.constant_`.
    """
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    >>> import miniflow as flow
    >>> ones_(flow.empty(2))
    tensor([1., 1.], dtype=miniflow.float32)

    Source: `torch.nn.init.ones_`.
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    >>> import miniflow as flow
    >>> zeros_(flow.empty(2))
    tensor([0., 0.], dtype=miniflow.float32)

    Source: `torch.nn.init.zeros_`.
    """
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix: a Linear layer that passes its inputs through.

    Raises:
        ShapeError: unless there are 2 dims.

    >>> import miniflow as flow
    >>> eye_(flow.empty(1, 2))
    tensor([[1., 0.]], dtype=miniflow.float32)

    Source: `torch.nn.init.eye_`.
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: got a tensor of shape {tuple(tensor.shape)}; expected a matrix, 2 dims")
    return tensor.copy_(eye(*tensor.shape, dtype=tensor.dtype, device=tensor._device_and_sbp))


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The weight of a convolution that passes input channels through: a one in the middle of kernel (i, i).

    Args:
        tensor: shape (out_channels, in_channels, ...) with one to three spatial dims.
        groups: each of so many groups of output channels gets its own identity.

    Raises:
        ShapeError: for other numbers of dims, or output channels that do not divide into `groups`.

    >>> import miniflow as flow
    >>> dirac_(flow.empty(1, 1, 3))
    tensor([[[0., 1., 0.]]], dtype=miniflow.float32)

    Source: `torch.nn.init.dirac_`.
    """
    shape = tuple(tensor.shape)
    if len(shape) not in (3, 4, 5):
        raise ShapeError(f"dirac_: got a tensor of shape {shape}; expected a convolution weight of 3, 4 or 5 dims")
    if groups < 1 or shape[0] % groups:
        raise ShapeError(f"dirac_: got {shape[0]} output channels and groups={groups}; expected a multiple of groups")
    weight = zeros(shape, dtype=tensor.dtype, device="cpu")
    middle = tuple(n // 2 for n in shape[2:])
    group_size = shape[0] // groups
    for start in range(0, shape[0], group_size):
        for channel in range(min(group_size, shape[1])):
            weight[(start + channel, channel, *middle)] = 1
    return tensor.copy_(creation.tensor(weight.numpy(), device=tensor._device_and_sbp))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output sees, and how many outputs an input reaches, of a weight (fan_out, fan_in, ...).

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> _calculate_fan_in_and_fan_out(flow.empty(8, 3, 5, 5))
    (75, 200)
    """
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise ShapeError(f"fan_in and fan_out: got a tensor of shape {shape}; expected a weight of at least 2 dims")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers uniform in [-a, a) with a = gain sqrt(6 / (fan_in + fan_out)).

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> bool((xavier_uniform_(flow.empty(3, 3)).abs() <= 1).all())
    True

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
    """
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers with mean 0 and std = gain sqrt(2 / (fan_in + fan_out)).

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> xavier_normal_(flow.empty(2, 2), gain=0.0).abs()
    tensor([[0., 0.],
            [0., 0.]], dtype=miniflow.float32)

    Source: Glorot and Bengio, 2010.
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """gain / sqrt(fan), the deviation that keeps the variance through a layer."""
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"kaiming: got mode={mode!r}; expected 'fan_in' or 'fan_out'")
    fan = _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Numbers uniform in [-bound, bound) with bound = gain sqrt(3 / fan).

    Args:
        tensor: a weight of at least 2 dims.
        a: the negative slope of the leaky ReLU that follows.
        mode: "fan_in" keeps the variance of the forward pass, "fan_out" that of the backward pass.
        nonlinearity: what follows, as for `calculate_gain`.
        generator: where the randomness comes from; None for the default generator.

    Raises:
        ShapeError: for fewer than 2 dims.
        ArgumentError: for an unknown mode or nonlinearity.

    >>> import miniflow as flow
    >>> bool((kaiming_uniform_(flow.empty(2, 6), nonlinearity="relu").abs() <= 1).all())
    True

    Source: He et al., "Delving deep into rectifiers", 2015.
    """
    bound = math.sqrt(3.0) * kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers with mean 0 and std = gain / sqrt(fan); arguments as for `kaiming_uniform_`.

    Raises:
        ShapeError: for fewer than 2 dims.
        ArgumentError: for an unknown mode or nonlinearity.

    >>> import miniflow as flow
    >>> kaiming_normal_(flow.empty(8, 3, 5, 5), mode="fan_out").shape
    miniflow.Size([8, 3, 5, 5])

    Source: He et al., 2015.
    """
    return normal_(tensor, 0.0, kaiming_std(tensor, a, mode, nonlinearity), generator)


@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """A (semi-)orthogonal matrix, uniformly distributed, times `gain`; further dims are flattened into the columns.

    It is Q of the QR decomposition of a normal matrix, with signs that make the diagonal of R positive.

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> q = orthogonal_(flow.empty(2, 2))
    >>> bool(((q @ q.T - flow.eye(2)).abs() < 1e-6).all())
    True

    Source: Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks", 2013.
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: got a tensor of shape {tuple(tensor.shape)}; expected at least 2 dims")
    if tensor.numel() == 0:
        return tensor
    rows, columns = len(tensor), tensor.numel() // len(tensor)
    flat = empty(max(rows, columns), min(rows, columns), dtype=float64, device="cpu")
    q, r = np.linalg.qr(random.normal_(flat, generator=generator).numpy())
    q = q * np.sign(np.diag(r)) * gain
    q = (q if rows >= columns else q.T).reshape(tensor.shape)
    return tensor.copy_(creation.tensor(q, device=tensor._device_and_sbp))


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal numbers with mean 0, and in each column ceil(sparsity * rows) zeros at random places.

    Args:
        tensor: shape (rows, columns).
        sparsity: the fraction of zeros, from 0 to 1.
        std: of the other elements.
        generator: where the randomness comes from; None for the default generator.

    Raises:
        ShapeError: unless there are 2 dims.
        ArgumentError: for a fraction outside [0, 1].

    >>> import miniflow as flow
    >>> (sparse_(flow.empty(10, 2), 0.3) == 0).sum(0)
    tensor([3, 3], dtype=miniflow.int64)

    Source: Martens, "Deep learning via Hessian-free optimization", 2010.
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: got a tensor of shape {tuple(tensor.shape)}; expected a matrix, 2 dims")
    if not 0 <= sparsity <= 1:
        raise ArgumentError(f"sparse_: got sparsity={sparsity}; expected a fraction from 0 to 1")
    zeros_per_column = math.ceil(sparsity * tensor.shape[0])
    keys = random.rand(tensor.shape, dtype=float64, device="cpu", generator=generator).numpy()
    ranks = np.argsort(keys, axis=0)  # in each column a random permutation
    mask = creation.tensor(ranks < zeros_per_column, device=tensor._device_and_sbp)
    return normal_(tensor, 0.0, std, generator).masked_fill_(mask, 0)


_METHODS = (trunc_normal_, xavier_normal_, xavier_uniform_, kaiming_normal_, kaiming_uniform_)  # as OneFlow has them
METHODS.update({function.__name__: function for function in _METHODS})
