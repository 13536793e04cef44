"""The layouts that OneFlow 0.9 chose for the same operators and operands, recorded on two CPU ranks.

Where the value that OneFlow computed was right, the layout of the result is the same here, or no more bytes were moved.
Where OneFlow leaves a partial sum, and here there is none, what reduces it is counted too: a reduce-scatter, or for a
number an all-reduce.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow
from miniflow.nn import functional as F
from miniflow.parallel import dispatch, world
from miniflow.parallel.signature import candidates, debt
from miniflow.sbp import B, P, S

FILE = Path(__file__).parent / "oneflow_sbp_1d.json"
ROWS = json.loads(FILE.read_text())["rows"]
EXPLAINED = {  # rows where OneFlow moves less
    ("layer_norm", "S2"): "composed of mean, var and products there, so that only the statistics are added up",
}
FUNCTIONS = {
    "relu": flow.relu,
    "neg": flow.neg,
    "exp": flow.exp,
    "mul_scalar": lambda x: x * 2.0,
    "add_scalar": lambda x: x + 2.0,
    "softmax_-1": lambda x: flow.softmax(x, -1),
    "log_softmax_-1": lambda x: flow.log_softmax(x, -1),
    "sum_all": flow.sum,
    "sum_0": lambda x: x.sum(0),
    "sum_1": lambda x: x.sum(1),
    "mean_all": flow.mean,
    "max_1": lambda x: x.amax(1),
    "argmax_1": lambda x: x.argmax(1),
    "transpose_01": lambda x: x.transpose(0, 1),
    "reshape_96_16": lambda x: x.reshape(96, 16),
    "reshape_8_192": lambda x: x.reshape(8, 192),
    "cumsum_1": lambda x: x.cumsum(1),
    "slice_0": lambda x: x[2:6],
    "norm_all": lambda x: flow.norm(x),
    "layer_norm": lambda x: F.layer_norm(x, (16,)),
    "add": flow.add,
    "mul": flow.mul,
    "div": flow.div,
    "matmul": flow.matmul,
    "linear": F.linear,
    "concat_0": lambda x, y: flow.cat([x, y], 0),
    "where": lambda x, y: flow.where(x > 0, x, y),
    "conv2d": lambda x, w: F.conv2d(x, w, padding=1),
    "max_pool2d": lambda x: F.max_pool2d(x, 2, 2),
    "cross_entropy": F.cross_entropy,
    "embedding": F.embedding,
}
SHAPES = {
    "matmul": [(8, 12), (12, 16)],
    "linear": [(8, 12), (16, 12), (16,)],
    "conv2d": [(4, 6, 8, 8), (8, 6, 3, 3)],
    "max_pool2d": [(4, 6, 8, 8)],
    "cross_entropy": [(8, 10), (8,)],
    "embedding": [(8, 4), (20, 16)],
}
INTEGERS = {"cross_entropy": {1: 10}, "embedding": {0: 20}}


@pytest.fixture(autouse=True)
def two_ranks():
    flow.parallel.simulate(2)
    yield
    flow.parallel.simulate(1)


def layout(text):
    return {"B": B, "P": P}.get(text) or S(int(text[1:]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['op']}-{'-'.join(row['in'])}")
def test_no_more_bytes_than_oneflow(row):
    name = row["op"]
    if name not in FUNCTIONS:
        pytest.skip(f"{name} is not among the operators yet")
    random = np.random.default_rng(0)
    where = flow.placement("cpu", [0, 1])
    arrays = []
    for i, shape in enumerate(SHAPES.get(name, [(8, 12, 16)] * len(row["in"]))):
        below = INTEGERS.get(name, {}).get(i)
        arrays.append(random.integers(0, below, shape) if below else random.uniform(0.5, 2, shape).astype(np.float32))
    tensors = [flow.tensor(x, placement=where, sbp=layout(s)) for x, s in zip(arrays, row["in"], strict=True)]
    listened = []
    dispatch.listeners.append(lambda op, arrays, attrs: listened.append(candidates(op, arrays, attrs)))
    before = sum(world.communicator().counted.bytes.values())
    y = FUNCTIONS[name](*tensors)
    moved = sum(world.communicator().counted.bytes.values()) - before
    dispatch.listeners.clear()
    assert_close(y.numpy(), FUNCTIONS[name](*map(flow.tensor, arrays)).numpy(), rtol=1e-5, atol=1e-6)
    if (name, *row["in"]) in EXPLAINED:
        return
    if row["ok"] and y.sbp != (layout(row["out"]),):
        last = [one.bytes for one in listened[-1]]
        theirs = [n for n, one in zip(last, listened[-1], strict=True) if one.results[0] == (layout(row["out"]),)]
        owed = debt(y.shape, where, (P,)) * 4 if row["out"] == "P" and y.sbp != (P,) else 0
        expected = moved - last[0] + min(theirs, default=0) + owed
        assert moved <= expected, f"{y.sbp[0]} after {moved} bytes; OneFlow has {row['out']} after {expected}"
