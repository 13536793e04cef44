"""Right and wrong operators, on which a gradient checker is judged: (f, pull, draw) by name."""

import numpy as np


def away_from_zero(*shapes):
    """Draws inputs of these shapes, of both signs, away from 0."""

    def draw(rng):
        return [np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)) for shape in shapes]

    return draw


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def changes_its_input(g, x):
    x *= 2
    return [g * x]


ONE, TWO, ROW = away_from_zero((2, 3)), away_from_zero((2, 3), (2, 3)), away_from_zero((2, 3), (3,))
MATRICES = away_from_zero((2, 3), (3, 4))
RIGHT = {
    "x squared": (lambda x: x**2, lambda g, x: [g * 2 * x], ONE),
    "x times y": (lambda x, y: x * y, lambda g, x, y: [g * y, g * x], TWO),
    "relu": (lambda x: np.maximum(x, 0), lambda g, x: [g * (x > 0)], ONE),
    "a matrix product": (lambda a, b: a @ b, lambda g, a, b: [g @ b.T, a.T @ g], MATRICES),
    "a bias": (lambda x, b: x + b, lambda g, x, b: [g, g.sum(0)], ROW),
    "a transpose": (lambda x: x.T.copy(), lambda g, x: [g.T], ONE),
    "softmax": (softmax, lambda g, x: [softmax(x) * (g - (g * softmax(x)).sum(-1, keepdims=True))], ONE),
    "a large scale": (lambda x: 1e4 * np.sin(x), lambda g, x: [1e4 * g * np.cos(x)], ONE),
}
WRONG = {
    "a gradient of zero": (np.exp, lambda g, x: [0 * g], ONE),
    "the wrong sign": (np.cos, lambda g, x: [g * np.sin(x)], ONE),
    "a factor of 1.01": (lambda x: x**2, lambda g, x: [g * 2.02 * x], ONE),
    "elements in another order": (lambda x: 3 * x, lambda g, x: [3 * g[:, ::-1]], ONE),
    "one wrong element of six": (
        lambda x: x**2,
        lambda g, x: [np.where(np.arange(6).reshape(2, 3) == 4, 0, 2 * g * x)],
        ONE,
    ),
    "a wrong second input": (lambda x, y: x * y, lambda g, x, y: [g * y, g * y], TWO),
    "a bias that was not added up": (lambda x, b: x + b, lambda g, x, b: [g, g], ROW),
    "gradients that are NaN": (lambda x: x**2, lambda g, x: [g * np.nan], ONE),
    "an input that it changes": (lambda x: x**2, changes_its_input, ONE),
    "a mean gradient for all": (lambda x: x**2, lambda g, x: [np.full(x.shape, (2 * g * x).mean())], ONE),
}
