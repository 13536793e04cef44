"""layout: golden texts, near misses, and results of random programs that stay."""

import pytest
from op_classes import Add, Gelu, GeluGrad, Mul, Neg
from programs import ProgramBuilder, assert_same_results, assert_unchanged, of_model, op_names, random_program

import miniflow as flow
from miniflow.graph.ir import Program, Slot
from miniflow.graph.passes import algebraic, dead_code, layout
from miniflow.graph.strides import Strides
from miniflow.ops.dropout import Dropout
from miniflow.ops.joining import Cat
from miniflow.ops.matmul import Linear, Matmul
from miniflow.ops.normalization import LayerNorm, LayerNormGrad
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


def test_reshapes_move_behind_elementwise_ops():
    b = ProgramBuilder()
    x, dy, bias = b.input(6, 4), b.input(6, 4), b.input(4)
    wide, cotangent = (b(View, slot, shape=(2, 3, 4)) for slot in (x, dy))
    y = b(Mul, b(Add, b(Gelu, wide, approximate="none"), bias), 2.0)
    z, keep = b.draw(Dropout, y, p=0.5)
    dx = b(GeluGrad, cotangent, wide, approximate="none")
    before = b.build(*(b(View, slot, shape=(6, 4)) for slot in (z, keep, dx)))
    after = dead_code.run(assert_unchanged(before, layout.run))
    assert str(after) == (
        "program:\n"
        "  %0:f32[6, 4] = input input.0\n"
        "  %1:f32[6, 4] = input input.1\n"
        "  %2:f32[4] = input input.2\n"
        "  %3:f32[6, 4] = gelu(%0, approximate='none')\n"
        "  %4:f32[6, 4] = add(%3, %2)\n"
        "  %5:f32[6, 4] = mul(%4, 2.0)\n"
        "  %6:f32[6, 4], %7:bool[6, 4] = dropout(%5, p=0.5, seed=<draw.0.seed>, offset=<draw.0.offset>)\n"
        "  %8:f32[6, 4] = gelu_grad(%1, %0, approximate='none')\n"
        "  return %6, %7, %8"
    )
    assert_same_results(before, after, special=True)


def test_a_reshape_stays_before_an_operand_that_broadcasts_otherwise():
    b = ProgramBuilder()
    x, row = b.input(6, 4), b.input(3, 4)
    program = b.build(b(Add, b(View, x, shape=(2, 3, 4)), row))
    assert layout.run(program) is program


def test_reshapes_of_different_shapes_stay():
    b = ProgramBuilder()
    x, y = b(View, b.input(6, 4), shape=(2, 3, 4)), b(View, b.input(24), shape=(2, 3, 4))
    program = b.build(b(Add, x, y))
    assert layout.run(program) is program


def test_transposes_cancel_across_elementwise_ops():
    b = ProgramBuilder()
    x, y = b.input(2, 3), b.input(2, 3)
    transposed = [b(Transpose, slot, dim0=0, dim1=1) for slot in (x, y)]
    after = simplified(b, b(Permute, b(Mul, *transposed), dims=(1, 0)))
    assert op_names(after) == ["mul"]


def test_a_transpose_stays_before_what_draws_in_the_order_of_memory():
    b = ProgramBuilder()
    y, _ = b.draw(Dropout, b(Transpose, b.input(2, 3), dim0=0, dim1=1), p=0.5)
    program = b.build(b(Transpose, y, dim0=0, dim1=1))
    assert layout.run(program) is program


def test_linear_layers_of_three_dims_need_no_views():
    model = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.GELU(), flow.nn.Dropout(0.5), flow.nn.Linear(8, 4))
    before = of_model(model, (2, 5, 4))
    after = dead_code.run(layout.run(algebraic.run(before)))
    assert op_names(before).count("view") == 0 and op_names(after).count("view") == 0
    gelu = next(i for i in after.instructions if i.op is Gelu)
    assert after.producers()[gelu.inputs[0]].op is Linear
    assert_same_results(before, after)


def test_a_residual_is_viewed_as_rows_beside_rows():
    b = ProgramBuilder()
    x, rows = b.input(2, 3, 4), b.input(6, 4)
    total = b(Add, x, b(View, rows, shape=(2, 3, 4)))
    y, mean, rstd = b(LayerNorm, total, None, None, dims=1, eps=1e-5)
    after = simplified(b, b(View, b(Add, total, y), shape=(6, 4)), mean, rstd)
    assert str(after) == (
        "program:\n"
        "  %0:f32[2, 3, 4] = input input.0\n"
        "  %1:f32[6, 4] = input input.1\n"
        "  %2:f32[6, 4] = view(%0, shape=(6, 4))\n"
        "  %3:f32[6, 4] = add(%2, %1)\n"
        "  %4:f32[6, 4], %5:f64[6], %6:f64[6] = layer_norm(%3, None, None, dims=1, eps=1e-05)\n"
        "  %7:f64[2, 3] = view(%5, shape=(2, 3))\n"
        "  %8:f64[2, 3] = view(%6, shape=(2, 3))\n"
        "  %9:f32[6, 4] = add(%3, %4)\n"
        "  return %9, %7, %8"
    )


def test_rows_are_not_viewed_as_more_dims_nor_torn_from_their_elementwise_op():
    b = ProgramBuilder()
    x, rows = b.input(2, 3, 4), b.input(6, 4)
    flat = b(Add, b(View, x, shape=(6, 4)), rows)
    program = b.build(flat, b(Add, b(Neg, x), b(View, rows, shape=(2, 3, 4))))
    assert layout.run(program) is program


def test_layer_norm_over_dims_that_are_viewed_away_stays():
    b = ProgramBuilder()
    x = b(View, b.input(2, 12), shape=(2, 3, 4))
    dy = b(View, b.input(2, 12), shape=(2, 3, 4))
    _, mean, rstd = outputs = b(LayerNorm, x, None, None, dims=1, eps=1e-5)
    program = b.build(*outputs, *b(LayerNormGrad, dy, x, None, mean, rstd, dims=1))
    assert layout.run(program) is program


@pytest.mark.parametrize("before, moves", [((12, 4), False), ((2, 2, 3, 4), True)])
def test_views_of_dims_that_have_parameters_stay_before_layer_norm(before, moves):
    b = ProgramBuilder()
    x, weight = b(View, b.input(*before), shape=(4, 3, 4)), b.input(3, 1)
    y, mean, rstd = b(LayerNorm, x, weight, None, dims=1, eps=1e-5)
    norm = next(i for i in layout.run(b.build(y, mean, rstd)).instructions if i.op is LayerNorm)
    assert norm.inputs[0].shape == (before if moves else (4, 3, 4))


def test_gradients_of_layer_norm_work_on_rows():
    b = ProgramBuilder()
    x, dy = (b(View, b.input(6, 4), shape=(2, 3, 4)) for _ in range(2))
    _, mean, rstd = b(LayerNorm, x, None, None, dims=1, eps=1e-5)
    dx, dweight, _ = b(LayerNormGrad, dy, x, None, mean, rstd, dims=1)
    after = simplified(b, b(View, dx, shape=(6, 4)), dweight)
    assert op_names(after) == ["layer_norm", "layer_norm_grad"]


def test_heads_are_joined_without_copies():
    b = ProgramBuilder()
    parts = [b(Transpose, b.input(2, heads, 5, 3), dim0=1, dim1=2) for heads in (4, 4, 2)]
    rows = [b(View, b(Clone, x), shape=(2, 5, x.shape[2] * 3)) for x in parts]
    after = simplified(b, b(View, b(Cat, *rows, dim=2, sizes=(12, 12, 6)), shape=(10, 30)))
    assert op_names(after) == ["transpose"] * 3 + ["cat", "view"]
    assert after.instructions[3].attrs == {"dim": 2, "sizes": (4, 4, 2)}


def test_parts_that_end_otherwise_are_joined_as_they_are():
    b = ProgramBuilder()
    views = b(View, b.input(2, 3, 4), shape=(2, 12)), b(View, b.input(2, 4, 3), shape=(2, 12))
    other = b(View, b.input(3, 4), shape=(12,))
    program = b.build(b(Cat, *views, dim=1, sizes=(12, 12)), b(Cat, other, b.input(2), dim=0, sizes=(12, 2)))
    assert layout.run(program) is program


def test_strides_follow_views_states_and_updates():
    b = ProgramBuilder()
    x, s = b.input(3, 4), b.state(4, 3)
    b.program.tensors[s] = flow.zeros(3, 4).t()
    transposed = b(Transpose, x, dim0=0, dim1=1)
    back = b(Transpose, transposed, dim0=0, dim1=1)
    strides = Strides(b.build(back, s))
    assert [strides.row_major(slot) for slot in (x, s, transposed, back)] == [True, False, False, True]
    assert strides.same(x, back) and strides.same(s, transposed) and not strides.same(x, transposed)


def test_results_of_random_programs_stay(seed):
    for number in range(12):
        before = random_program(seed + number)
        assert_same_results(before, assert_unchanged(before, layout.run), special=True)
