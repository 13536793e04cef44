"""Random kernels leave the same arrays in the compiled mode, in the checked mode, and in the reference executor."""

import checks
import numpy as np
import pytest
from differential import MODES, disagreements, outcome, reference
from random_kernels import draw

from miniflow.hostcuda import cuda


def agree(seed, length):
    kernel = draw(seed, length)
    print(f"python tests/hostcuda/differential.py --seed {seed} --length {length} --reduce\n{kernel.text}")
    checks.count_comparison()
    found = disagreements(kernel)
    assert not found, f"seed {seed}, length {length}: {found}"


LONG = 7
"""Statements of a long kernel, which compiles for some 20 s; one of the short ones takes 4 s."""


RICH = (67, 150)  # short kernels with many of the CONSTRUCTS below


@pytest.mark.few(len(RICH))
@pytest.mark.parametrize("seed", [pytest.param(k, marks=() if k in RICH else pytest.mark.slow) for k in range(270)])
def test_fixed_seeds(seed):
    agree(seed, 1 + seed % 2 if seed % 13 else LONG)


@pytest.mark.slow
@pytest.mark.parametrize("position", range(30))
def test_fresh_seeds(position):
    agree(10**6 + checks.FRESH_SEED % 10**9 * 30 + position, 1 + position % 2 if position % 6 else LONG)


def test_a_wrong_result_would_be_seen():
    kernel = draw(1, 1)
    expected = reference(kernel)
    changed = [a.copy() if hasattr(a, "copy") else a for a in expected]
    changed[3].flat[-1] += 1
    assert outcome(kernel, expected, MODES["compiled"]) == ""
    assert "out[" in outcome(kernel, changed, MODES["compiled"])


@pytest.mark.parametrize("seed", [17576, 29831])  # with no limit for their indices, too deep for Python's stack
def test_indices_come_to_an_end(seed):
    assert np.isfinite(draw(seed, 2).arguments[3]).all()


CONSTRUCTS = """
while True:|break|continue|return|elif|else:|range(|-1)|syncthreads()|syncthreads_count|syncthreads_and|syncthreads_or
any_sync|all_sync|eq_sync|ballot_sync|match_any_sync|shfl_sync|shfl_up_sync|shfl_down_sync|shfl_xor_sync|popc
int8(|uint8(|int16(|uint16(|int32(|uint32(|np.uint64(|np.float32(h|np.float32(|np.float64(|//|%|<<|>>|int(z
rec[i].n|rec[i]['small']|la, lb = lb, la|s0, s1 = s1, s0|shared.array((2, |shared.array(0, |local.array|atomic.add
atomic.max|atomic.min|atomic.xor|exchanged(|helper(|tmp = |pair|gridsize|blockIdx.y| if | and | or |not |<= |.size
taken|whole.sync()|counters|2**60 + 1|np.float64(d)|d * d|d += |out[|+=|//=|>>=|^=|cuda.grid(1)|threadIdx.y
""".replace("\n", "|").split("|")


def test_the_generator_draws_what_users_write():
    text = "".join(draw(seed).text for seed in range(150))
    missing = [construct for construct in CONSTRUCTS if construct and construct not in text]
    assert missing == []
    assert cuda.is_host_executor
