"""add_to_output: golden texts, near misses, kernels, and results that stay but for the sign of zeros."""

import numpy as np
import pytest
from compare import assert_close
from op_classes import Add
from programs import ProgramBuilder, assert_same_results, assert_unchanged, op_names, random_program, recorded

import miniflow as flow
from miniflow.backends.registry import KERNELS
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.errors import IndexRangeError
from miniflow.graph.passes import add_to_output
from miniflow.ops.accumulate import EmbeddingAdd
from miniflow.ops.embedding import EmbeddingGrad

EXACT = {"exact": False, "rtol": 0, "atol": 0}  # -0 may become 0


def test_rows_are_added_to_a_table():
    b = ProgramBuilder()
    table, dy, indices = b.input(5, 4), b.input(2, 6, 4), b.input(2, 6, dtype="int64")
    grad = b(EmbeddingGrad, dy, indices, rows=5, padding_idx=1)
    before = b.build(b(Add, table, grad))
    after = assert_unchanged(before, add_to_output.run)
    assert op_names(after) == ["embedding_add"] and after.instructions[0].attrs == {"padding_idx": 1}
    assert_same_results(before, after, **EXACT)


def test_many_small_rows_are_not_lost_beside_a_large_total():
    total, dy = np.ones((4, 3), np.float32), np.full((100_000, 3), 1e-8, np.float32)
    for indices in (np.zeros(100_000, np.int64), np.arange(100_000) % 2):
        got = kernel_on(EmbeddingAdd, "cpu")(total, dy, indices, padding_idx=-1)
        grad = kernel_on(EmbeddingGrad, "cpu")(dy, indices, rows=4, padding_idx=-1)
        np.testing.assert_array_equal(got, total + grad)
        assert got[0, 0] > 1


def test_indices_of_rows_are_looked_at():
    for bad in (-1, 4):
        with pytest.raises(IndexRangeError, match="out of range for dim 0 of size 4"):
            EmbeddingAdd.infer(np.zeros((4, 3)), np.zeros((2, 3)), np.array([0, bad]), padding_idx=-1)


def test_rows_in_half_precision_stay():
    b = ProgramBuilder()
    table, dy, indices = (b.input(*shape, dtype=kind) for shape, kind in (((5, 4), "f2"), ((6, 4), "f2"), ((6,), "i8")))
    program = b.build(b(Add, table, b(EmbeddingGrad, dy, indices, rows=5, padding_idx=1)))
    assert add_to_output.run(program) is program


@pytest.mark.parametrize("also", ["read", "result", "awaited"])
def test_rows_that_are_needed_elsewhere_stay(also):
    b = ProgramBuilder()
    dy, indices, x = b.input(6, 4), b.input(6, dtype="int64"), b.input(5, 4)
    rows = b(EmbeddingGrad, dy, indices, rows=5, padding_idx=-1)
    total = b(Add, rows, x)
    if also == "awaited":
        b.after = rows
    other = rows if also == "result" else b(Add, x if also == "awaited" else rows, 1.0)
    program = b.build(total, other)
    assert add_to_output.run(program) is program


def test_a_term_that_is_broadcast_stays():
    b = ProgramBuilder()
    dy, indices = b.input(6, 4), b.input(6, dtype="int64")
    rows = [b(EmbeddingGrad, dy, indices, rows=5, padding_idx=-1) for _ in range(2)]
    program = b.build(b(Add, rows[0], b.input(4)), b(Add, rows[1], 2.0))
    assert add_to_output.run(program) is program


def test_the_kernel_leaves_its_inputs_alone_unless_it_is_given_their_memory():
    random = np.random.default_rng(0)
    total = random.normal(size=(5, 4)).astype(np.float32)
    rest = random.normal(size=(3, 4)).astype(np.float32), np.array([4, 0, 4])
    expected = total.copy()
    np.add.at(expected, rest[1], rest[0])
    old, into = total.copy(), KERNELS["cpu"]["EmbeddingAdd"]
    out = np.full_like(total, np.nan)
    into.run(out, total, *rest, padding_idx=-1)
    assert_close(out, expected)
    assert (total == old).all() and into.in_place == (0,)
    into.run(total, total, *rest, padding_idx=-1)
    assert_close(total, expected)


def test_a_tied_table_has_its_gradient_in_one_piece():
    table = flow.tensor(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32), requires_grad=True)
    indices = flow.tensor([0, 2, 2])

    def step(x):
        hidden = flow.nn.functional.embedding(indices, table) * x
        (hidden @ table.t()).exp().sum().backward()
        return table.grad

    before = recorded(step, (3, 4), states={"table": table, "indices": indices})
    after = assert_unchanged(before, add_to_output.run)
    assert "embedding_add" in op_names(after) and "embedding_grad" not in op_names(after)
    assert_same_results(before, after, **EXACT)


def test_results_of_random_programs_stay(seed):
    for number in range(8):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, add_to_output.run), **EXACT, special=True)
