"""layout: golden texts, near misses, and results of random programs that stay."""

import pytest
from op_classes import Add, Neg
from programs import ProgramBuilder, assert_same_results, assert_unchanged, random_program

import miniflow as flow
from miniflow.graph.ir import Program, Slot
from miniflow.graph.passes import dead_code, layout
from miniflow.graph.uses import Uses
from miniflow.ops.matmul import Matmul
from miniflow.ops.permute import Permute, Transpose
from miniflow.ops.shape import Clone, Expand, View
from miniflow.ops.views import Slice


def simplified(b: ProgramBuilder, *outputs: Slot) -> Program:
    """The program after the pass and without dead code, held against the one before."""
    before = b.build(*outputs)
    after = dead_code.run(assert_unchanged(before, layout.run))
    assert_same_results(before, after, special=True)
    return after


IDENTITIES = {
    "two transposes": lambda b, x: b(Transpose, b(Transpose, x, dim0=0, dim1=-1), dim0=2, dim1=0),
    "permutations": lambda b, x: b(Permute, b(Permute, x, dims=(2, 0, 1)), dims=(1, -1, 0)),
    "a transpose of a permutation": lambda b, x: b(Transpose, b(Permute, x, dims=(1, 0, 2)), dim0=0, dim1=1),
    "a dim with itself": lambda b, x: b(Transpose, x, dim0=1, dim1=1),
    "reshaped and back": lambda b, x: b(View, b(View, b(View, x, shape=(6, 4)), shape=(-1,)), shape=(2, 3, 4)),
    "expanded to its shape": lambda b, x: b(Expand, x, shape=(2, 3, 4)),
    "copies of what is row-major": lambda b, x: b(Clone, b(Clone, x)),
    "a slice of everything": lambda b, x: b(Slice, x, index=(slice(None), ...)),
}


@pytest.mark.parametrize("rule", IDENTITIES)
def test_what_cancels_is_dropped(rule):
    b = ProgramBuilder()
    x = b.input(2, 3, 4)
    after = simplified(b, IDENTITIES[rule](b, x))
    assert after.instructions == [] and after.outputs == [x]


NEAR_MISSES = {
    "a copy into row-major order": lambda b, x: b(Clone, b(Transpose, x, dim0=0, dim1=1)),
    "a reshape of such a copy": lambda b, x: b(View, b(Clone, b(Transpose, x, dim0=0, dim1=1)), shape=(24,)),
    "a slice in steps": lambda b, x: b(Slice, x, index=(slice(None, None, -1), ...)),
    "a part": lambda b, x: b(Slice, x, index=(slice(1, None), ...)),
    "another permutation than the inverse": lambda b, x: b(
        Transpose, b(Neg, b(Permute, x, dims=(1, 2, 0))), dim0=0, dim1=1
    ),
    "a transpose that several read": lambda b, x: b(Add, b(Neg, b(Transpose, x, dim0=0, dim1=1)), 1.0),
}


@pytest.mark.parametrize("rule", NEAR_MISSES)
def test_what_does_not_cancel_stays(rule):
    b = ProgramBuilder()
    program = b.build(NEAR_MISSES[rule](b, b.input(2, 3, 4)))
    assert layout.run(program) is program


def test_equal_sizes_do_not_hide_a_transpose():
    b = ProgramBuilder()
    program = b.build(b(Transpose, b.input(3, 3), dim0=0, dim1=1), b(Permute, b.input(1, 1), dims=(1, 0)))
    assert layout.run(program) is program


def test_products_read_transposed_operands():
    b = ProgramBuilder()
    x, y = b.input(5, 2, 3), b.input(5, 2, 3)
    transposed = b(Transpose, x, dim0=-1, dim1=-2), b(Permute, y, dims=(0, 2, 1))
    one = b(Matmul, transposed[0], y, transpose_x=False, transpose_y=False)
    other = b(Matmul, x, transposed[1], transpose_x=True, transpose_y=True)
    batches = b(Permute, y, dims=(1, 0, 2))
    before = b.build(one, other, b(Matmul, batches, batches, transpose_x=True, transpose_y=False))
    after = dead_code.run(assert_unchanged(before, layout.run))
    assert str(after) == (
        "program:\n"
        "  %0:f32[5, 2, 3] = input input.0\n"
        "  %1:f32[5, 2, 3] = input input.1\n"
        "  %2:f32[5, 3, 3] = matmul(%0, %1, transpose_x=True, transpose_y=False)\n"
        "  %3:f32[5, 3, 3] = matmul(%0, %1, transpose_x=True, transpose_y=False)\n"
        "  %4:f32[2, 5, 3] = permute(%1, dims=(1, 0, 2))\n"
        "  %5:f32[2, 3, 3] = matmul(%4, %4, transpose_x=True, transpose_y=False)\n"
        "  return %2, %3, %5"
    )
    assert_same_results(before, after, special=True)


def test_strides_follow_views_states_and_updates():
    b = ProgramBuilder()
    x, s = b.input(3, 4), b.state(4, 3)
    b.program.tensors[s] = flow.zeros(3, 4).t()
    transposed = b(Transpose, x, dim0=0, dim1=1)
    back = b(Transpose, transposed, dim0=0, dim1=1)
    uses = Uses(b.build(back, s))
    assert [uses.layout(slot).flags.c_contiguous for slot in (x, s, transposed, back)] == [True, False, False, True]
    assert uses.same_layout(x, back) and uses.same_layout(s, transposed) and not uses.same_layout(x, transposed)


def test_results_of_random_programs_stay(seed):
    for number in range(12):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, layout.run), special=True)
