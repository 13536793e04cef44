"""The transpose by blocks that convolutions use."""

import numpy as np
import pytest

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
