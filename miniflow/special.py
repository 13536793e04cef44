"""Special functions under PyTorch's names: `flow.special.expit(x)`.

Left out are those whose formulas are not there: the incomplete gamma functions, Bessel's, and the scaled `erfcx`.
"""

import math

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.ops.activation import logit, sigmoid
from miniflow.ops.arithmetic import round
from miniflow.ops.exponential import exp2, expm1, log1p, xlogy
from miniflow.ops.indexing import where
from miniflow.ops.reduction import logsumexp
from miniflow.ops.softmax import log_softmax, softmax
from miniflow.ops.special_functions import digamma, erf, erfc, erfinv, lgamma, mvlgamma, polygamma, sinc, zeta
from miniflow.tensor import Tensor

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p", "logit", "round", "sinc",
    "xlogy", "zeta", "log_softmax", "logsumexp", "multigammaln", "ndtr", "ndtri", "polygamma", "psi",
    "softmax", "xlog1py",
]  # fmt: skip
expit, gammaln, psi, multigammaln = sigmoid, lgamma, digamma, mvlgamma


def entr(input: Tensor) -> Tensor:
    """-x log x, 0 at 0, and -inf below. `torch.special.entr`."""
    zero = input == 0
    large = input == math.inf  # where the slope is -inf, too
    some = where(zero | large, 1.0, input)
    slope = where(zero, input + 0.0, 0.0).sqrt()  # 0, and its slope at 0 is infinite, as that of -x log x
    finite = where(zero, slope, where(input < 0, -math.inf, -xlogy(some, some)))
    return where(large, where(large, input, 1.0) * -math.inf, finite)


@takes_tensors
def xlog1py(input: Tensor, other: Tensor) -> Tensor:
    """x log(1 + y), 0 where x is 0 and y is a number. `torch.special.xlog1py`."""
    logarithm = log1p(other)
    undefined = (input == 0) & ~logarithm.isfinite() & ~other.isnan()
    return where(undefined, 0.0, input * where(undefined, 0.0, logarithm))


def ndtr(input: Tensor) -> Tensor:
    """The distribution function of the standard normal: erfc(-x / sqrt(2)) / 2. `torch.special.ndtr`."""
    return erfc(input * -math.sqrt(0.5)) / 2


def ndtri(input: Tensor) -> Tensor:
    """The inverse of `ndtr`. `torch.special.ndtri`."""
    return erfinv(2 * input - 1) * math.sqrt(2)
