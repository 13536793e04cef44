"""`kernels.sparse`, and the ops of `optim.sparse` on both devices."""

import numpy as np
import pytest
from both import on_device
from compare import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

import miniflow.backends.cuda  # noqa: F401  (registers the kernels)
from miniflow.backends.cpu.sparse import hash_table_size
from miniflow.backends.cuda.rows import cover
from miniflow.backends.registry import KERNELS
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.kernels.sparse import SPREAD, add_to_owners, find_owners, put_rows
from miniflow.ops.embedding import EmbeddingGrad
from miniflow.optim.sparse import GroupRows

COUNTS = [1, 2, 31, 255, 256, 257]


def values(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def indices(count, rows, dtype=np.int64):
    return np.random.default_rng([count, rows]).integers(0, rows, count).astype(dtype)


def hash_table(count):
    return np.full(hash_table_size(count), count, np.int64)


def expected(dy, index, padding=-1):
    """Rows and values in float64, as `GroupRows` has them."""
    rows, sums = np.full(index.size, -1), np.zeros(dy.shape)
    for p, row in enumerate(index):
        if row >= 0 and row != padding:
            first = int(np.flatnonzero(index == row)[0])
            rows[first] = row
            sums[first] += dy[p]
    return rows, sums


@pytest.mark.parametrize("table_rows", [1, 3, 10_000_000])
@pytest.mark.parametrize("count", COUNTS)
def test_owners_are_the_first_positions(count, table_rows):
    index, table, places = indices(count, table_rows), hash_table(count), np.full(count, 77)
    find_owners[-(-count // 64), 64](index, -1, table, places)
    first = [int(np.flatnonzero(index == row)[0]) for row in index]
    np.testing.assert_array_equal(table[places], first)
    assert (table != count).sum() == np.unique(index).size


def test_rows_that_meet_in_the_hash_table():
    """All rows that the spreading sends to one place of 128, and the last place: the search goes on at the start."""
    count = 64
    table = hash_table(count)
    rows = np.arange(100_000)
    places = rows * SPREAD
    places = (places ^ (places >> 32)) & (table.size - 1)
    index = rows[places == table.size - 1][:count]
    assert index.size == count
    found = np.full(count, 77)
    find_owners[1, 64](index, -1, table, found)
    np.testing.assert_array_equal(table[found], np.arange(count))
    for device in ("cpu", "cuda"):
        dy = values(count, 3)
        given = (dy, index) if device == "cpu" else (on_device(dy), on_device(index))
        results = kernel_on(GroupRows, device)(*given, padding_idx=-1, rows=None)
        got = [x if device == "cpu" else x.numpy() for x in results]
        np.testing.assert_array_equal(got[0], index)
        np.testing.assert_array_equal(got[1], dy)


@pytest.mark.parametrize("width", [1, 7, 257])
@pytest.mark.parametrize("padding", [-1, 2])
def test_sums_go_to_owners(width, padding):
    count = 70
    dy, index, table = values(count, width), indices(count, 9), hash_table(count)
    index[5] = -1
    places, rows, sums = np.full(count, 77), np.full(count, -1), np.zeros((count, width), np.float32)
    find_owners[2, 64](index, padding, table, places)
    grid, block = cover((1, count, width))
    add_to_owners[grid, block](dy, index, table, places, rows, sums)
    want_rows, want = expected(dy, index, padding)
    np.testing.assert_array_equal(rows, want_rows)
    np.testing.assert_allclose(sums, want, rtol=1e-5, atol=1e-5)


def test_rows_are_put_back():
    table, source, rows = np.full((6, 5), np.nan, np.float32), values(4, 5), np.array([3, -1, 0, 6])
    grid, block = cover((1, 4, 5))
    put_rows[grid, block](source, rows, table)
    np.testing.assert_array_equal(table[[3, 0]], source[[0, 2]])
    assert np.isnan(table[[1, 2, 4, 5]]).all()


@pytest.mark.parametrize("shape", [(), (0,), (9,), (3, 20)], ids=str)
@pytest.mark.parametrize("index_type", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_group_rows(shape, index_type, dtype):
    index = np.asarray(indices(int(np.prod(shape)), 6).reshape(shape), index_type)
    dy = values(*shape, 5, dtype=dtype)
    want_rows, want = expected(dy.reshape(-1, 5), index.reshape(-1).astype(np.int64), 2)
    rows, sums = kernel_on(GroupRows, "cpu")(dy, index, padding_idx=2, rows=None)
    assert_same(rows, want_rows)
    assert_close(sums, want.astype(dtype))
    for layout in ("contiguous", "strided"):
        given = on_device(dy, layout), on_device(index, layout)
        on_cuda = kernel_on(GroupRows, "cuda")(*given, padding_idx=2, rows=None)
        assert_same(on_cuda[0].numpy(), rows)
        assert_close(on_cuda[1].numpy(), sums)


def test_the_sums_are_those_of_the_dense_gradient_to_the_bit():
    dy, index = values(5000, 16), indices(5000, 40)
    rows, sums = kernel_on(GroupRows, "cpu")(dy, index, padding_idx=-1, rows=None)
    dense = kernel_on(EmbeddingGrad, "cpu")(dy, index, rows=40, padding_idx=-1)
    np.testing.assert_array_equal(sums[rows >= 0], dense[rows[rows >= 0]])


# updates

RULES = {
    "SgdUpdate": (1, {"fresh": [False, True]}, {"momentum": 0.9, "dampening": 0.1, "nesterov": True}),
    "AdamUpdate": (3, {"steps": [3, 1]}, {
        "betas": (0.9, 0.99), "eps": 1e-3, "decoupled_weight_decay": False, "amsgrad": True, "do_bias_correction": True,
    }),
    "AdagradUpdate": (1, {"steps": [3, 1]}, {"lr_decay": 0.1, "eps": 1e-3}),
}  # fmt: skip


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("rule", RULES)
def test_touched_rows_are_updated_as_by_the_rule_and_others_stay(rule, dtype, layout):
    states, own, options = RULES[rule]
    options = {**options, **own, "lr": 0.1, "weight_decay": 0.0, "maximize": False}
    state_type = np.float32 if dtype == np.float16 else dtype
    kinds = [dtype, *[state_type] * states]
    tables = [[abs(values(9, 5, seed=k + 10 * t, dtype=kind)) for t in range(2)] for k, kind in enumerate(kinds)]
    rows = [np.array([4, -1, 0, 8]), np.array([-1, 2])]
    gradients = [np.where(r[:, None] >= 0, values(r.size, 5, seed=99, dtype=dtype), dtype(0)) for r in rows]
    dense = [np.zeros((9, 5), dtype) for _ in rows]
    for whole, r, g in zip(dense, rows, gradients, strict=True):
        whole[r[r >= 0]] = g[r >= 0]
    want = [[x.copy() for x in group] for group in tables]
    KERNELS["cpu"][rule].run(want[0], dense, *want[1:], **options)
    for device in ("cpu", "cuda"):
        place = (lambda x: x.copy()) if device == "cpu" else (lambda x: on_device(x, layout))
        got = [[place(x) for x in group] for group in tables]
        given = [[x if device == "cpu" else on_device(x) for x in group] for group in (gradients, rows)]
        KERNELS[device][f"Sparse{rule}"].run(got[0], given[0], *got[1:], given[1], **options)
        for group, expected_group, before in zip(got, want, tables, strict=True):
            for x, w, old, r in zip(group, expected_group, before, rows, strict=True):
                x = x if device == "cpu" else x.numpy()
                touched = r[r >= 0]
                (assert_same if device == "cpu" else assert_close)(x[touched], w[touched])
                assert_same(np.delete(x, touched, 0), np.delete(old, touched, 0))


def owned():
    """The arguments of `add_to_owners` for five positions of three rows."""
    index, table, places = np.array([3, 0, 3, 1, 1]), hash_table(5), np.zeros(5, np.int64)
    find_owners[1, 8](index, 1, table, places)
    return [values(5, 3), index, table, places, np.full(5, -1), np.zeros((5, 3), np.float32)]


CASES = [
    Case("find owners", find_owners, lambda: [indices(40, 9), 3, hash_table(40), np.full(40, 77)], 2, 32),
    Case("add to owners", add_to_owners, owned, (1, 3), (4, 2)),
    Case("put rows", put_rows, lambda: [values(3, 3), np.array([3, -1, 0]), np.full((4, 3), np.nan, np.float32)],
         (1, 2), (4, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_checks(case):
    run_checked(case)


def test_checks_of_finding_owners():
    """Which place a row gets may depend on the order of the threads, its owner does not."""
    from kernel_cases import ON_HOST

    if not ON_HOST:
        pytest.skip("the checks belong to the host executor")
    from miniflow.hostcuda import check

    index, padding, table, places = CASES[0].arguments()
    check.launch(find_owners, [index, padding, table, places], 2, 32, 0)
    assert (places == -1).sum() == (index == 3).sum() > 0
    for p in np.flatnonzero(places >= 0):
        assert table[places[p]] == np.flatnonzero(index == index[p])[0]


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
