"""Every row of the sample table on the cuda device, in float32: values beside NumPy, gradients beside the CPU's.

`ops/test_samples.py` holds the cuda device against all its rules, too, where the slow tests are run.
"""

import numpy as np
import pytest
from checks import as_array, assert_close, check_op, gradients
from samples import POINTWISE, ROWS

import miniflow as flow


def chosen(rows, names):
    """The rows, of which those of other names are slow."""
    return [pytest.param(row, marks=() if row.name in names else pytest.mark.slow, id=row.name) for row in rows]


FAMILIES = "add clamp where lt sum argmax gather max_pool2d layer_norm".split()
KERNELS = [row for row in ROWS if row.name in FAMILIES or row not in POINTWISE]  # which have but one


@pytest.mark.parametrize("row", chosen(KERNELS, FAMILIES))
def test_in_the_checked_executor(row, checked_executor):
    """Without races, and without accesses out of bounds."""
    check_values_and_gradients(row)


@pytest.mark.parametrize("row", chosen(ROWS, ["add"]))  # each takes seconds
def test_compiled(row):
    check_values_and_gradients(row)


def check_values_and_gradients(row):
    by_keywords = {tuple(sample.kwargs): sample for sample in reversed(row.samples()) if not sample.brief}
    for sample in by_keywords.values():
        function, grads = sample.bound_to(row.function), []
        wanted = [i for i in range(len(sample.args)) if row.has_gradient(sample, i)]
        for device in ("cpu", "cuda"):
            flow.set_default_device(device)
            grads.append(gradients(function, sample.args, wanted, "float32") if wanted else [])
        for i, got, want in zip(wanted, grads[1], grads[0], strict=True):
            assert_close(got, want, rtol=1e-4, atol=1e-5, what=f"gradient {i} of {row}{sample}")
        check_op(
            function,
            sample.args,
            sample.bound_to(row.reference),
            dtypes=row.dtypes[:1],
            result=row.result,
            grad=False,
            layouts=(),
            graph=False,
            rtol=row.rtol,
            atol=row.atol,
        )


def test_rows_of_several_warps(checked_executor):
    """The samples are small: here the warps of a block have to wait for each other."""
    x = np.random.default_rng(0).normal(size=(2, 3000))
    for name, function in {"sum": lambda x: x.sum(1), "argmax": lambda x: x.argmax(1)}.items():
        flow.set_default_device("cpu")
        want = as_array(function(flow.tensor(x, dtype=flow.float32)))
        flow.set_default_device("cuda")
        assert_close(function(flow.tensor(x, dtype=flow.float32)), want, rtol=1e-5, atol=1e-6, what=name)
