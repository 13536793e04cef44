"""Data sets with indices, and ways to split and join them."""

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split


class Squares(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        return index**2


def test_tensor_dataset():
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, 1, 2, 0])
    dataset = TensorDataset(flow.from_numpy(x), flow.from_numpy(y))
    assert len(dataset) == 4
    for index in (0, 3, -1):
        a, b = dataset[index]
        np.testing.assert_array_equal(a.numpy(), x[index])
        assert b.item() == y[index]
    a, b = dataset[1:3]
    np.testing.assert_array_equal(a.numpy(), x[1:3])
    assert b.tolist() == [1, 2]


def test_tensor_dataset_refuses():
    for tensors in ((flow.zeros(3, 2), flow.zeros(4)), (), (flow.tensor(1.0),)):
        with pytest.raises(ShapeError, match="TensorDataset: got shapes .*equal in dimension 0"):
            TensorDataset(*tensors)


def test_subset():
    subset = Subset(Squares(10), [7, 2, 2])
    assert len(subset) == 3 and [subset[i] for i in range(3)] == [49, 4, 4]
    assert Subset(subset, [2, 0])[1] == 49
    assert subset.__getitems__([0, 1]) == [49, 4]
    tensors = Subset(TensorDataset(flow.arange(10)), [7, 2, 5])
    assert tensors[[2, 0]][0].tolist() == [5, 7]


def test_concat():
    both = Squares(3) + Squares(0) + Squares(2)
    assert isinstance(both, ConcatDataset) and len(both) == 5
    assert [both[i] for i in range(5)] == [0, 1, 4, 0, 1]
    assert [both[i] for i in range(-5, 0)] == [0, 1, 4, 0, 1]
    for index in (5, -6):
        with pytest.raises(IndexError, match="out of range"):
            both[index]


@pytest.mark.parametrize(
    ("total", "lengths", "sizes"),
    [
        (10, [7, 3], [7, 3]),
        (10, [10, 0], [10, 0]),
        (0, [0], [0]),
        (10, [0.5, 0.5], [5, 5]),
        (10, [0.33, 0.33, 0.34], [4, 3, 3]),
        (11, [0.5, 0.25, 0.25], [6, 3, 2]),
        (5000, [0.8, 0.2], [4000, 1000]),
        (3, [1], [3]),
    ],
)
def test_random_split_is_a_partition(total, lengths, sizes):
    parts = random_split(Squares(total), lengths, generator=flow.Generator().manual_seed(3))
    assert [len(part) for part in parts] == sizes
    assert sorted(index for part in parts for index in part.indices) == list(range(total))


def test_random_split_is_random_and_repeats_with_the_seed():
    def split(seed):
        return random_split(Squares(100), [50, 50], generator=flow.Generator().manual_seed(seed))[0].indices

    assert split(1) == split(1) != split(2)
    assert sorted(split(1)) != split(1)
    flow.manual_seed(5)
    first = random_split(Squares(100), [50, 50])[0].indices
    flow.manual_seed(5)
    assert random_split(Squares(100), [50, 50])[0].indices == first


@pytest.mark.parametrize("lengths", [[3, 3], [11], [-1, 11], [0.5, 0.6], [-0.5, 1.5], []])
def test_random_split_refuses(lengths):
    with pytest.raises(ArgumentError, match="for 10 samples; expected integers >= 0 that sum to 10, or fractions"):
        random_split(Squares(10), lengths)


def test_missing_methods_are_named():
    class Empty(Dataset):
        pass

    class EmptyStream(IterableDataset):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define __getitem__"):
        Empty()[0]
    with pytest.raises(NotImplementedError, match="EmptyStream must define __iter__"):
        iter(EmptyStream())
