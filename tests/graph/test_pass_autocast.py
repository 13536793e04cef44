"""autocast: golden texts, which instructions it puts in half precision, and where it casts."""

import re

import numpy as np
import pytest
from mixed_precision import BF16, F16, UNIT, assert_same_runs, casted, in_half, relative_error
from op_classes import Add, Exp, Gelu, Maximum, Mul, Relu
from programs import ProgramBuilder, op_names, recorded, with_gradients

import miniflow as flow
from miniflow import nn
from miniflow.graph.ir import BACKWARD, FORWARD, UPDATE
from miniflow.graph.trace import active
from miniflow.ops.embedding import Embedding
from miniflow.ops.joining import Cat
from miniflow.ops.loss_scale import AmpBlackIdentity
from miniflow.ops.losses import CrossEntropy
from miniflow.ops.matmul import Linear, Matmul
from miniflow.ops.normalization import BatchNormInference
from miniflow.ops.promotion import Cast
from miniflow.ops.reduction import Mean, Sum
from miniflow.ops.shape import View
from miniflow.ops.softmax import Softmax

PLAIN = {"transpose_x": False, "transpose_y": False}


# what is cast


def test_inference():
    b = ProgramBuilder()
    x, w, bias, v = b.input(3, 4), b.parameter(5, 4), b.parameter(5), b.parameter(5, 5)
    b.scope, b.location = "fc", "train.py:7"
    y = b(Gelu, b(Linear, x, w, bias), approximate="none")
    b.scope, b.location = "head", "train.py:8"
    z = b(Matmul, y, v, **PLAIN)
    b.scope, b.location = "", "train.py:9"
    before = b.build(b(Softmax, z, dim=1), b(Exp, y))
    assert str(casted(before)) == (
        "program:\n"
        "  %0:f32[3, 4] = input input.0\n"
        "  %1:f32[5, 4] = parameter parameter.0\n"
        "  %2:f32[5] = parameter parameter.1\n"
        "  %3:f32[5, 5] = parameter parameter.2\n"
        "  %4:f16[3, 4] = cast(%0, dtype=float16)                                  # fc  train.py:7\n"
        "  %5:f16[5, 4] = cast(%1, dtype=float16)                                  # fc  train.py:7\n"
        "  %6:f16[5] = cast(%2, dtype=float16)                                     # fc  train.py:7\n"
        "  %7:f16[3, 5] = linear(%4, %5, %6)                                       # fc  train.py:7\n"
        "  %8:f16[3, 5] = gelu(%7, approximate='none')                             # fc  train.py:7\n"
        "  %9:f16[5, 5] = cast(%3, dtype=float16)                                  # head  train.py:8\n"
        "  %10:f16[3, 5] = matmul(%8, %9, transpose_x=False, transpose_y=False)    # head  train.py:8\n"
        "  %11:f16[3, 5] = softmax(%10, dim=1)                                     # train.py:9\n"
        "  %12:f32[3, 5] = cast(%8, dtype=float32)                                 # train.py:9\n"
        "  %13:f32[3, 5] = exp(%12)                                                # train.py:9\n"
        "  %14:f32[3, 5] = cast(%11, dtype=float32)                                # train.py:9\n"
        "  return %14, %13"
    )


def test_training_step():
    w, v = (flow.ones(*shape, requires_grad=True) for shape in ((2, 3), (2, 2)))
    optimizer = flow.optim.SGD([w, v], lr=0.5)

    def step(x, y):
        loss = nn.functional.mse_loss(flow.relu(x @ w.mT) @ v, y)
        loss.backward()
        with active().updating("optimizer.0"):
            optimizer.step()
        return loss

    before = recorded(step, (4, 3), (4, 2), states={"w": w, "v": v})
    assert [re.split("  #|, lr=", line)[0].strip() for line in str(casted(before, BF16)).splitlines()] == [
        "program:",
        "%0:f32[4, 3] = input input.0",
        "%1:f32[4, 2] = input input.1",
        "%2:f32[2, 3] = parameter w",
        "%3:f32[2, 2] = parameter v",
        "%4:f32[] = constant 1.",
        "%5:bf16[2, 3] = cast(%2, dtype=bfloat16)",
        "%6:bf16[3, 2] = transpose(%5, dim0=-2, dim1=-1)",
        "%7:bf16[4, 3] = cast(%0, dtype=bfloat16)",
        "%8:bf16[4, 2] = matmul(%7, %6, transpose_x=False, transpose_y=False)",
        "%9:bf16[4, 2] = relu(%8)",
        "%10:bf16[2, 2] = cast(%3, dtype=bfloat16)",
        "%11:bf16[4, 2] = matmul(%9, %10, transpose_x=False, transpose_y=False)",
        "%12:f32[4, 2] = cast(%11, dtype=float32)",
        "%13:f32[4, 2] = sub(%12, %1)",  # the loss in float32
        "%14:f32[4, 2] = mul(%13, %13)",
        "%15:f32[] = mean(%14, dim=None, keepdim=False)",
        "%16:f32[] = div(%4, 8.0)",
        "%17:f32[4, 2] = expand(%16, shape=(4, 2))",
        "%18:f32[4, 2] = mul(%17, %13)",
        "%19:f32[4, 2] = mul(%17, %13)",
        "%20:f32[4, 2] = add(%18, %19)",
        "%21:bf16[4, 2] = cast(%20, dtype=bfloat16)",
        "%22:bf16[4, 2] = matmul(%21, %10, transpose_x=False, transpose_y=True)",
        "%23:bf16[2, 2] = matmul(%9, %21, transpose_x=True, transpose_y=False)",
        "%24:f32[2, 2] = cast(%23, dtype=float32)",
        "%25:bf16[4, 2] = relu_grad(%22, %9)",
        "%26:bf16[3, 2] = matmul(%7, %25, transpose_x=True, transpose_y=False)",
        "%27:bf16[2, 3] = transpose(%26, dim0=-2, dim1=-1)",
        "%28:f32[2, 3] = cast(%27, dtype=float32)",
        "%29:f32[2, 3] = sgd_update(%2, %28, None",
        "%30:f32[2, 2] = sgd_update(%3, %24, None",
        "write w <- %29",
        "write v <- %30",
        "return %15",
    ]


def test_casts_take_the_place_of_the_reader():
    b = ProgramBuilder()
    x = b.input(3, 3)
    b.scope, b.location = "first", "a.py:1"
    y = b(Matmul, x, x, **PLAIN)
    b.scope, b.location, b.phase = "second", "a.py:2", BACKWARD
    after = casted(b.build(b(Exp, y)))
    first, _, second, _ = after.instructions
    assert (first.op, first.scope, first.location, first.phase) == (Cast, "first", "a.py:1", FORWARD)
    assert (second.op, second.scope, second.location, second.phase) == (Cast, "second", "a.py:2", BACKWARD)


def test_gradients_are_float32_where_they_are_made():
    """So that gradient accumulation adds them up in float32."""
    b = ProgramBuilder()
    x, w = b.input(3, 3), b.parameter(3, 3)
    b.scope, b.location, b.phase = "fc", "a.py:1", BACKWARD
    gradient, _ = b(Matmul, x, w, **PLAIN), b(Matmul, w, x, **PLAIN)
    b.scope, b.location, b.phase = "optimizer.0", "a.py:2", UPDATE
    b.write(w, b(Mul, gradient, gradient))
    after = casted(b.build())
    assert op_names(after) == ["cast", "cast", "matmul", "cast", "matmul", "mul"]
    cast = after.instructions[3]
    assert (cast.output, cast.scope, cast.location, cast.phase) == (gradient, "fc", "a.py:1", BACKWARD)


def test_a_parameter_is_cast_once():
    b = ProgramBuilder()
    x, w = b.input(3, 3), b.parameter(3, 3)
    y = b(Matmul, b(Exp, b(Matmul, x, w, **PLAIN)), w, **PLAIN)
    after = casted(b.build(b(Matmul, w, y, **PLAIN)))
    assert op_names(after) == ["cast", "cast", "matmul", "cast", "exp", "cast", "matmul", "matmul", "cast"]
    assert [i.inputs[0] for i in after.instructions if i.op is Cast].count(w) == 1


def test_a_result_is_cast_back_once():
    b = ProgramBuilder()
    x = b.input(3, 3)
    y = b(Matmul, x, x, **PLAIN)
    after = casted(b.build(b(Exp, y), b(Exp, y), y))
    assert op_names(after) == ["cast", "matmul", "cast", "exp", "exp"]


# which ops


def test_gray_ops_between_white_ones():
    b = ProgramBuilder()
    x, w = b.input(3, 3), b.parameter(3, 3)
    before = b(Add, x, x)  # below no white op
    y = b(Matmul, before, w, **PLAIN)
    between = b(Mul, b(Add, y, y), y)
    z = b(Matmul, between, w, **PLAIN)
    b.phase = BACKWARD
    after = casted(b.build(b(Sum, b(Mul, z, z), dim=None, keepdim=False)))  # above no white op
    assert in_half(after) == ["matmul", "add", "mul", "matmul"]


@pytest.mark.parametrize("mask", ["input", "state", "computed", "view"])
@pytest.mark.parametrize("op", [Add, Maximum, Cat])
def test_float32_promotes_what_is_combined_with_it(op, mask):
    """As in eager mode: -1e9 is -inf in float16."""
    b = ProgramBuilder()
    x = b.input(3, 3)
    m = b.state(3, 3, kind="buffer") if mask == "state" else b.input(3, 3)
    m = b(Exp, m) if mask == "computed" else b(View, m, shape=(3, 3)) if mask == "view" else m
    attrs = {"dim": 0, "sizes": (3, 3)} if op is Cat else {}
    y = b(op, b(Matmul, x, x, **PLAIN), m, **attrs)
    after = casted(b.build(b(Matmul, b(Softmax, y, dim=1), x, **PLAIN)))
    assert in_half(after) == ["matmul", "matmul"]
    (combined,) = [i for i in after.instructions if i.op is op]
    assert combined.inputs[1] is m


def test_tensors_without_dims_do_not_promote():
    b = ProgramBuilder()
    x = b.input(3, 3)
    y = b(Mul, b(Matmul, x, x, **PLAIN), b.input())
    assert in_half(casted(b.build(b(Matmul, y, x, **PLAIN)))) == ["matmul", "mul", "matmul"]


def test_clear_ops_do_not_join_if_their_results_are_read_in_float32_too():
    b = ProgramBuilder()
    x = b.input(9)
    y = b(View, x, shape=(3, 3))
    after = casted(b.build(b(Matmul, y, y, **PLAIN), b(Exp, y)))
    assert in_half(after) == ["matmul"] and op_names(after)[:2] == ["view", "cast"]


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_outputs_end_the_half_unless_there_is_backward(phase):
    b = ProgramBuilder()
    x = b.input(3, 3)
    y = b(Matmul, x, x, **PLAIN)
    b.phase = phase
    after = casted(b.build(b(Softmax, b(Mul, y, y), dim=1)))
    assert in_half(after) == (["matmul"] if phase == "backward" else ["matmul", "mul", "softmax"])


def test_others_interrupt():
    b = ProgramBuilder()
    x = b.input(3, 3)
    y = b(Add, b(Exp, b(Add, b(Matmul, x, x, **PLAIN), x)), x)
    after = casted(b.build(b(Mean, b(Matmul, y, x, **PLAIN), dim=0, keepdim=False)))
    assert in_half(after) == ["matmul", "matmul"]


def test_black_spreads_up():
    """To gray and clear ops between white ones too, up to the first that is neither."""
    b = ProgramBuilder()
    x = b.input(3, 3)
    y = b(Gelu, b(Add, b(Matmul, x, x, **PLAIN), x), approximate="none")
    z = b(Add, b(View, y, shape=(3, 3)), x)
    marked = b(AmpBlackIdentity, z)
    again = b(Matmul, b(Add, z, z), x, **PLAIN)
    after = casted(b.build(again, b(Mul, marked, marked)))
    assert in_half(after) == ["matmul", "matmul"]
    assert "amp_black_identity" not in op_names(after)


def test_losses_are_black():
    b = ProgramBuilder()
    x, t = b.input(3, 3), b.input(3, dtype="int64")
    first = b(Matmul, x, x, **PLAIN)
    y = b(Matmul, b(Mul, first, first), x, **PLAIN)
    logits = b(Add, y, x)
    options = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
    loss, *_ = b(CrossEntropy, logits, t, None, **options)
    after = casted(b.build(loss, b(Matmul, b(Mul, logits, logits), x, **PLAIN)))
    assert in_half(after) == ["matmul", "mul", "matmul", "matmul"]  # not the addition, nor what follows it


def test_clear_ops_join_on_both_sides():
    b = ProgramBuilder()
    x, s = b.input(9), b.input(2, 3)
    y = b(Matmul, b(View, x, shape=(3, 3)), b(Cat, s, b.input(1, 3), dim=0, sizes=(2, 1)), **PLAIN)
    b.phase = BACKWARD  # outputs are not ends
    after = casted(b.build(b(Relu, b(View, y, shape=(9,)))))
    assert in_half(after) == ["view", "cat", "matmul", "view", "relu"]
    assert after.instructions[0].op is Cast and after.instructions[-1].op is Cast


def test_ops_that_make_large_inputs_small_do_not_join_upwards():
    b = ProgramBuilder()
    table, i, w = b.parameter(100, 3), b.input(4, dtype="int64"), b.parameter(3, 3)
    after = casted(b.build(b(Matmul, b(Embedding, i, table, padding_idx=-1), w, **PLAIN)))
    assert op_names(after) == ["embedding", "cast", "cast", "matmul", "cast"]


def test_numbers_are_not_rounded():
    """x * 1e-9 * 1e9 would be 0 in float16."""
    b = ProgramBuilder()
    x = b.input(3, 3)
    y = b(Mul, b(Mul, b(Matmul, x, x, **PLAIN), 1e-9), 1e9)
    before = b.build(b(Matmul, y, x, **PLAIN))
    after = casted(before)
    assert op_names(after) == ["cast", "matmul", "cast", "mul", "mul", "cast", "matmul", "cast"]
    assert in_half(after) == ["matmul", "matmul"]
    relative_error(before, after, 4 * UNIT[F16])


def test_parameters_of_normalizations_stay():
    b = ProgramBuilder()
    x, stats = b.input(4, 3), [b.state(3) for _ in range(4)]
    with np.errstate(all="ignore"):
        y = b(BatchNormInference, b(Matmul, x, b.parameter(3, 3), **PLAIN), *stats, eps=1e-5)
    after = casted(b.build(b(Matmul, y, b.parameter(3, 3), **PLAIN)))
    (norm,) = [i for i in after.instructions if i.op is BatchNormInference]
    assert norm.inputs[1:] == stats and norm.inputs[0].dtype == F16 == norm.output.dtype


def test_other_dtypes_are_left_alone():
    b = ProgramBuilder()
    x, n = b.input(3, 3, dtype="float64"), b.input(3, 3, dtype="int64")
    program = b.build(b(Matmul, x, x, **PLAIN), b(Matmul, n, n, **PLAIN))
    assert casted(program) is program


def test_without_white_ops_nothing_changes():
    b = ProgramBuilder()
    x = b.input(3, 3)
    program = b.build(b(Softmax, b(Add, x, x), dim=0))
    assert casted(program) is program


def test_without_amp_only_the_marks_of_losses_go():
    w = flow.tensor(np.ones((2, 3), np.float32), requires_grad=True)

    def loss(x, y):
        return nn.functional.mse_loss(nn.functional.linear(x, w), y)

    before = recorded(with_gradients(loss, [w]), (4, 3), (4, 2))
    after = casted(before, None)
    assert [name for name in op_names(before) if name != "amp_black_identity"] == op_names(after)
    assert op_names(before).count("amp_black_identity") == 3
    assert_same_runs(before, after)
