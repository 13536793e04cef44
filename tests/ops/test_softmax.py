"""Softmax and log-softmax against NumPy in float64."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.backends.cpu.threads import SHARED_FROM
from miniflow.errors import DimError, DTypeError
from miniflow.ops.softmax import log_softmax, softmax

draw = np.random.default_rng(0)


def reference_log_softmax(x, dim):
    shifted = x - x.max(dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def reference_softmax(x, dim):
    return np.exp(reference_log_softmax(x, dim))


PAIRS = {"softmax": (softmax, reference_softmax), "log_softmax": (log_softmax, reference_log_softmax)}
both = pytest.mark.parametrize("name", PAIRS)


@both
@pytest.mark.parametrize("shape, dim", [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -2), ((2, 3, 4), -1), ((6,), 0)], ids=str)
def test_values_and_gradients(name, shape, dim):
    function, reference = PAIRS[name]
    checks.check_op(
        lambda x: function(x, dim),
        [draw.normal(size=shape)],
        lambda x: reference(x, dim),
        dtypes=("float16", "bfloat16", "float32", "float64"),
        third=shape == (6,),
    )


@both
@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_widths_around_the_vectors_of_the_kernel(name, width, kind):
    function, reference = PAIRS[name]
    x = (10 * draw.normal(size=(5, width))).astype(kind)
    checks.assert_close(function(flow.tensor(x), -1), reference(x.astype(np.float64), -1).astype(kind))


@both
@pytest.mark.parametrize("rows", [SHARED_FROM // 512 - 1, SHARED_FROM // 512 + 1])
def test_serial_and_parallel(name, rows):
    function, reference = PAIRS[name]
    x = draw.normal(size=(rows, 512)).astype(np.float32)
    wide, cotangent = x.astype(np.float64), draw.normal(size=x.shape).astype(np.float32)
    tensor = flow.tensor(x, requires_grad=True)
    y = function(tensor, 1)
    checks.assert_close(y, reference(wide, 1).astype(np.float32))
    y.backward(flow.tensor(cotangent))
    p = reference_softmax(wide, 1)
    if name == "softmax":
        expected = p * (cotangent - (cotangent * p).sum(1, keepdims=True))
    else:
        expected = cotangent - p * cotangent.astype(np.float64).sum(1, keepdims=True)
    checks.assert_close(tensor.grad, expected.astype(np.float32), atol=1e-5)


@both
@pytest.mark.parametrize("shape, dim", [((0, 3), 1), ((3, 0), 0), ((3, 0), 1), ((2, 0, 4), 1)], ids=str)
def test_zero_size(name, shape, dim):
    checks.assert_same(PAIRS[name][0](flow.tensor(np.empty(shape)), dim), np.empty(shape))


@both
def test_scalar_is_a_row_of_one(name):
    expected = 1.0 if name == "softmax" else 0.0
    for dim in (0, -1):
        checks.assert_same(PAIRS[name][0](flow.tensor(3.0), dim), np.array(expected, np.float32))


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_and_infinities(kind):
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 2], [-nan, 1, 2], [-inf, -inf, -inf], [inf, 1, 2], [-inf, 3, 3]], kind)
    half = np.array([[nan] * 3] * 4 + [[0, 0.5, 0.5]], kind)
    checks.assert_same(softmax(flow.tensor(x), 1), half)
    with np.errstate(divide="ignore"):
        checks.assert_close(log_softmax(flow.tensor(x), 1), np.log(half))


@pytest.mark.parametrize("offset", [1e4, -1e4])
def test_large_logits(offset):
    """Exact where the logits are: the shift must not be merged with the logarithm of the sum."""
    x = (offset + np.arange(8).reshape(2, 4)).astype(np.float32)
    for function, reference in PAIRS.values():
        checks.assert_close(
            function(flow.tensor(x), 1), reference(x.astype(np.float64), 1).astype(np.float32), rtol=1e-6
        )


@both
def test_dtype(name):
    function, reference = PAIRS[name]
    x = np.array([[1, 2, 4]])
    checks.assert_close(function(flow.tensor(x), 1, dtype=flow.float64), reference(x.astype(np.float64), 1))


@both
def test_errors(name):
    function = PAIRS[name][0]
    with pytest.raises(DimError, match=rf"{name}: got dim=2 for a tensor of 2 dims; expected a dim from -2 to 1"):
        function(flow.tensor([[1.0]]), 2)
    with pytest.raises(DTypeError, match=rf"{name}: got int64; expected a floating dtype: use x.float\(\)"):
        function(flow.tensor([1, 2]), 0)
