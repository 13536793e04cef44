"""Probability distributions: samples, log-probabilities and divergences, with PyTorch's names.

`sample` gives no gradients; `rsample` is a differentiable function of the parameters, where there is one. Parameters
are tensors or numbers, which are broadcast to the batch shape.

Source: `torch.distributions`; Kingma and Welling, "Auto-Encoding Variational Bayes", 2014 (the reparameterisation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from miniflow.dispatch.tape import no_grad
from miniflow.dtype import bfloat16, float16, float32, float64
from miniflow.errors import ArgumentError
from miniflow.ops.activation import sigmoid
from miniflow.ops.arithmetic import clamp
from miniflow.ops.creation import as_tensor
from miniflow.ops.exponential import log
from miniflow.ops.indexing import where
from miniflow.ops.losses import binary_cross_entropy_with_logits
from miniflow.ops.promotion import result_type
from miniflow.ops.random import bernoulli, multinomial, rand, randn
from miniflow.ops.shape import broadcast_shapes, broadcast_tensors
from miniflow.ops.softmax import log_softmax, softmax
from miniflow.ops.special_functions import erf, erfinv
from miniflow.tensor import Size, Tensor

HALF_LOG_OF_2_PI = 0.5 * math.log(2 * math.pi)
EPSILON = {float64: 2.0**-52, float32: 2.0**-23, float16: 2.0**-10, bfloat16: 2.0**-7}


class Distribution:
    """The base: what its samples are like.

    Attributes:
        batch_shape: of the parameters.
        event_shape: of one sample.
        mean, variance, stddev: elementwise.
    """

    has_rsample = False
    event_shape = Size(())

    def __init__(self, **parameters: Any):
        dtype = result_type(*[x for x in parameters.values() if isinstance(x, Tensor)], 1.0)
        values = [x.to(dtype) if isinstance(x, Tensor) else as_tensor(x, dtype=dtype) for x in parameters.values()]
        tensors = broadcast_tensors(*values)
        vars(self).update(zip(parameters, tensors, strict=True))
        self.batch_shape = tensors[0].shape

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random values of shape (*sample_shape, *batch_shape), without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """As `sample`, differentiable in the parameters."""
        raise ArgumentError(f"{type(self).__name__}: got rsample; expected sample: it is not differentiable")

    def _shape(self, sample_shape: Sequence[int]) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape)

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={tuple(self.batch_shape)})"


class Normal(Distribution):
    """The normal distribution of mean `loc` and standard deviation `scale`. `torch.distributions.Normal`.

    >>> import miniflow as flow
    >>> round(flow.distributions.Normal(0.0, 1.0).log_prob(flow.tensor(0.0)).item(), 4)
    -0.9189
    """

    has_rsample = True

    def __init__(self, loc: Tensor | float, scale: Tensor | float):
        super().__init__(loc=loc, scale=scale)
        self.mean, self.mode = self.loc, self.loc

    @property
    def variance(self) -> Tensor:
        """scale^2"""
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """loc + scale * noise"""
        noise = randn(self._shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return -0.5 * ((value - self.loc) / self.scale).square() - self.scale.log() - HALF_LOG_OF_2_PI

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a smaller value."""
        return 0.5 * (1 + erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        return self.loc + self.scale * math.sqrt(2) * erfinv(2 * value - 1)

    def entropy(self) -> Tensor:
        """In nats."""
        return 0.5 + HALF_LOG_OF_2_PI + self.scale.log()


class Uniform(Distribution):
    """The uniform distribution on [low, high). `torch.distributions.Uniform`."""

    has_rsample = True

    def __init__(self, low: Tensor | float, high: Tensor | float):
        super().__init__(low=low, high=high)

    @property
    def mean(self) -> Tensor:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        """(high - low)^2 / 12"""
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """low + (high - low) * noise"""
        noise = rand(self._shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + (self.high - self.low) * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density; -inf outside."""
        inside = (value >= self.low) & (value < self.high)
        return log(inside.to(self.low.dtype)) - log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a smaller value."""
        return clamp((value - self.low) / (self.high - self.low), 0, 1)

    def entropy(self) -> Tensor:
        """In nats."""
        return log(self.high - self.low)


def _one_of(name: str, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{name}: got {'neither' if probs is None else 'both'}; expected probs or logits")


def _with_finite_logarithms(probs: Tensor) -> Tensor:
    """Probabilities whose logarithms are finite, as in PyTorch."""
    eps = EPSILON[probs.dtype]
    return clamp(probs, eps, 1 - eps)


class Bernoulli(Distribution):
    """1 with probability `probs`, else 0; `logits` are the logarithms of the odds. `torch.distributions.Bernoulli`."""

    def __init__(self, probs: Tensor | float | None = None, logits: Tensor | float | None = None):
        _one_of("Bernoulli", probs, logits)
        super().__init__(**({"probs": probs} if logits is None else {"logits": logits}))
        if logits is None:
            probs = _with_finite_logarithms(self.probs)
            self.logits = log(probs) - log(1 - probs)
        else:
            self.probs = sigmoid(self.logits)
        self.mean = self.probs

    @property
    def variance(self) -> Tensor:
        """p (1 - p)"""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Zeros and ones."""
        return bernoulli(self.probs.detach().expand(self._shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        """log p where the value is 1, else log(1 - p)."""
        return -binary_cross_entropy_with_logits(*broadcast_tensors(self.logits, value), reduction="none")

    def entropy(self) -> Tensor:
        """In nats."""
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Categorical(Distribution):
    """Classes 0 to n - 1 with probabilities proportional to `probs`, or to exp(logits), of shape (*batch, n).

    Source: `torch.distributions.Categorical`.
    """

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None):
        _one_of("Categorical", probs, logits)
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
            self.logits = log(_with_finite_logarithms(self.probs))
        else:
            self.logits = log_softmax(logits, -1)
            self.probs = softmax(logits, -1)
        self.batch_shape = Size(self.probs.shape[:-1])

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Classes, of int64."""
        shape = self._shape(sample_shape)
        rows = self.probs.detach().expand((*sample_shape, *self.probs.shape)).reshape(-1, self.probs.shape[-1])
        return multinomial(rows, 1).reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of each class in `value`."""
        shape = broadcast_shapes(value.shape, self.batch_shape)
        index = value.long().expand(shape).unsqueeze(-1)
        return self.logits.expand((*shape, self.logits.shape[-1])).gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """In nats; a class of probability 0 counts 0."""
        return -(self.probs * clamp(self.logits, -1e38, None)).sum(-1)


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence from `q` to `p`, two distributions of one kind.

    Raises:
        ArgumentError: for other kinds.

    Source: `torch.distributions.kl_divergence`.
    """
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale).square()
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())
    if isinstance(p, Bernoulli) and isinstance(q, Bernoulli):
        return binary_cross_entropy_with_logits(q.logits, p.probs, reduction="none") - p.entropy()
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        terms = where(q.probs == 0, math.inf, p.probs * (p.logits - q.logits))
        return where(p.probs == 0, 0, terms).sum(-1)
    raise ArgumentError(f"kl_divergence: got {p!r} and {q!r}; expected two Normal, two Bernoulli or two Categorical")
