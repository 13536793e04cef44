"""Every op that mixed precision may run in half precision: it computes in float32 and rounds once, on each device."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.backends.memory import to_host
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.graph.interpret import execute
from miniflow.graph.ir import Instruction, Slot
from miniflow.graph.passes.autocast import has_number, is_float32
from miniflow.graph.trace import record
from miniflow.ops.pointwise import Pointwise

F = nn.functional
FLOAT32 = np.dtype(np.float32)
INDEX = np.array([[0, 2], [3, 1]])
ROW = np.array([2, 0])


def images(x, weight):
    """x (2, 4, 6, 6), weight (4, 4, 3, 3)"""
    y = F.conv2d(x, weight, weight[:, 0, 0, 0], padding=1)
    y = F.batch_norm(y, None, None, weight[0, 0, 0].repeat(2)[:4], weight[:, 1, 1, 1], training=True)
    y = F.batch_norm(y, flow.zeros(4), flow.ones(4), weight[:, 1, 1, 1], None)
    y = flow.relu(F.max_pool2d(y, 3, 2, 1))
    y = F.adaptive_avg_pool2d(F.avg_pool2d(F.pad(y, (1, 1, 0, 2)), 2), (2, 1))
    return F.layer_norm(F.dropout(y, 0.4), [2, 1], weight[0, 0, 0, :2].view(2, 1), weight[1, 0, 0, :2].view(2, 1))


def pointwise(x, weight):
    y = x - flow.gelu(x) * F.silu(x) + flow.sigmoid(x) / (flow.tanh(-x) + flow.sqrt(flow.abs(x)) ** 2)
    y = flow.maximum(flow.clamp(y, -1, 1), flow.minimum(x, weight[0, 0, 0, 0]))
    return flow.where(x > 0, y, x).masked_fill(x > 1, 0.5) + F.gelu(x, approximate="tanh")


def rows(x, weight):
    y = F.linear(x.reshape(-1, 6), weight.reshape(24, 6), None) @ weight.reshape(24, 6)
    z = F.linear(x, weight.reshape(24, 6)).reshape(48, 24)
    return flow.softmax(y, 1) + flow.log_softmax(y, 0) + z[:, :6]


def shapes(x, weight):
    y = flow.cat([x.transpose(1, 2), x.permute(0, 2, 1, 3).flip(0)]).expand(2, 4, 6, 4, 6).contiguous().clone()
    y = flow.stack([y, y])[..., 1:3, ::2]
    z = (
        flow.tril(x[0, 0])
        + flow.triu(weight.reshape(24, 6)[:6])
        + x.diagonal(0, 2, 3).sum()
        + x.sum((0, 1), keepdim=True)
    )
    return y.sum() + z.sum() + x.unfold(2, 2, 2).sum()


def choices(x, weight):
    i, row = flow.tensor(INDEX), flow.tensor(ROW)
    table = weight.reshape(36, 4)
    y = F.embedding(i, table) + flow.index_select(table, 0, row)[:, None] + table[row, row].sum()
    y = y + flow.gather(table, 0, i).sum() + flow.scatter(table * table, 0, i, table[:2, 2:]).sum()
    z = table * table
    z[row] = table[:2]
    z[:, 1].add_(z[:, 2] * 2.0)
    z[2].fill_(0.5)
    y = y + z.max(0).values + z.min(1).values.sum() + flow.amax(z) - flow.amin(z, 0)
    y = y + flow.cummax(z, 0).values.sum() - flow.cummin(z, 1).values.sum()
    y = y.clone()
    y[0] = 3.0
    return y


def recurrent(x, weight):
    lstm = flow.nn.LSTM(6, 3)
    with flow.no_grad():
        for p in lstm.parameters():
            p.copy_(weight.reshape(-1)[: p.numel()].reshape(p.shape))
    return lstm(x.reshape(8, 6, 6))[0]


def second_order(x, weight):
    y = F.max_pool2d(x, 2)
    return flow.autograd.grad((y * y).sum(), x, create_graph=True)[0]


FUNCTIONS = (images, pointwise, rows, shapes, choices, recurrent, second_order)


def program_of(function):
    place = flow.get_default_device()
    weight = flow.tensor(np.random.default_rng(1).normal(size=(4, 4, 3, 3)).astype(np.float32), requires_grad=True)

    def step(x):
        y = function(x.requires_grad_(), weight)
        (y * y).sum().backward()
        return [y, *[t.grad for t in (weight, x) if t.grad is not None]]

    return record(step, [((2, 4, 6, 6), FLOAT32, place)], [("weight", "parameter", weight)])


LOW = ("white", "gray", "clear")


def listed(program):
    return [i for i in program.instructions if i.op.amp in LOW and is_float32(i) and not has_number(i)]


def test_examples_have_all_listed_ops():
    found = {i.op for function in FUNCTIONS for i in listed(program_of(function))}
    classed = {op for op in Op.by_name.values() if op.amp in LOW and not issubclass(op, Pointwise)}
    device = flow.get_default_device().type
    assert not {op.__name__ for op in classed - found if kernel_of(device, op.__name__) is not None}


@pytest.mark.parametrize("half", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_rounds_once(function, half):
    if half == "bfloat16" and function is not pointwise and flow.get_default_device().type == "cuda":
        pytest.skip("the other half precision goes through the same kernels")
    dtype = getattr(flow, half).numpy
    program = program_of(function)
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 6)).astype(np.float32)
    values = {program.inputs[0]: flow.tensor(x)._array, **program.constants}
    values |= {slot: program.tensors[slot]._array for slot in program.states}
    program.draws.take()
    numbers = {name: scalar.source() for name, scalar in program.scalars().items()}
    chosen = listed(program)
    assert chosen
    with np.errstate(all="ignore"):
        for instruction in program.instructions:
            if instruction in chosen:
                compare(instruction, values, numbers, dtype)
            values.update(zip(instruction.outputs, execute(instruction, values, numbers), strict=True))


def compare(instruction, values, numbers, dtype):
    """The kernel on rounded inputs, in half precision and in float32."""
    kept = instruction.op.keeps_float32
    low, wide = {}, {}
    inputs = []
    for i, x in enumerate(instruction.inputs):
        if isinstance(x, Slot):
            array, x = values[x], x.like()
            rounds = array.dtype == FLOAT32 and i not in kept
            low[x] = array.astype(dtype) if rounds else array
            wide[x] = low[x].astype(np.float32) if rounds else array
        inputs.append(x)
    twin = Instruction(instruction.op, inputs, instruction.outputs, instruction.attrs)
    got, want = execute(twin, low, numbers), execute(twin, wide, numbers)
    for y, z, slot in zip(got, want, instruction.outputs, strict=True):
        expected = to_host(z).astype(dtype) if slot.dtype == FLOAT32 else to_host(z)
        assert_same(to_host(y), expected, what=f"{instruction.op.__name__} at {instruction.location}")
