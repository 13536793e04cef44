"""The ladders: every rung against NumPy in float64, what it reads and writes, its checks and its PTX."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_close
from kernel_cases import CAPABILITIES, ON_HOST, Case, compile_case, run_checked, spilled

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import __main__ as counted
from miniflow.kernels.ladders import convolution, layer_norm, matmul, pooling, reduction, softmax, transpose

pytestmark = pytest.mark.filterwarnings("ignore:argument . is a NumPy array")


def matrix_product(x, y):
    return x @ y


def correlation(x, weight, stride=1, padding=0):
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, weight.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncijab,ocab->noij", windows, weight)


def normalized(x, weight, bias, eps=1e-5):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) * weight + bias


def total(x):
    return x.sum(keepdims=True)


def probabilities(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def window_maxima(x, size=3, step=1):
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))[:, ::step, ::step]
    return windows.max((3, 4))


def transposed(x):
    return x.T


# ladder, its oracle in NumPy, and what it is tried on: shapes of arrays, then options
SAMPLES = [
    (transpose, transposed, [(1, 1)], {}),
    (transpose, transposed, [(33, 70)], {}),
    (transpose, transposed, [(96, 32)], {}),
    (matmul, matrix_product, [(1, 1), (1, 1)], {}),
    (matmul, matrix_product, [(15, 17), (17, 16)], {}),
    (matmul, matrix_product, [(65, 31), (31, 63)], {}),
    (matmul, matrix_product, [(5, 0), (0, 4)], {}),
    (matmul, matrix_product, [(129, 9), (9, 257)], {}),
    (convolution, correlation, [(1, 1, 1, 1), (1, 1, 1, 1)], {}),
    (convolution, correlation, [(2, 3, 7, 9), (5, 3, 3, 2)], {}),
    (convolution, correlation, [(3, 2, 8, 11), (65, 2, 3, 3)], {"stride": 2, "padding": 1}),
    (convolution, correlation, [(1, 5, 4, 6), (17, 5, 5, 5)], {"padding": 3}),
    (layer_norm, normalized, [(1, 1), (1,), (1,)], {"eps": 0.5}),
    (layer_norm, normalized, [(9, 31), (31,), (31,)], {}),
    (layer_norm, normalized, [(257, 33), (33,), (33,)], {}),
    (layer_norm, normalized, [(3, 1024), (1024,), (1024,)], {}),
    (reduction, total, [(1,)], {}),
    (reduction, total, [(255,)], {}),
    (reduction, total, [(257,)], {}),
    (reduction, total, [(513,)], {}),
    (reduction, total, [(16 * 256 + 1,)], {}),
    (softmax, probabilities, [(1, 1)], {}),
    (softmax, probabilities, [(7, 31)], {}),
    (softmax, probabilities, [(3, 33)], {}),
    (softmax, probabilities, [(2, 1000)], {}),
    (pooling, window_maxima, [(1, 3, 3)], {}),
    (pooling, window_maxima, [(3, 19, 35)], {}),
    (pooling, window_maxima, [(2, 37, 36)], {"size": 3, "step": 2}),
    (pooling, window_maxima, [(1, 50, 7)], {"size": 2, "step": 3}),
    (pooling, window_maxima, [(2, 18, 17)], {"size": 1, "step": 1}),
    (pooling, window_maxima, [(1, 40, 60)], {"size": 33, "step": 1}),
]


def name_of(ladder):
    return ladder.__name__.rpartition(".")[2]


def sample_name(sample):
    ladder, _, shapes, options = sample
    return " ".join([name_of(ladder), *map(str, shapes), *(f"{name}={value}" for name, value in options.items())])


def operands(shapes, kind=np.float32):
    draw = np.random.default_rng(0)
    return [draw.standard_normal(shape).astype(kind) for shape in shapes]


@pytest.mark.parametrize("kind", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("sample", SAMPLES, ids=sample_name)
def test_every_rung_computes_the_same(sample, kind):
    ladder, oracle, shapes, options = sample
    arrays = operands(shapes, kind)
    wanted = oracle(*[a.astype(np.float64) for a in arrays], **options).astype(kind)
    for name, rung in ladder.rungs(*arrays, **options).items():
        tolerance = 1e-4 if kind == np.float32 else 1e-11
        assert_close(rung.run(), wanted, rtol=tolerance, atol=tolerance, what=name)


def test_matrices_of_any_strides():
    x, y = operands([(20, 34), (18, 17)], np.float64)
    placed = cuda.to_device(x)[:, ::2], cuda.to_device(y).T
    for kernel in (matmul.naive, matmul.tiled):
        out = np.full((20, 18), np.nan)
        kernel[(2, 2), (matmul.TILE, matmul.TILE)](*placed, out)
        assert_close(out, x[:, ::2] @ y.T, what=kernel.py_func.__name__)


def test_softmax_of_large_and_of_infinite_numbers_and_of_nan():
    x = np.array([[1e4, -1e4, 9999.0], [-np.inf, 0.0, -np.inf], [1, np.nan, 2], [np.nan, 1, 2]], np.float32)
    x = np.concatenate([x, np.full((4, 40), -5, np.float32)], 1)
    for name, rung in softmax.rungs(x).items():
        assert_close(rung.run(), probabilities(x.astype(np.float64)).astype(np.float32), what=name)


THREADS_OF_GRID = reduction.GRID * 256
HALO = (18 / 16) ** 2  # of windows of 3 x 3 with step 1

# ladder -> rung -> reads, writes and atomics of an element, on the example that the ladders' __main__ shows
COUNTS = {
    "transpose": {"naive": (1, 1, 0), "tiled": (1, 1, 0), "padded": (1, 1, 0)},
    "matmul": {
        "naive": (2 * 64, 1, 0),
        "tiled": (2 * 64 / 16, 1, 0),
        "register_tiled": (2 * 64 / 64, 1, 0),
        "register_square": (2 * 64 / 128, 1, 0),
    },
    "convolution": {"direct": (2 * 144, 1, 0), "im2col_tiled": (2 * 144 / 16, 1, 0), "convolve": (2 * 144 / 64, 1, 0)},
    "layer_norm": {
        "thread_rows": (5, 1, 0),
        "tree_rows": (5, 1, 0),
        "warp_rows": (3, 1 + 2 / 256, 0),
        "cached_rows": (3, 1 + 2 / 256, 0),
    },
    "reduction": {
        "atomic_sum": (1, 0, 1),
        "divergent_sum": (1, 0, 1 / 256),
        "strided_sum": (1, 0, 1 / 256),
        "tree_sum": (1, 0, 1 / 256),
        "first_add_sum": (1, 0, 1 / 512),
        "shuffle_sum": (1, 0, THREADS_OF_GRID / 32 / 65536),
        "grid_sum": (1 + reduction.GRID / 65536, (reduction.GRID + 1) / 65536, 0),
    },
    "softmax": {"three_passes": (3, 1, 0), "online": (2, 1, 0), "cached_softmax_rows": (1, 1, 0)},
    "pooling": {"max_pool": (9, 2, 0), "tiled": (HALO, 1, 0), "separable": (HALO, 1, 0)},
}
on_host = pytest.mark.skipif(
    not ON_HOST, reason="accesses are counted by the checked executor, which belongs to the host"
)


@on_host
@pytest.mark.parametrize("name", COUNTS)
def test_what_each_rung_reads_and_writes(name):
    """As its file says, for an element; the checks find nothing."""
    found = {
        rung: (total.global_loads / count, total.global_stores / count, total.atomics / count)
        for rung, count, total, _ in counted.counts(name)
    }
    assert found == COUNTS[name]


@on_host
def test_reads_are_coalesced_from_the_second_rung_of_layer_norm_on():
    sectors = {rung: total.sectors / total.ideal_sectors for rung, _, total, _ in counted.counts("layer_norm")}
    assert sectors.pop("thread_rows") > 4
    assert max(sectors.values()) == 1


@on_host
def test_writes_of_a_transpose_are_coalesced_and_a_padded_tile_has_no_conflicts():
    found = {
        rung: (total.sectors / total.global_requests, total.worst_conflict)
        for rung, _, total, _ in counted.counts("transpose")
    }
    assert found == {"naive": ((4 + 32) / 2, 1), "tiled": (4, 32), "padded": (4, 1)}


@on_host
def test_divergence_and_conflicts_of_the_trees():
    """Requests of warps for each block, and the worst conflict: 8 warps write 256 numbers, one reads the sum; in each
    step a warp that works reads twice and writes once."""
    found = {
        rung: (total.shared_requests / 256, total.worst_conflict) for rung, _, total, _ in counted.counts("reduction")
    }
    warps = {"divergent_sum": [8, 8, 8, 8, 8, 4, 2, 1], "strided_sum": [4, 2, 1, 1, 1, 1, 1, 1]}
    wanted = {rung: 8 + 1 + 3 * sum(of_steps) for rung, of_steps in warps.items()}
    assert found["divergent_sum"] == (wanted["divergent_sum"], 1)
    assert found["strided_sum"] == (wanted["strided_sum"], 8)
    assert found["tree_sum"] == (wanted["strided_sum"], 1)
    assert found["first_add_sum"] == (wanted["strided_sum"] / 2, 1)


@on_host
def test_what_products_read_from_shared_memory_and_its_conflicts():
    """The threads of a warp need the same rows, and read them once for all."""
    found = {
        rung: (total.shared_loads / elements / 64, total.worst_conflict)
        for rung, elements, total, _ in counted.counts("matmul")
    }
    assert found == {
        "naive": (0, 1), "tiled": (2, 1), "register_tiled": (10 / 16, 2), "register_square": (16 / 64, 1),
    }  # fmt: skip


@on_host
def test_the_table_that_is_printed():
    head, *rows = counted.table("pooling").splitlines()
    assert head.split() == ["pooling,", "for", "each", "output", *" ".join(counted.TITLES).split()]
    assert [row.split()[:5] + row.split()[8:] for row in rows] == [
        ["max_pool", "9", "2", "0", "0", "0"],
        ["tiled", "1.266", "1", "0", "9", "0"],
        ["separable", "1.266", "1", "0", "6.375", "0"],
    ]


def case(sample, rung):
    ladder, _, shapes, options = sample
    made = ladder.rungs(*operands(shapes), **options)[rung]
    fresh = lambda: ladder.rungs(*operands(shapes), **options)[rung].arguments  # noqa: E731
    return Case(f"{rung}, {sample_name(sample)}", made.kernel, fresh, made.grid, made.block, made.shared, 1e-4)


RAGGED = [next(s for s in SAMPLES if name_of(s[0]) == name and max(s[2][0]) > 1) for name in COUNTS]  # one of each
CASES = [case(sample, rung) for sample in RAGGED for rung in COUNTS[name_of(sample[0])]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert spilled(compile_case(case, cc)) == []  # sums and elements of rows are in registers
