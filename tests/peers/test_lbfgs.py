"""L-BFGS goes the way of torch's."""

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")


def minimized(library, options):
    """The losses of four steps on Rosenbrock's function, and where they end."""
    x = library.tensor([-1.5, 2.0, 0.7], dtype=library.float64).requires_grad_()
    optimizer = library.optim.LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x[:-1]) ** 2).sum()
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(4)] + x.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"line_search_fn": "strong_wolfe", "max_iter": 10, "history_size": 3},
        {"line_search_fn": "strong_wolfe", "lr": 0.5, "max_iter": 3},
        {"line_search_fn": "strong_wolfe", "max_eval": 4},
        {"lr": 1e-3},
        {"lr": 1e-3, "max_iter": 3, "tolerance_change": 30.0},
    ],
)
def test_losses_and_parameters(options):
    np.testing.assert_allclose(minimized(flow, options), minimized(torch, options), rtol=1e-8)


def test_what_is_refused():
    x = flow.ones(2, requires_grad=True)
    with pytest.raises(ArgumentError, match="LBFGS: got line_search_fn='armijo'; expected None or 'strong_wolfe'"):
        flow.optim.LBFGS([x], line_search_fn="armijo")
    with pytest.raises(ArgumentError, match="LBFGS: got 2 groups; expected one"):
        flow.optim.LBFGS([{"params": [x]}, {"params": [flow.ones(1, requires_grad=True)]}])
    with pytest.raises(ArgumentError, match="LBFGS: got no closure"):
        flow.optim.LBFGS([x]).step()


def test_it_goes_on_where_it_was(tmp_path):
    def made(start):
        w = flow.nn.Parameter(start)
        return w, flow.optim.LBFGS([w], max_iter=4)

    def steps(w, optimizer, count=3):
        def closure():
            optimizer.zero_grad()
            loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
            loss.backward()
            return loss

        for _ in range(count):
            optimizer.step(closure)
        return w.tolist()

    w, optimizer = made(flow.tensor([-1.5, 2.0]))
    steps(w, optimizer)
    flow.save([w.detach(), optimizer.state_dict()], tmp_path / "run")
    start, state = flow.load(tmp_path / "run")
    again, resumed = made(start)
    resumed.load_state_dict(state)
    assert steps(again, resumed) == steps(w, optimizer)
    fresh, unused = made(flow.tensor([1.0, 2.0]))
    unused.load_state_dict(flow.optim.LBFGS([fresh]).state_dict())
    assert unused.previous is None
