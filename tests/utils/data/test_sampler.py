"""Samplers: which indices, how often, and in which order."""

import itertools

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def generator(seed=0):
    return flow.Generator().manual_seed(seed)


def test_sequential():
    assert list(SequentialSampler(range(4))) == [0, 1, 2, 3] and len(SequentialSampler("ab")) == 2


def test_random_without_replacement_is_a_new_permutation_each_epoch():
    sampler = RandomSampler(range(50), generator=generator())
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second and first != list(range(50)) and len(sampler) == 50
    repeat = RandomSampler(range(50), generator=generator())
    assert [list(repeat), list(repeat)] == [first, second]
    assert list(RandomSampler([])) == []


def test_random_uses_the_default_generator():
    flow.manual_seed(11)
    first = list(RandomSampler(range(50)))
    flow.manual_seed(11)
    assert list(RandomSampler(range(50))) == first


@pytest.mark.parametrize("num_samples", [1, 7, 10, 25])
def test_random_num_samples(num_samples):
    drawn = list(RandomSampler(range(10), num_samples=num_samples, generator=generator()))
    assert len(drawn) == num_samples == len(RandomSampler(range(10), num_samples=num_samples))
    counts = np.bincount(drawn, minlength=10)
    assert counts.max() - counts.min() <= 1  # every index once before any comes again
    assert sorted(drawn[:10]) == list(range(10)) or num_samples < 10


def test_random_with_replacement():
    drawn = list(RandomSampler(range(10), replacement=True, num_samples=2000, generator=generator()))
    counts = np.bincount(drawn, minlength=10)
    assert len(drawn) == 2000 and len(counts) == 10
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # chi-square with 9 degrees of freedom, p = 0.001
    assert len(set(list(RandomSampler(range(50), replacement=True, generator=generator())))) < 50


@pytest.mark.parametrize(("size", "replacement"), [(50, False), (10, True)])
def test_the_order_of_a_long_epoch_is_not_changed_by_what_is_drawn_meanwhile(size, replacement):
    sampler = RandomSampler(range(size), replacement, num_samples=10_000)
    flow.manual_seed(3)
    order = list(sampler)
    flow.manual_seed(3)
    assert [(index, flow.rand(1))[0] for index in sampler] == order
    assert len(order) == 10_000 and order[:4096] != order[4096:8192]


def test_an_epoch_with_replacement_may_be_longer_than_memory():
    sampler = RandomSampler(range(10), replacement=True, num_samples=10**12)
    first = list(itertools.islice(sampler, 5000))
    assert len(first) == 5000 and set(first) == set(range(10))


def test_subset_random():
    sampler = SubsetRandomSampler([5, 9, 2, 7, 30, 31], generator=generator(1))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == [2, 5, 7, 9, 30, 31] and first != second and len(sampler) == 6


def test_weighted_random():
    weights = [1.0, 0.0, 3.0, 6.0]
    drawn = list(WeightedRandomSampler(flow.tensor(weights), 3000, generator=generator()))
    counts = np.bincount(drawn, minlength=4)
    assert counts[1] == 0 and len(drawn) == 3000
    expected = np.array([300, 900, 1800])
    assert ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum() < 13.8  # 2 degrees of freedom, p = 0.001
    once = list(WeightedRandomSampler(weights, 3, replacement=False, generator=generator()))
    assert sorted(once) == [0, 2, 3]


def test_batches():
    for batch_size, drop_last, expected in [
        (3, False, [[0, 1, 2], [3, 4, 5], [6]]),
        (3, True, [[0, 1, 2], [3, 4, 5]]),
        (7, True, [[0, 1, 2, 3, 4, 5, 6]]),
        (8, True, []),
        (8, False, [[0, 1, 2, 3, 4, 5, 6]]),
    ]:
        sampler = BatchSampler(SequentialSampler(range(7)), batch_size, drop_last)
        assert list(sampler) == expected and len(sampler) == len(expected)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_counts_must_be_positive_whole_numbers(value):
    for make in (
        lambda: RandomSampler(range(3), num_samples=value),
        lambda: WeightedRandomSampler([1.0], value),
        lambda: BatchSampler(range(3), value, False),
    ):
        with pytest.raises(
            ArgumentError, match=f"got (num_samples|batch_size)={value!r}; expected an integer above zero"
        ):
            make()


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -0.1], [1.0, np.nan], [np.inf]])
def test_weights_must_be_a_distribution(weights):
    with pytest.raises((ArgumentError, ShapeError), match="multinomial"):
        list(WeightedRandomSampler(weights, 1))


def test_too_few_samples():
    with pytest.raises(ArgumentError, match="multinomial"):
        list(WeightedRandomSampler([1.0, 0.0, 2.0], 3, replacement=False))
