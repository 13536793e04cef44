"""Every row of the sample table on the cuda device, in float32: values beside NumPy, gradients beside the CPU's.

`ops/test_samples.py` holds the cuda device against all its rules, too, where the slow tests are run.
"""

import pytest
from checks import assert_close, check_op, gradients
from samples import ROWS

import miniflow as flow

# Each kernel is compiled, which takes seconds: by default some rows stand for the others.
REPRESENTATIVE = ("add floor_divide gelu clamp where lt isnan sum argmax matmul gather").split()
CHOSEN = [pytest.param(row, marks=() if row.name in REPRESENTATIVE else pytest.mark.slow, id=row.name) for row in ROWS]


@pytest.mark.parametrize("row", CHOSEN)
def test_values_and_gradients(row):
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
