"""Distributions beside torch's: log-probabilities, entropies, divergences and their gradients; moments of samples."""

from __future__ import annotations

import numpy as np
import pytest
from checks import check_against_torch

import miniflow as flow
from miniflow.errors import ArgumentError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

DRAW = np.random.default_rng(3)
LOC, SCALE = DRAW.standard_normal((3, 1)), DRAW.uniform(0.5, 2, 4)
CHANCES, LOGITS = DRAW.uniform(0.1, 0.9, (3, 4)), DRAW.standard_normal((3, 4))
VALUES = DRAW.standard_normal((2, 3, 4))
CASES = [  # name, parameters, values
    ("Normal", {"loc": LOC, "scale": SCALE}, VALUES),
    ("Uniform", {"low": LOC, "high": LOC + SCALE}, LOC + SCALE * 0.5),
    ("Bernoulli", {"probs": CHANCES}, np.round(CHANCES)),
    ("Bernoulli", {"logits": LOGITS}, 1.0 * (VALUES > 0)),
    ("Categorical", {"probs": CHANCES}, DRAW.integers(0, 4, (5, 3))),
    ("Categorical", {"logits": LOGITS}, DRAW.integers(0, 4, 3)),
]


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_formulas(name, parameters, values):
    def compute(library, measure):
        def function(*tensors):
            made = getattr(library.distributions, name)(**dict(zip(parameters, tensors, strict=True)))
            given = library.as_tensor(values).to(tensors[0].dtype)
            return getattr(made, measure)(*([given] if measure in ("log_prob", "cdf") else []))

        return function

    measures = ["log_prob", "entropy"] + (["cdf"] if name in ("Normal", "Uniform") else [])
    for measure in measures:
        check_against_torch(compute(flow, measure), compute(torch, measure), list(parameters.values()))


BOUNDARY = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])


@pytest.mark.parametrize("name", ["Bernoulli", "Categorical"])
def test_probabilities_of_0_and_1(name):
    def compute(library):
        def function(p):
            made, value = getattr(library.distributions, name)(probs=p), library.tensor(1)
            log_prob = made.log_prob(value if name == "Categorical" else value.to(p.dtype))  # of all rows
            return log_prob.sum() + made.entropy().sum()

        return function

    check_against_torch(compute(flow), compute(torch), [BOUNDARY])


def test_kl_divergence_from_what_is_impossible():
    for first, second in [(BOUNDARY[0], BOUNDARY[1]), (BOUNDARY[1], BOUNDARY[0])]:
        ours, theirs = (
            library.distributions.kl_divergence(
                *[library.distributions.Categorical(library.tensor(p)) for p in (first, second)]
            )
            for library in (flow, torch)
        )
        assert ours.item() == pytest.approx(theirs.item())


def test_a_number_beside_float64():
    assert flow.distributions.Normal(flow.zeros(2, dtype=flow.float64), 0.1).scale.tolist() == [0.1, 0.1]


@pytest.mark.parametrize("name", ["Normal", "Bernoulli", "Categorical"])
def test_kl_divergence(name):
    def compute(library):
        def function(a, b):
            kind = getattr(library.distributions, name)
            first, second = (kind(x, x.exp()) if name == "Normal" else kind(logits=x) for x in (a, b))
            return library.distributions.kl_divergence(first, second)

        return function

    check_against_torch(compute(flow), compute(torch), [LOGITS, VALUES[0]])


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_samples_have_the_moments(name, parameters, values):
    flow.manual_seed(0)
    made = getattr(flow.distributions, name)(**{k: flow.tensor(x) for k, x in parameters.items()})
    samples = made.sample((20000,))
    assert samples.shape == (20000, *made.batch_shape) and not samples.requires_grad
    if name == "Categorical":
        shares = np.stack([(samples.numpy() == c).mean(0) for c in range(4)], -1)
        np.testing.assert_allclose(shares, made.probs.numpy(), atol=0.02)
    else:
        np.testing.assert_allclose(samples.mean(0).numpy(), made.mean.numpy(), atol=0.05)
        np.testing.assert_allclose(samples.std(0).numpy(), made.stddev.numpy(), atol=0.05)


def test_rsample_has_gradients():
    loc, scale = flow.zeros(3, requires_grad=True), flow.ones(3, requires_grad=True)
    x = flow.distributions.Normal(loc, scale).rsample()
    x.sum().backward()
    assert loc.grad.tolist() == [1.0, 1.0, 1.0]
    assert scale.grad.tolist() == x.tolist()  # loc + scale * noise, with 0 and 1


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="Bernoulli: got neither; expected probs or logits"):
        flow.distributions.Bernoulli()
    with pytest.raises(ArgumentError, match="Bernoulli: got rsample"):
        flow.distributions.Bernoulli(0.5).rsample()
    with pytest.raises(ArgumentError, match="kl_divergence: got Normal"):
        flow.distributions.kl_divergence(flow.distributions.Normal(0.0, 1.0), flow.distributions.Bernoulli(0.5))
