"""Softmax and log-softmax against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.ops.softmax import log_softmax, softmax

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
draw = np.random.default_rng(1)

both = pytest.mark.parametrize("ours, theirs", [(softmax, torch.softmax), (log_softmax, torch.log_softmax)])


@both
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape, dim", [((5, 33), 1), ((5, 33), 0), ((2, 3, 4, 5), 1), ((), 0)], ids=str)
def test_values_and_gradients(ours, theirs, shape, dim, kind):
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2}.get(kind)
    x = np.asarray(3 * draw.normal(size=shape))
    checks.check_against_torch(
        lambda x: ours(x, dim), lambda x: theirs(x, dim), [x], dtype=kind, rtol=tolerance, atol=tolerance
    )


@both
def test_special_values(ours, theirs):
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 2], [-inf, -inf, -inf], [inf, 1, 2], [-inf, 3, 4], [1e30, -1e30, 0]], np.float32)
    checks.assert_close(ours(flow.tensor(x), 1), theirs(torch.tensor(x), 1))


@both
def test_dtype(ours, theirs):
    x = draw.normal(size=(3, 4)).astype(np.float16)
    checks.assert_close(ours(flow.tensor(x), 1, dtype=flow.float32), theirs(torch.tensor(x), 1, dtype=torch.float32))
