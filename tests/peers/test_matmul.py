"""Matrix products beside torch."""

import numpy as np
import pytest
from checks import check_against_torch

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((4, 1, 2, 3), (5, 3, 4)),
    ((2, 3, 1, 2, 3), (3, 4, 3, 2)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((0,), (0,)),
    ((1, 1), (1, 1)),
    ((65, 33), (33, 17)),
    ((80, 1), (1, 70)),
]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal random values."""
    return np.random.default_rng((seed, *shape)).normal(size=shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes, dtype):
    tolerance = {"float32": 1e-4, "float64": 1e-10, "bfloat16": 0.05}[dtype]
    inputs = [draw(*shapes[0]), draw(*shapes[1], seed=1)]
    check_against_torch(flow.matmul, torch.matmul, inputs, dtype=dtype, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("turn", [(False, True), (True, False), (True, True)])
def test_transposed_operands(turn):
    x, y = draw(*((3, 2) if turn[0] else (2, 3))), draw(*((4, 3) if turn[1] else (3, 4)))

    def product(x, y):
        return (x.t() if turn[0] else x) @ (y.t() if turn[1] else y)

    check_against_torch(product, product, [x, y], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 5, 3), (0, 3), (2, 0, 3)], ids=str)
def test_linear(shape, bias):
    inputs = [draw(*shape), draw(6, 3)] + ([draw(6)] if bias else [])
    check_against_torch(flow.nn.functional.linear, torch.nn.functional.linear, inputs, rtol=1e-5, atol=1e-5)


def test_named_products():
    close = {"rtol": 1e-5, "atol": 1e-5}
    check_against_torch(flow.mm, torch.mm, [draw(2, 3), draw(3, 4)], **close)
    check_against_torch(flow.bmm, torch.bmm, [draw(5, 2, 3), draw(5, 3, 4)], **close)
    check_against_torch(flow.dot, torch.dot, [draw(7), draw(7, seed=1)], **close)
    for beta, alpha in ((1, 1), (0.5, 2), (0, 1)):
        check_against_torch(
            lambda c, x, y, b=beta, a=alpha: flow.addmm(c, x, y, beta=b, alpha=a),
            lambda c, x, y, b=beta, a=alpha: torch.addmm(c, x, y, beta=b, alpha=a),
            [draw(4), draw(2, 3), draw(3, 4)],
            grad=[1, 2] if beta == 0 else True,
            **close,
        )


@pytest.mark.parametrize(
    "shapes", [((2, 3), (4, 5)), ((3,), (4,)), ((), (3,)), ((2, 2, 3), (3, 3, 4)), ((3,), (2, 4, 5))], ids=str
)
def test_both_refuse_shapes_that_do_not_fit(shapes):
    with pytest.raises(RuntimeError, match="size|shape|at least 1D|inconsistent"):
        torch.matmul(torch.ones(shapes[0]), torch.ones(shapes[1]))
    with pytest.raises(ValueError, match="matmul: .*shapes"):
        flow.matmul(flow.ones(shapes[0]), flow.ones(shapes[1]))


def test_second_order():
    results = []
    for lib, make in ((flow, flow.tensor), (torch, torch.tensor)):
        x, w = make(draw(3, 4), requires_grad=True), make(draw(4, 2), requires_grad=True)
        y = ((x @ w).tanh() ** 2).sum()
        gx, gw = lib.autograd.grad(y, [x, w], create_graph=True)
        ((gx**2).sum() + (gw**3).sum()).backward()
        results.append((x.grad.numpy(), w.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
