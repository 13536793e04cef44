"""Matrix products: every combination of ranks, broadcasting, transposes, gradients, errors."""

import numpy as np
import pytest
from checks import assert_close, check_op, on_device
from hypothesis import given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.errors import DTypeError, ShapeError
from miniflow.nn.functional import linear

FLOATS = ("float32", "float64", "float16", "bfloat16")


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal random values."""
    return np.random.default_rng((seed, *shape)).normal(size=shape)


SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((1, 3), (3, 1)),
    ((2, 2, 3), (3, 2)),
    ((2, 2, 3), (3,)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (2, 3, 2)),
    ((2, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (3, 3, 2)),
    ((1, 2, 3), (2, 3, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes):
    check_op(flow.matmul, [draw(*shapes[0]), draw(*shapes[1], seed=1)], np.matmul, dtypes=FLOATS)


def test_matmul_third_order():
    check_op(
        lambda x, y: flow.matmul(flow.matmul(x, y), x), [draw(2, 3), draw(3, 2)], lambda x, y: x @ y @ x, third=True
    )


@pytest.mark.parametrize(
    "shapes", [((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 2)), ((0,), (0,))], ids=str
)
def test_matmul_of_zero_size(shapes):
    check_op(flow.matmul, [draw(*shapes[0]), draw(*shapes[1])], np.matmul, gradient="zero", second=False)


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_matmul_of_integers(kind):
    x, y = np.arange(6).reshape(2, 3).astype(kind), np.arange(12).reshape(3, 4).astype(kind)
    check_op(flow.matmul, [x, y], lambda x, y: (x @ y).astype(kind), dtypes=(kind,), grad=False, result=kind)


@pytest.mark.parametrize("size", [63, 64, 65, 257])
def test_matmul_around_block_sizes(size):
    x, y = draw(size, 33).astype(np.float32), draw(33, size + 1, seed=1).astype(np.float32)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert_close(on_device(x) @ on_device(y), exact.astype(np.float32), atol=1e-4)
    transposed = on_device(np.ascontiguousarray(x.T)).T @ on_device(np.asfortranarray(y))
    assert_close(transposed, exact.astype(np.float32), atol=1e-4)


def test_named_products():
    check_op(flow.mm, [draw(2, 3), draw(3, 4)], np.matmul)
    check_op(flow.bmm, [draw(2, 2, 3), draw(2, 3, 2)], np.matmul)
    check_op(flow.dot, [draw(5), draw(5, seed=1)], np.dot)
    assert_close(draw(2, 3) @ flow.tensor(draw(3)), draw(2, 3) @ draw(3))


@pytest.mark.parametrize("scales", [(1, 1), (0.5, 2.0), (0, 1), (2, 0)])
@pytest.mark.parametrize("shape", [(2, 4), (4,), (2, 1), ()], ids=str)
def test_addmm(shape, scales):
    beta, alpha = scales
    check_op(
        lambda c, x, y: flow.addmm(c, x, y, beta=beta, alpha=alpha),
        [draw(*shape, seed=7), draw(2, 3), draw(3, 4)],
        lambda c, x, y: beta * c + alpha * (x @ y),
        grad=True if beta and alpha else [1, 2] if alpha else [0],
        second=alpha != 0,
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 2, 3)], ids=str)
def test_linear(shape, bias):
    x, weight = draw(*shape), draw(5, 3)
    if bias:
        check_op(linear, [x, weight, draw(5)], lambda x, w, b: x @ w.T + b, dtypes=FLOATS)
    else:
        check_op(linear, [x, weight], lambda x, w: x @ w.T, dtypes=FLOATS)


def test_linear_of_an_empty_batch():
    check_op(linear, [draw(0, 3), draw(5, 3), draw(5)], lambda x, w, b: x @ w.T + b, gradient="zero", second=False)


@pytest.mark.parametrize("name", ["x", "weight", "bias"])
def test_gradient_of_one_operand_of_linear(name):
    position = ["x", "weight", "bias"].index(name)
    check_op(linear, [draw(4, 3), draw(2, 3), draw(2)], lambda x, w, b: x @ w.T + b, grad=[position], second=False)


ERRORS = [
    (flow.matmul, ((2, 3), (4, 5)), r"matmul: got shapes \(2, 3\) and \(4, 5\)"),
    (flow.matmul, ((3,), (4,)), r"matmul: got shapes \(3,\) and \(4,\)"),
    (flow.matmul, ((), (4,)), r"matmul: got shapes \(\) and \(4,\); expected at least 1-D"),
    (flow.matmul, ((2, 2, 3), (3, 3, 4)), r"matmul: shapes \(2,\) and \(3,\) cannot be broadcast"),
    (flow.matmul, ((2, 2, 3), (4, 2)), r"matmul: got shapes \(2, 2, 3\) and \(4, 2\)"),
    (flow.mm, ((2, 2, 3), (3, 3)), r"mm: got input of shape \(2, 2, 3\); expected 2 dims"),
    (flow.bmm, ((2, 2, 3), (1, 3, 2)), "bmm: got batches of 2 and 1 matrices"),
    (flow.dot, ((2, 2), (2,)), r"dot: got input of shape \(2, 2\); expected 1 dim"),
    (linear, ((2, 3), (4, 5)), r"linear: got input \(2, 3\) and weight \(4, 5\)"),
    (linear, ((2, 2, 3), (4, 5)), r"linear: got input \(2, 2, 3\) and weight \(4, 5\)"),
    (linear, ((2, 3), (4, 3), (3,)), r"linear: got bias \(3,\); expected \(4,\)"),
    (flow.addmm, ((3, 3), (2, 3), (3, 4)), r"addmm: "),
]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: f"{case[0].__name__}{case[1]}")
def test_shapes_that_do_not_fit(case):
    function, shapes, words = case
    with pytest.raises(ShapeError, match=words):
        function(*(flow.ones(shape) for shape in shapes))


def test_linear_refuses_mixed_dtypes():
    with pytest.raises(DTypeError, match=r"linear: got dtypes float32, float64"):
        linear(flow.ones(2, 3), flow.ones(4, 3, dtype=flow.float64))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    holes=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    cuts=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_any_batch_shapes(batch, sizes, holes, cuts):
    rows, inner, columns = sizes
    first = [1 if hole else n for n, hole in zip(batch, holes[:2], strict=False)][cuts[0] :]
    second = [1 if hole else n for n, hole in zip(batch, holes[2:], strict=False)][cuts[1] :]
    x, y = draw(*first, rows, inner), draw(*second, inner, columns, seed=1)
    check_op(flow.matmul, [x, y], np.matmul, second=False, gradient="sparse")


@pytest.mark.cpu_only("how the CPU multiplies few rows")
@pytest.mark.parametrize("rows", [1, 2, 16, 96, 97])
def test_few_rows(rows):
    """The transpose is computed where that is faster; results are the same whichever way the weight is given."""
    x, weight, bias = draw(rows, 203), draw(515, 203), draw(515)
    narrow, narrow_weight, narrow_bias = (flow.from_numpy(array.astype(np.float32)) for array in (x, weight, bias))
    y = flow.matmul(narrow, narrow_weight.t())
    assert_close(y.numpy(), (x @ weight.T).astype(np.float32), rtol=1e-4, atol=1e-4)
    assert (linear(narrow, narrow_weight, narrow_bias).numpy() == (y + narrow_bias).numpy()).all()


@pytest.mark.cpu_only("how the CPU multiplies with a short inner dimension")
@pytest.mark.parametrize("inner", [16, 32, 33])
def test_short_inner_dimensions(inner, monkeypatch):
    """The product is cut into parts of its columns if there are several threads, whose BLAS would be slow."""
    from miniflow.backends.cpu import matmul

    monkeypatch.setattr(matmul.numba, "get_num_threads", lambda: 2)
    x, y = draw(inner, 256).astype(np.float32), draw(inner, 515).astype(np.float32)
    z = flow.matmul(flow.tensor(x).t(), flow.tensor(y))
    assert_close(z.numpy(), x.T @ y, rtol=1e-4, atol=1e-4)
