"""The transpose in registers that convolutions use."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from miniflow.backends.cpu.threads import compiled
from miniflow.backends.cpu.transpose import BLOCK, transpose

SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5]


@compiled
def into(source, target):
    transpose(source, target)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("columns", SIZES)
def test_every_element_arrives_and_nothing_else_is_written(rows, columns):
    source = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    memory = np.full(rows * columns + 2 * BLOCK, np.nan, np.float32)
    target = memory[BLOCK:-BLOCK].reshape(columns, rows)
    into(source, target)
    assert (target == source.T).all()
    assert np.isnan(memory[:BLOCK]).all() and np.isnan(memory[-BLOCK:]).all()


def test_nan_and_infinity_are_moved_bit_by_bit():
    bits = np.random.default_rng(0).integers(0, 2**32, (2 * BLOCK, BLOCK), np.uint32)
    target = np.empty((BLOCK, 2 * BLOCK), np.uint32)
    into(bits.view(np.float32), target.view(np.float32))
    assert (target == bits.T).all()


@pytest.mark.parametrize("rows, columns", [(16, 32), (37, 21)])
def test_rows_may_lie_apart(rows, columns):
    source = np.arange(rows * 50, dtype=np.float32).reshape(rows, 50)[:, 3 : 3 + columns]
    target = np.zeros((columns, 60), np.float32)
    into(source, target[:, 5 : 5 + rows])
    assert (target[:, 5 : 5 + rows] == source.T).all()
    assert not target[:, :5].any() and not target[:, 5 + rows :].any()


def test_other_dtypes_are_refused():
    with pytest.raises(TypingError, match="expected two matrices of float32"):
        into(np.zeros((16, 16)), np.zeros((16, 16)))
