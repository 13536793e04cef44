"""A gradient checker. Fill in what raises Todo, then run: python -m tutorials check 3"""

from typing import NamedTuple

import numpy as np

import miniflow as flow
from tutorials import Todo  # noqa: F401


class Operator(NamedTuple):
    """An operator on NumPy arrays of float64.

    Attributes:
        f: takes its inputs, and returns the result.
        pull: takes the gradient of the result, called the cotangent, and the inputs; returns one gradient for each.
        draw: takes a random generator, and returns a list of inputs where the operator is smooth.
    """

    f: object
    pull: object
    draw: object


def numeric(f, inputs, cotangent, step=1e-5):
    """The gradients of sum(f(*inputs) * cotangent), by central differences; one array for each input."""
    # task 3.1: central differences
    gradients = []
    for k, x in enumerate(inputs):
        gradient = np.zeros(x.shape)
        for index in np.ndindex(x.shape):
            ends = []
            for move in (step, -step):
                moved = [v.copy() for v in inputs]
                moved[k][index] += move
                ends.append((f(*moved) * cotangent).sum())
            gradient[index] = (ends[0] - ends[1]) / (2 * step)
        gradients.append(gradient)
    return gradients
    # end


def close(got, expected, rtol=1e-5, atol=1e-7):
    """Whether each element differs by at most atol + rtol * |expected|, and the shapes are the same; NaN never is."""
    # task 3.2: when are two gradients equal?
    got = np.asarray(got)
    return got.shape == expected.shape and bool((np.abs(got - expected) <= atol + rtol * np.abs(expected)).all())
    # end


def random_cotangent(rng, shape):
    """Numbers of random sign, with magnitudes between 0.5 and 1.5, no two of them equal."""
    # task 3.3: a cotangent that hides nothing
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))
    # end


def check(operator, rng):
    """Whether the gradients that an operator's `pull` returns are right; at random inputs, for a random cotangent."""
    # task 3.4: the checker
    inputs = operator.draw(rng)
    cotangent = random_cotangent(rng, np.shape(operator.f(*inputs)))
    given = [x.copy() for x in inputs]
    found = operator.pull(cotangent.copy(), *given)
    if len(found) != len(inputs) or not all(np.array_equal(a, b) for a, b in zip(given, inputs)):
        return False
    return all(close(a, b) for a, b in zip(found, numeric(operator.f, inputs, cotangent)))
    # end


def from_miniflow(function, draw):
    """An operator of miniflow as an `Operator`, so that it can be checked."""

    def f(*inputs):
        return function(*[flow.tensor(x) for x in inputs]).numpy()

    def pull(cotangent, *inputs):
        # task 3.5: the gradients of a library
        tensors = [flow.tensor(x, requires_grad=True) for x in inputs]
        function(*tensors).backward(flow.tensor(cotangent))
        return [tensor.grad.numpy() for tensor in tensors]
        # end

    return Operator(f, pull, draw)
