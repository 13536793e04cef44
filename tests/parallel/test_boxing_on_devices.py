"""Boxing of tensors on CUDA devices: with simulated ranks nothing passes through the memory of the CPU."""

import itertools

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.backends.cuda.driver import driver
from miniflow.sbp import B, P, S

X = np.random.default_rng(0).integers(-9, 9, (5, 6)).astype(np.float32)


@pytest.fixture
def copies(monkeypatch):
    """What is copied between the CPU and devices, as a list of shapes."""
    found = []
    for name in ("copy_to_host", "copy_to_device"):
        real = getattr(driver(), name)
        monkeypatch.setattr(
            driver(), name, lambda *args, real=real: (found.append(tuple(args[0].shape)), real(*args))[1], raising=False
        )
    return found


@pytest.mark.parametrize("mesh", [[0, 1, 2], [[0, 1], [2, 3]]], ids=str)
def test_every_change(mesh, four_ranks, copies):
    where = flow.placement("cuda", mesh)
    x = flow.tensor(X, placement=where, sbp=[B] * len(where.shape))
    for before, after in itertools.product([B, P, S(0), S(1)], repeat=2):
        y = x.to_global(sbp=[before] * len(where.shape))
        copies.clear()
        z = y.to_global(sbp=[after] * len(where.shape))
        assert copies == [], (before, after)
        assert_same(z.numpy(), X)
        assert {shard.device.type for shard in z.shards.values()} == {"cuda"}


def test_to_other_ranks(four_ranks, copies):
    x = flow.tensor(X, placement=flow.placement("cuda", [0, 1]), sbp=S(0))
    copies.clear()
    y = x.to_global(flow.placement("cuda", [3, 1, 2]), S(1))
    assert copies == []
    assert_same(y.numpy(), X)
    copies.clear()
    z = y.to_global(flow.placement("cpu", [3, 1, 2]), B)
    assert len(copies) == 3  # a shard of each rank, after they were gathered
    assert_same(z.numpy(), X)


DTYPES = [flow.float32, flow.float16, flow.bfloat16, flow.int64, flow.int8, flow.bool]
REDUCTIONS = [
    (op, dtype)
    for op in flow.distributed.ReduceOp
    for dtype in DTYPES
    if (not op.value.startswith("bitwise") if dtype.is_floating_point else op.name != "AVG")
]


@pytest.mark.parametrize(("op", "dtype"), REDUCTIONS, ids=str)
def test_collectives_of_local_tensors(op, dtype, four_ranks):
    """As on the CPU, to the bit."""
    results = []
    for device in ("cpu", "cuda"):
        x = flow.tensor([3, 0, 1, 7], dtype=dtype, device=device)
        flow.comm.all_reduce(x, op)
        y = flow.zeros(1, dtype=dtype, device=device)
        flow.comm.reduce_scatter_tensor(y, x, op)
        results.append((x.cpu().float().numpy(), y.cpu().float().numpy()))
    assert_same(results[1][0], results[0][0])
    assert_same(results[1][1], results[0][1])
