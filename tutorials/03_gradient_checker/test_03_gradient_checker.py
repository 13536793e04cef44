"""The checks of lesson 3: a checker has to accept right operators, and to reject wrong ones."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import miniflow as flow
from tutorials import same

spec = importlib.util.spec_from_file_location("judged_operators", Path(__file__).with_name("operators.py"))
operators = importlib.util.module_from_spec(spec)
spec.loader.exec_module(operators)
RIGHT, WRONG = operators.RIGHT, operators.WRONG
SEEDS = 3
MAY_NOT_CALL = {
    "3.1": ["gradcheck", "approx_fprime"],
    "3.2": ["isclose", "allclose", "assert_allclose"],
    "3.4": ["gradcheck", "isclose", "allclose"],
}


@pytest.mark.task("3.1")
@pytest.mark.parametrize("name", RIGHT)
def test_numeric(impl, rng, name):
    f, pull, draw = RIGHT[name]
    inputs = draw(rng)
    before = [x.copy() for x in inputs]
    g = np.asarray(rng.uniform(0.5, 1.5, f(*inputs).shape))
    got = impl.numeric(f, inputs, g)
    same(len(got), len(inputs), f"the number of gradients of {name}")
    for k, (found, wanted) in enumerate(zip(got, pull(g, *inputs))):
        what = f"numeric of {name}, input {k}"
        same(found, np.asarray(wanted), what, "(f(x + h) - f(x - h)) / 2h, one element at a time", rtol=1e-5, atol=1e-6)
    for x, y in zip(inputs, before):
        same(x, y, f"the input of {name} after numeric", "move a copy")


@pytest.mark.task("3.1")
def test_central(impl):
    (got,) = impl.numeric(lambda x: x**2, [np.asarray([3.0])], np.asarray([1.0]), step=0.5)
    same(got, np.asarray([6.0]), "numeric of x squared at 3 with a step of 0.5", "central differences are exact here")


@pytest.mark.task("3.2")
def test_close(impl):
    cases = [
        ([1.0, 1e6], [1.0, 1e6 + 5], True),
        ([1.0, 1e6], [1.0, 1e6 + 50], False),
        ([0.0], [5e-8], True),
        ([0.0], [1e-6], False),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([np.nan], [np.nan], False),
        ([[1.0, 1.0]], [1.0, 1.0], False),
        ([1.0], [1.0, 1.0], False),
        ([-1.0], [-1.000005], True),
    ]
    for got, expected, wanted in cases:
        found = impl.close(np.asarray(got), np.asarray(expected))
        same(bool(found), wanted, f"close({got}, {expected})", "relative to the size of what is expected; shapes count")


@pytest.mark.task("3.3")
def test_cotangent(impl, rng):
    g = impl.random_cotangent(rng, (40, 30))
    if np.shape(g) != (40, 30):
        raise AssertionError(f"random_cotangent(rng, (40, 30)): expected this shape, got {np.shape(g)}")
    size = np.abs(g)
    if size.min() < 0.5 or size.max() > 1.5:
        raise AssertionError(f"random_cotangent: expected sizes from 0.5 to 1.5, got {size.min()} to {size.max()}")
    if np.unique(g).size < 1000 or not 0.3 < (g > 0).mean() < 0.7 or np.ptp(size) < 0.5:
        raise AssertionError("random_cotangent: expected numbers that differ, about half of them negative")


@pytest.mark.task("3.4")
@pytest.mark.parametrize("name", RIGHT)
def test_right_operators_are_accepted(impl, rng, name):
    for _ in range(SEEDS):
        same(bool(impl.check(impl.Operator(*RIGHT[name]), rng)), True, f"check of {name}, which is right")


@pytest.mark.task("3.4")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_operators_are_rejected(impl, rng, name):
    for _ in range(SEEDS):
        same(bool(impl.check(impl.Operator(*WRONG[name]), rng)), False, f"check of an operator with {name}")


@pytest.mark.task("3.5")
def test_operators_of_miniflow(impl, rng):
    both = operators.away_from_zero((2, 3), (2, 3))
    for function in (flow.mul, flow.maximum, lambda a, b: (a @ b.T).tanh(), lambda a, b: flow.softmax(a, -1) * b):
        operator = impl.from_miniflow(function, both)
        inputs = both(rng)
        got = operator.pull(np.ones(operator.f(*inputs).shape), *inputs)
        if len(got) != 2 or not all(isinstance(x, np.ndarray) and x.shape == (2, 3) for x in got):
            raise AssertionError(f"from_miniflow: expected two arrays of shape (2, 3) from pull, got {got}")
        (a, b), g = inputs, np.asarray(rng.uniform(0.5, 1.5, operator.f(*inputs).shape))
        for k, found in enumerate(operator.pull(g, a, b)):
            wanted = np.zeros((2, 3))
            for index in np.ndindex(2, 3):
                ends = []
                for move in (1e-5, -1e-5):
                    moved = [a.copy(), b.copy()]
                    moved[k][index] += move
                    ends.append((operator.f(*moved) * g).sum())
                wanted[index] = (ends[0] - ends[1]) / 2e-5
            what = f"pull of an operator of miniflow, input {k}"
            same(found, wanted, what, "backward takes the cotangent", rtol=1e-4)
