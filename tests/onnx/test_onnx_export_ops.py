"""Every row of the sample table, and every layer, as a model of ONNX: onnxruntime computes what miniflow computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from checks import assert_close
from compare import add_note, count_comparison
from running import run, tensors
from samples import ROWS, Row, Sample

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError, OnnxError

pytest.importorskip("onnxruntime")
NEWEST = onnx.defs.onnx_opset_version()
# rows that no opset can express -> words of the error
REFUSED = {
    **{name: name for name in ("logcumsumexp", "lgamma", "digamma", "zeta")},
    "embedding_bag": "embedding_grad",
    **dict.fromkeys(("cummax", "cummin", "mode"), "cumulative_max"),
    **dict.fromkeys(("cross_entropy", "sparse_softmax_cross_entropy"), "cross_entropy"),
    **dict.fromkeys(("unique", "unique_consecutive"), ""),  # of values: graphs refuse them
}
# the opsets before which rows are refused
SINCE = {
    10: "slice flip max_pool3d adaptive_max_pool3d",
    11: "round gather median nanmedian quantile nanquantile index_fill index_copy searchsorted bucketize isin "
    "select_scatter slice_scatter slice_update multi_margin_loss ctc_loss gather_nd tensor_scatter_nd_update "
    "batch_gather in_top_k cumsum masked_scatter diagonal_scatter",
    16: "roi_align scatter_reduce scatter put histc scatter_add index_add scatter_nd embedding_bag",
    18: "bitwise_and bitwise_or bitwise_xor bitwise_not",
    26: "cumprod multilabel_margin_loss",
}
NEEDED = {name: opset for opset, names in SINCE.items() for name in names.split()}


class Called(nn.Module):
    """A function of a row; the arrays among its arguments are inputs."""

    def __init__(self, sample: Sample, function):
        super().__init__()
        self.function, self.args = sample.bound_to(function), sample.args

    def forward(self, *inputs):
        given = iter(inputs)
        return self.function(*[next(given) if isinstance(x, np.ndarray) else x for x in self.args])


def check(model: nn.Module, arrays, opset: int) -> None:
    inputs = tuple(flow.tensor(x) for x in arrays)
    with flow.no_grad():
        want = tensors(model.eval()(*inputs))
    for got, y in zip(run(flow.onnx.export(model, inputs, opset=opset), arrays), want, strict=True):
        assert_close(got, y.numpy(), rtol=2e-4, atol=2e-5)


def samples_of(row: Row, brief: bool) -> list[Sample]:
    found = [sample for sample in row.samples() if brief or not sample.brief]
    integers = [kind for kind in row.integers or () if kind in ("int64", "bool")]
    if "isin" not in row.name and not row.name.startswith("is") and row.name != "signbit":
        found += [Sample(*found[0].of_integers(kind), **found[0].kwargs) for kind in integers]
    return found


def check_row(row: Row, opset: int, brief: bool) -> None:
    for sample in samples_of(row, brief):
        arrays = [x.astype("float32") if x.dtype.kind == "f" else x for x in sample.args if isinstance(x, np.ndarray)]
        try:
            check(Called(sample, row.function), arrays, opset)
        except (OnnxError, GraphError) as error:
            if opset >= NEEDED.get(row.name, 0) and row.name not in REFUSED:
                add_note(error, f"sample {sample}")
                raise
            assert (
                REFUSED.get(row.name, "opset") in str(error)
                or opset < NEEDED.get(row.name, 0)
                and ("opset" in str(error) or "the values of a tensor" in str(error))  # which graphs do not look at
            )
            count_comparison()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rows(row):
    check_row(row, 17, brief=False)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [9, 11, 13, 18, NEWEST])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_rows_of_other_opsets(row, opset):
    check_row(row, opset, brief=True)
