"""Every row of the sample table beside torch: values, dtypes and gradients, at special values too."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from checks import check_against_torch
from compare import add_note
from samples import FLOATS, POINTWISE, ROWS, SPECIAL, Row, Sample

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

HALF = {"float16": 1e-2, "bfloat16": 6e-2}  # torch rounds inner steps that are not rounded here


@pytest.fixture(autouse=True)
def quiet():
    """NumPy does not warn of infinities and NaN, which are on purpose here."""
    with np.errstate(all="ignore"):
        yield


def rows(wanted) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", [row for row in ROWS if row.torch and wanted(row)], ids=str)


def compare(row: Row, sample: Sample, args: Sequence[Any], dtype: str) -> None:
    """The row's function and torch's give the same, and the same gradients where they are not zero by definition."""
    theirs = row.torch_function(torch)

    def of_tensors(*args):
        if row in POINTWISE:  # of which some take no numbers in torch
            args = [x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in args]
        return theirs(*args, **sample.kwargs)

    tolerance = {"rtol": HALF[dtype], "atol": HALF[dtype]} if dtype in HALF else {}
    grad = [i for i in range(len(args)) if row.has_gradient(sample, i) and row.gradient != "zero" and dtype in FLOATS]
    try:
        check_against_torch(sample.bound_to(row.function), of_tensors, args, dtype=dtype, grad=grad, **tolerance)
    except Exception as error:
        add_note(error, f"sample {row}{sample} in {dtype}")
        raise


@rows(lambda row: True)
def test_values_and_gradients(row):
    for sample in row.samples():
        if sample.kwargs.get("dim") == ():
            continue  # no dims are all dims for some of torch's reductions, and none for others
        for dtype in row.dtypes[:1] if sample.brief else row.dtypes:
            compare(row, sample, sample.args, dtype)


@rows(lambda row: row.integers)
def test_integers(row):
    sample = row.samples()[0]
    for kind in row.integers:
        if kind == "uint8" and row.name in ("any", "all"):
            continue  # torch's result is uint8
        compare(row, sample, sample.of_integers(kind), kind)


@rows(lambda row: row.special)
def test_special_values(row):
    sample = row.samples()[0]
    # at NaN, torch's sign is 0, and it spreads the gradients of the other three in another way
    values = SPECIAL[1:] if row.name in ("sign", "abs", "maximum", "minimum") else SPECIAL
    if row.name == "rsqrt":  # its gradient at -0.0 is among the differences
        values = np.delete(SPECIAL, 4)
    for dtype in ("float32", "float64"):
        compare(row, sample, np.meshgrid(*[values] * len(sample.args)), dtype)
