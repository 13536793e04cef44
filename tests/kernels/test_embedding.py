"""The ops of embeddings; their kernels are those of `kernels.gather` and `kernels.scatter`."""

import numpy as np
import pytest
from both import agree, on_device, run_kernel

from miniflow.errors import IndexRangeError


def table(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def indices(rows, *shape):
    return np.random.default_rng(1).integers(0, rows, shape)


@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_ops_agree_with_the_cpu(shape, dtype):
    index = indices(6, *shape).astype(dtype)
    agree("Embedding", index, table(6, 5), padding_idx=-1)
    agree("Embedding", index, table(6, 5, dtype=np.float16), padding_idx=2)
    agree("EmbeddingGrad", table(*shape, 5), index, rows=6, padding_idx=2, exact=False)
    agree("EmbeddingGrad", table(*shape, 5, dtype=np.float64), index, rows=6, padding_idx=-1, exact=False)


@pytest.mark.parametrize("bad", [-1, 6])
def test_an_index_outside_the_table_is_an_error(bad):
    index = np.array([[0, 5], [bad, 77]])
    with pytest.raises(IndexRangeError, match=f"index {bad} is out of range for dim 0 of size 6"):
        run_kernel("cuda", "Embedding", on_device(index), on_device(table(6, 5)), padding_idx=-1)
