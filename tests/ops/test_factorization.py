"""Linear algebra against NumPy in float64: values, gradients of two orders, recorded in graphs, and what is refused."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow import linalg
from miniflow.errors import ArgumentError, AutogradError, DTypeError, ShapeError

ON_EVERY_DEVICE = True
draw = np.random.default_rng(3)
SQUARE = draw.normal(size=(2, 3, 3)) + 3 * np.eye(3)
TALL, WIDE = draw.normal(size=(2, 4, 3)), draw.normal(size=(3, 4))


def symmetric(A):
    return A @ A.swapaxes(-1, -2) + 0.5 * np.eye(3)


def of_symmetric(function):
    """Of A A^T + I / 2, so that finite differences stay among such matrices."""
    return lambda A: function(A @ A.mT + 0.5 * flow.eye(3, dtype=A.dtype, device=A.device))


CASES = {
    "det": (linalg.det, np.linalg.det, [SQUARE]),
    "slogdet": (linalg.slogdet, lambda A: tuple(np.linalg.slogdet(A)), [SQUARE]),
    "inv": (linalg.inv, np.linalg.inv, [SQUARE]),
    "solve": (linalg.solve, np.linalg.solve, [SQUARE, draw.normal(size=(2, 3, 2))]),
    "solve, broadcast": (linalg.solve, np.linalg.solve, [SQUARE, draw.normal(size=(3, 2))]),
    "solve, vector": (linalg.solve, np.linalg.solve, [SQUARE[0], draw.normal(size=3)]),
    "solve, right": (
        lambda A, B: linalg.solve(A, B, left=False),
        lambda A, B: B @ np.linalg.inv(A),
        [SQUARE, draw.normal(size=(2, 2, 3))],
    ),
    "cholesky": (of_symmetric(linalg.cholesky), lambda A: np.linalg.cholesky(symmetric(A)), [SQUARE]),
    "eigh": (
        of_symmetric(lambda A: (linalg.eigh(A)[0], linalg.eigh(A)[1] ** 2)),
        lambda A: (np.linalg.eigh(symmetric(A))[0], np.linalg.eigh(symmetric(A))[1] ** 2),
        [SQUARE],
    ),
    "qr": (
        lambda A: (linalg.qr(A)[0] ** 2, linalg.qr(A)[1] ** 2),
        lambda A: tuple(x**2 for x in np.linalg.qr(A)),
        [TALL],
    ),
    **{
        f"svd of {x.shape}": (
            lambda A: (linalg.svd(A, False)[0] ** 2, linalg.svdvals(A), linalg.svd(A, False)[2] ** 2),
            lambda A: tuple(x if i == 1 else x**2 for i, x in enumerate(np.linalg.svd(A, False))),
            [x],
        )
        for x in (TALL, WIDE)
    },
    "pinv": (linalg.pinv, np.linalg.pinv, [TALL]),
    "matrix_power 5": (lambda A: linalg.matrix_power(A, 5), lambda A: np.linalg.matrix_power(A, 5), [SQUARE / 4]),
    "matrix_power -2": (lambda A: linalg.matrix_power(A, -2), lambda A: np.linalg.matrix_power(A, -2), [SQUARE]),
    "cross": (linalg.cross, np.cross, [draw.normal(size=(2, 3)), draw.normal(size=3)]),
    "multi_dot": (
        lambda *x: linalg.multi_dot(x),
        lambda *x: np.linalg.multi_dot(x),
        [draw.normal(size=s) for s in ((2,), (2, 5), (5, 3), (3, 4))],
    ),
    "diagonal": (lambda A: linalg.diagonal(A, offset=1), lambda A: np.diagonal(A, 1, -2, -1), [SQUARE]),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    function, reference, inputs = CASES[case]
    gradient = "sparse" if case == "diagonal" else "dense"
    checks.check_op(function, inputs, reference, gradient=gradient, rtol=2e-4, atol=2e-5, layouts=("fortran",))


NORMS = ["fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf]


@pytest.mark.parametrize("ord", NORMS, ids=str)
@pytest.mark.parametrize("shape, dim", [((3, 4), (-2, -1)), ((3, 2, 4), (2, 0))], ids=str)
def test_norms_of_matrices(ord, shape, dim):
    checks.check_op(
        lambda A: (linalg.matrix_norm(A, ord, dim), linalg.norm(A, ord, dim, True)),
        [draw.normal(size=shape)],
        lambda A: (np.linalg.norm(A, ord, dim), np.linalg.norm(A, ord, dim, True)),
        gradient="any",
        second=ord in ("fro", "nuc"),
        rtol=1e-4,
    )


@pytest.mark.parametrize("ord", [None, 2, 3, 1, 0, np.inf])
def test_norms_of_vectors(ord):
    x = draw.normal(size=(3, 4))
    for dim in (0, -1):
        checks.assert_close(linalg.norm(flow.tensor(x), ord, dim), np.linalg.norm(x, ord, dim), rtol=1e-9)
    number = 2 if ord is None else ord
    want = np.linalg.norm(x.reshape(-1), number)
    checks.assert_close(linalg.vector_norm(flow.tensor(x), number), np.asarray(want), rtol=1e-9)


def test_results_without_gradients():
    A = flow.tensor(TALL)
    checks.assert_same(linalg.matrix_rank(A), np.array([3, 3]))
    low = TALL[0] @ np.diag([1.0, 0.0, 1.0])
    checks.assert_same(linalg.matrix_rank(flow.tensor(low)), np.array(2))
    U, S, Vh = linalg.svd(A)
    assert (tuple(U.shape), tuple(S.shape), tuple(Vh.shape)) == ((2, 4, 4), (2, 3), (2, 3, 3))
    Q, R = linalg.qr(A, "complete")
    checks.assert_close((Q @ R).cpu().numpy(), TALL, rtol=1e-9)
    assert linalg.qr(A, "r").Q.shape == (0,)
    want = np.array([np.log(2), np.nan, -np.inf], "float32")
    checks.assert_close(flow.logdet(flow.tensor([[[2.0]], [[-1.0]], [[0.0]]])), want)
    checks.assert_close(flow.cross(A[:, :3], A[:, :3] * 2 + 1), np.cross(TALL[:, :3], TALL[:, :3] * 2 + 1, axis=1))
    checks.assert_close(A.pinverse(), np.linalg.pinv(TALL), rtol=1e-9)
    checks.assert_same(flow.matrix_power(A[:, :3], 0), np.broadcast_to(np.eye(3), (2, 3, 3)))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: linalg.inv(flow.zeros(2, 2)), ArgumentError, "inv: got a matrix that has none: Singular"),
        (lambda: linalg.cholesky(-flow.eye(2)), ArgumentError, "cholesky: .*not positive definite"),
        (lambda: linalg.det(flow.ones(2, 3)), ShapeError, "det: got shape .2, 3.; expected .*n, n"),
        (lambda: linalg.inv(flow.ones(2, 2).half()), DTypeError, "inv: got float16; expected float32 or float64"),
        (lambda: linalg.solve(flow.eye(2), flow.ones(3, 1)), ShapeError, "solve: got A .2, 2. and B .3, 1."),
        (lambda: linalg.qr(flow.eye(2), "full"), ArgumentError, "mode='full'"),
        (lambda: linalg.matrix_norm(flow.eye(2), 3), ArgumentError, "ord=3"),
        (lambda: linalg.norm(flow.ones(2, 2, 2), 1), ShapeError, "ord=1; expected 1 or 2 dims"),
        (lambda: linalg.cross(flow.ones(2), flow.ones(2)), ShapeError, "cross: got .2,., .2,.; expected 3"),
        (lambda: linalg.multi_dot([flow.eye(2)]), ShapeError, "multi_dot: got 1 tensors"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_gradient_of_a_wide_qr_is_refused():
    R = linalg.qr(flow.tensor(WIDE, requires_grad=True))[1]
    with pytest.raises(AutogradError, match="rows >= columns"):
        R.sum().backward()
