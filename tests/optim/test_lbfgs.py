"""L-BFGS with steps of a given length, against its formulas with whole matrices in float64."""

import numpy as np
import pytest

import miniflow as flow

START = np.array([-1.5, 2.0, 0.7])


def rosenbrock(x):
    """Rosenbrock's function and its gradient."""
    low, high = x[:-1], x[1:]
    gradient = np.zeros_like(x)
    gradient[:-1] += -400 * low * (high - low**2) - 2 * (1 - low)
    gradient[1:] += 200 * (high - low**2)
    return (100 * (high - low**2) ** 2).sum() + ((1 - low) ** 2).sum(), gradient


def bowl(x):
    """A quadratic function with a minimum at 1, and its gradient."""
    scale = np.array([1.0, 3.0, 0.5])
    return 0.5 * (scale * (x - 1) ** 2).sum(), scale * (x - 1)


def inverse_of_hessian(changes, size):
    """H of Nocedal and Wright, "Numerical Optimization", (7.19) and (7.20)."""
    s, y = changes[-1]
    h = np.eye(size) * (s @ y) / (y @ y)
    for s, y in changes:
        v = np.eye(size) - np.outer(y, s) / (y @ s)
        h = v.T @ h @ v + np.outer(s, s) / (y @ s)
    return h


def reference(function, steps, lr=1.0, max_iter=20, max_eval=None, history_size=100, tolerance_grad=1e-7,
              tolerance_change=1e-9):  # fmt: skip
    """The loss before each step and the evaluations in it, and the last x."""
    x, changes, before, told = START.copy(), [], None, []
    for _ in range(steps):
        loss, g = function(x)
        told.append([loss, 1])
        for iteration in range(max_iter):
            if np.abs(g).max() <= tolerance_grad:
                break
            if before is not None:
                change = before[0], g - before[1]
                if change[0] @ change[1] > 1e-10:
                    changes = [*changes, change][-history_size:]
            d = -inverse_of_hessian(changes, len(x)) @ g if changes else -g
            t = lr if before is not None else min(1, 1 / np.abs(g).sum()) * lr
            if g @ d > -tolerance_change:
                break
            x, before, last = x + t * d, (t * d, g), loss
            if iteration + 1 < max_iter:
                loss, g = function(x)
                told[-1][1] += 1
            most = max_iter * 5 // 4 if max_eval is None else max_eval
            if told[-1][1] >= most or np.abs(t * d).max() <= tolerance_change or abs(loss - last) < tolerance_change:
                break
    return told, x


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (bowl, {}),
        (bowl, {"max_iter": 1}),
        (bowl, {"lr": 0.3, "max_iter": 4, "history_size": 2}),
        (bowl, {"lr": 0.5, "max_eval": 3}),
        (bowl, {"lr": 0.5, "tolerance_grad": 0.1}),
        (bowl, {"lr": 0.5, "tolerance_change": 0.05}),
        (rosenbrock, {"lr": 1e-3}),
        (rosenbrock, {"lr": 1e-2, "max_iter": 7, "history_size": 3}),
    ],
)
def test_steps_of_given_length(function, options):
    first, second = (flow.tensor(x, requires_grad=True) for x in (START[:1], START[1:]))  # one vector of both
    optimizer = flow.optim.LBFGS([first, second], **options)
    evaluations = []

    def closure():
        optimizer.zero_grad()
        loss, gradient = function(np.concatenate([first.numpy(), second.numpy()]))
        first.grad, second.grad = flow.tensor(gradient[:1]), flow.tensor(gradient[1:])
        evaluations.append(loss)
        return flow.tensor(loss)

    told = []
    for _ in range(3):
        count = len(evaluations)
        told.append([optimizer.step(closure).item(), len(evaluations) - count])
    expected, x = reference(function, 3, **options)
    assert [count for _, count in told] == [count for _, count in expected]
    np.testing.assert_allclose([loss for loss, _ in told], [loss for loss, _ in expected], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.concatenate([first.numpy(), second.numpy()]), x, rtol=1e-9)
