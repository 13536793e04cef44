"""Worlds of simulated ranks for the tests."""

import pytest

import miniflow as flow


@pytest.fixture
def four_ranks():
    flow.parallel.simulate(4)
    yield flow.placement.all("cpu")
    flow.parallel.simulate(1)
