"""Generators: seeds, states, and that no two draws are the same."""

from __future__ import annotations

import copy as copies
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.errors import ArgumentError
from miniflow.ops.generator import Generator, default_generator


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def test_manual_seed_repeats():
    flow.manual_seed(42)
    a = [flow.rand(3), flow.randn(3), flow.randperm(9), flow.dropout(flow.ones(9))]
    flow.manual_seed(42)
    b = [flow.rand(3), flow.randn(3), flow.randperm(9), flow.dropout(flow.ones(9))]
    for x, y in zip(a, b, strict=True):
        assert_same(x, y.cpu().numpy())


def test_generator_state():
    g = generator(7)
    flow.rand(3, generator=g)
    state = g.get_state()
    assert state.dtype is flow.uint8 and state.shape == (16,)
    a = flow.rand(5, generator=g)
    assert_same(flow.rand(5, generator=g.set_state(state)), a.cpu().numpy())
    assert_same(flow.rand(5, generator=Generator().set_state(state)), a.cpu().numpy())
    assert g.initial_seed() == 7 and "seed=7" in repr(g)
    assert Generator().initial_seed() == 67280421310721
    assert generator(-1).initial_seed() == 2**64 - 1
    assert g.seed() == g.initial_seed() != Generator().seed()


@pytest.mark.cpu_only("the numbers are NumPy's")
def test_numpy_generators_are_seeded_by_draws():
    first, second = (generator(7).numpy().random(4) for _ in range(2))
    np.testing.assert_array_equal(first, np.random.Generator(np.random.Philox(key=[7, 0])).random(4))
    np.testing.assert_array_equal(first, second)
    g = generator(7)
    assert g.numpy().random() == first[0] and g.numpy().random() != first[0]
    assert g.next_draw() == (7, 2)


def test_default_generator_state():
    state = flow.get_rng_state()
    a = flow.rand(5)
    flow.set_rng_state(state)
    assert_same(flow.rand(5), a.cpu().numpy())
    assert flow.manual_seed(3) is default_generator and flow.initial_seed() == 3
    own = Generator()
    before = flow.get_rng_state()
    flow.rand(3, generator=own)
    assert_same(flow.get_rng_state(), before.cpu().numpy())


def test_two_threads_never_share_a_draw():
    g = generator(0)
    with ThreadPoolExecutor(4) as pool:
        draws = list(pool.map(lambda _: g.next_draw(), range(2000)))
    assert sorted(draws) == [(0, i) for i in range(2000)]


def test_copies_continue_alike_and_apart():
    g = generator(4)
    flow.rand(2, generator=g)
    for copy in (copies.deepcopy(g), pickle.loads(pickle.dumps(g))):
        state = g.get_state()
        assert_same(flow.rand(5, generator=copy), flow.rand(5, generator=g).cpu().numpy())
        g.set_state(state)
        assert copy.get_state().tolist() != state.tolist()


ERRORS = [
    (lambda: flow.manual_seed(2**64), ArgumentError, "manual_seed: got 18446744073709551616; expected an integer from"),
    (lambda: flow.manual_seed(-(2**63) - 1), ArgumentError, "manual_seed: got -9223372036854775809"),
    (
        lambda: flow.set_rng_state(flow.zeros(3)),
        ArgumentError,
        r"expected the uint8 tensor of shape \(16,\)",
    ),
    (lambda: Generator().set_state("x"), ArgumentError, "set_state"),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()
