"""Replays give the bits of `interpret`, whatever the memory holds, and change nothing of the user's by mistake."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from compare import FRESH_SEED, count_comparison, to_host
from programs import random_program, values_of

import miniflow as flow
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.errors import GraphError, IndexRangeError
from miniflow.graph import trace
from miniflow.graph.config import GraphConfig
from miniflow.graph.interpret import interpret
from miniflow.graph.ir import OPTIMIZER, PARAMETER, Program
from miniflow.graph.memory import MemoryReport
from miniflow.graph.overlap import overlapping
from miniflow.graph.passes import run_passes
from miniflow.graph.plan import Block, assign_offsets, plan
from miniflow.graph.replay import Replay
from miniflow.tensor import Tensor


def array(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def recorded(step, inputs, states=()) -> Program:
    """The program of `step` for inputs like these arrays; states are tensors."""
    metas = [(x.shape, x.dtype, flow.device("cpu")) for x in inputs]
    named = [(f"state.{i}", PARAMETER, tensor) for i, tensor in enumerate(states)]
    return trace.record(step, metas, named)


def same_bits(found, expected):
    count_comparison()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


def check(program: Program, inputs, calls: int = 3) -> Replay:
    """Compare several calls, in poisoned memory, with `interpret`: outputs and states."""
    replay = Replay(program)
    arrays = {slot: program.tensors[slot]._array for slot in program.states}
    overlapping = [
        a for a in arrays for b in program.writes if b is not a and np.may_share_memory(arrays[a], arrays[b])
    ]
    for _ in range(calls):
        given = [x.copy() for x in inputs]
        before = {slot: program.tensors[slot]._array.copy() for slot in program.states}
        draws = [generator.get_state() for generator in program.draws.generators]
        program.draws.take()
        numbers = {name: scalar.source() for name, scalar in program.scalars().items()}
        outputs, writes = interpret(program, inputs, numbers=numbers)
        outputs = [y.copy() for y in outputs]
        writes = {slot: value.copy() for slot, value in writes.items()}
        for generator, state in zip(program.draws.generators, draws, strict=True):
            generator.set_state(state)
        replay.poison()
        for found, expected in zip(replay(inputs), outputs, strict=True):
            same_bits(found, expected)
        for slot in program.states:
            if slot in writes or slot not in overlapping:
                same_bits(program.tensors[slot]._array, writes.get(slot, before[slot]))
        for x, old in zip(inputs, given, strict=True):
            same_bits(x, old)
    return replay


class Net(flow.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = flow.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = flow.nn.BatchNorm2d(16)
        self.down = flow.nn.Conv2d(16, 16, 1, stride=2, bias=False)
        self.last = flow.nn.Linear(16, 5)
        self.layer_norm = flow.nn.LayerNorm(5)

    def forward(self, x):
        y = flow.nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        y = flow.nn.functional.dropout(self.down(y), 0.3)
        y = flow.nn.functional.adaptive_avg_pool2d(y, 1).flatten(1)
        return flow.nn.functional.gelu(self.layer_norm(self.last(y)))


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_training_step(rule):
    """Whole steps with convolution, both norms, pooling, dropout, cross-entropy and an optimizer."""
    flow.manual_seed(0)
    model = Net()
    optimizer = getattr(flow.optim, rule)(model.parameters(), lr=0.05, weight_decay=0.01)
    optimizer.create_state()
    x, labels = array(4, 3, 10, 10), np.array([0, 4, 2, 2])

    def step(x, labels):
        y = model(x)
        loss = flow.nn.functional.cross_entropy(y, labels)
        loss.backward()
        with trace.active().updating("optimizer.0"):
            optimizer.step()
        return [loss, y]

    states = [(name, PARAMETER, p) for name, p in [*model.named_parameters(), *model.named_buffers()]]
    for i, state in enumerate(optimizer.state.values()):
        states += [(f"{name}.{i}", OPTIMIZER, t) for name, t in state.items() if isinstance(t, Tensor)]
    metas = [(a.shape, a.dtype, flow.device("cpu")) for a in (x, labels)]
    program = trace.record(step, metas, states)
    replay = check(program, [x, labels])
    assert not replay.plan.staged and replay.plan.peak_after < 1.05 * replay.plan.peak_before


def test_every_kernel_with_planned_memory_gives_the_bits_of_the_other():
    """A long chain of ops of all kinds, forward and backward, with broadcasting and views in between."""

    def step(x, y, m):
        a = (x * 2.0 - y).exp() / (y.abs() + 1.0)
        b = flow.where(a > x, a, y).clamp(-1.0, 1.0).softmax(-1)
        c = (b.t() @ a).tanh().sigmoid().log_softmax(0).sum(0, keepdim=True) + x[:1]
        d = flow.cat([c, c.flip(1)], 0).mean() + (m @ m.transpose(1, 2)).amax(2).std() + a.pow(3).norm()
        e = flow.nn.functional.silu(a.expand(2, 4, 6).permute(2, 0, 1).reshape(6, 8)).logsumexp(1)
        (dx,) = flow.autograd.grad(d + e.sum(), [x])
        return [a, b, c, d, e, dx, x.t(), x[1]]

    inputs = [array(4, 6), array(4, 6, seed=1), array(2, 3, 5)]

    def with_gradient(x, y, m):
        return step((x * 1.0).requires_grad_(), y, m)

    check(recorded(with_gradient, inputs), inputs)


def test_outputs_are_never_overwritten():
    """What the user keeps stays; what nobody keeps is used again."""
    x = array(64, 64)
    replay = Replay(recorded(lambda x: [x + 1.0, x.sum()], [x]))
    kept = [replay([x * i]) for i in range(6)]
    for i, (y, total) in enumerate(kept):
        same_bits(y, x * i + np.float32(1))
        assert abs(total - (x * i).sum()) < 1e-3
    addresses = set()
    del kept, y
    for _ in range(6):
        (y, _) = replay([x])
        addresses.add(y.__array_interface__["data"][0])
        view = y[3:].T
        del y
        again = replay([x])[0]
        assert not np.may_share_memory(view, again)
        del view, again
    assert len(addresses) <= 2


def test_outputs_that_are_inputs_states_or_constants_are_copies():
    weight = flow.tensor(array(3, 4))
    x = array(3, 4, seed=1)
    replay = Replay(recorded(lambda x: [x, x.t(), weight, weight[1], x + weight], [x], [weight]))
    for y in replay([x]):
        assert not np.may_share_memory(y, x) and not np.may_share_memory(y, weight._array)
        y += 1
    same_bits(replay([x])[4], x + weight._array)


def sgd(weight, gradient):
    from miniflow.dispatch.dispatcher import update
    from miniflow.optim.sgd import SGD

    options = {"lr": 0.5, "momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}
    update(SGD.rule, [weight], [gradient], [None], fresh=[False], **options)


def test_old_values_of_a_state_that_is_updated():
    """Read after the update, returned, seen through a view, and through other memory that overlaps."""
    memory = array(6, 4)
    weight, part = flow.tensor(memory), None
    weight._array = memory
    part = Tensor._wrap(memory[:2])

    def step(x):
        old, view = weight + 0.0, weight.t()
        with trace.active().updating("update"):
            sgd(weight, x)
        return [old, view, part * 2.0, weight]

    x = array(6, 4, seed=2)
    program = recorded(step, [x], [weight])
    old_slot = program.states[0]
    program = program.with_(outputs=[*program.outputs, old_slot])
    replay = check(program, [x])
    assert replay.plan.late and replay.plan.staged

    def plain(x):
        sgd(weight, x)
        return [weight.sum()]

    replay = check(recorded(plain, [x], [weight]), [x])
    assert replay.plan.in_state and not replay.plan.staged


def test_states_that_swap_values():
    a, b = flow.tensor(array(5)), flow.tensor(array(5, seed=1))
    program = recorded(lambda x: [x], [array(2)], [a, b])
    first, second = program.states
    check(program.with_(writes={first: second, second: first}), [array(2)])


def test_input_in_the_memory_of_a_state():
    weight = flow.tensor(array(8, 8))

    def step(x):
        sgd(weight, x)
        return [x * 2.0]

    replay = Replay(recorded(step, [weight._array], [weight]))
    before = weight._array.copy()
    (y,) = replay([weight._array])
    same_bits(y, before * 2)
    same_bits(weight._array, before - np.float32(0.5) * before)
    (y,) = replay([weight._array[::-1]])
    same_bits(y, (before * np.float32(0.5))[::-1] * 2)


def test_an_input_between_the_elements_of_a_state_around_another():
    whole = array(100)
    around, within = whole[::2], whole[11:20:2]
    states = [flow.from_numpy(around), flow.from_numpy(within)]

    def step(x):
        for state in states:
            sgd(state, state * 1.0)
        return [x * 2.0]

    replay = Replay(recorded(step, [whole[50:53]], states))
    before = whole.copy()
    (y,) = replay([whole[50:53]])
    same_bits(y, before[50:53] * 2)
    assert replay._own(whole[50:53], ()).base is not whole, "it lies in memory that the call writes to"
    assert replay._own(before, ()) is before


def test_states_that_move():
    """`.data =` gives a tensor other memory: the next call works there."""
    weight = flow.tensor(array(4, 4))

    def step(x):
        y = weight @ x
        sgd(weight, x)
        return [y]

    x = array(4, 4, seed=3)
    program = recorded(step, [x], [weight])
    replay = check(program, [x])
    old = weight._array
    kept = old.copy()
    weight.data = flow.tensor(array(4, 4, seed=9))
    (y,) = replay([x])
    same_bits(old, kept)
    same_bits(y, array(4, 4, seed=9) @ x)
    weight._array = array(4, 5)
    with pytest.raises(GraphError, match=r"state.0 was recorded as f32\[4, 4\] on cpu, now it is f32\[4, 5\] on cpu"):
        replay([x])


def test_inputs_of_any_layout_and_the_same_input_twice():
    program = recorded(lambda x, y: [(x * y).view(-1), (x + y).sum(0)], [array(3, 4), array(3, 4)])
    replay = Replay(program)
    x = array(4, 3)
    same_bits(replay([x.T, x.T])[0], (x.T * x.T).reshape(-1))
    same_bits(replay([array(6, 8)[::2, ::2], x.T])[1], (array(6, 8)[::2, ::2] + x.T).sum(0))


def test_zero_sizes():
    check(recorded(lambda x: [x + 1.0, x.sum(), x @ x.t(), x.t() @ x], [array(0, 3)]), [array(0, 3)])


def test_errors_leave_everything_usable():
    table = flow.nn.Embedding(5, 3)
    weight = flow.tensor(array(2, 3))

    def step(index, x):
        y = table(index) + weight
        with flow.no_grad():
            weight.copy_(x)
        return [y, flow.gather(x, 1, index.view(2, 1))]

    index, x = np.array([1, 4]), array(2, 6)[:, :3].copy()
    program = recorded(step, [index, x], [weight])
    replay = Replay(program)
    before = weight._array.copy()
    with pytest.raises(IndexRangeError, match="embedding: index 7 is out of range"):
        replay([np.array([1, 7]), x])
    with pytest.raises(IndexRangeError, match="gather: index 4 is out of range"):
        replay([index, x])
    same_bits(weight._array, before)
    check(program, [np.array([0, 2]), x])


def test_threads_take_turns():
    x = array(32, 32)
    replay = Replay(recorded(lambda x: [(x @ x).tanh() @ x], [x]))
    expected = replay([x])[0].copy()
    failures = []

    def work():
        for _ in range(50):
            if not (replay([x])[0] == expected).all():
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_versions_count_the_writes():
    weight = flow.tensor(array(3))
    replay = Replay(recorded(lambda x: [sgd(weight, x) or weight.sum()], [array(3)], [weight]))
    before = weight.version
    replay([array(3)])
    assert weight.version == before + 1


def test_unless():
    weight, skip = flow.tensor(array(3)), flow.tensor(True)

    def step(x):
        sgd(weight, x)
        return [weight]

    program = recorded(step, [array(3)], [weight, skip])
    update = program.instructions[-1]
    flag = program.states[1]
    program = program.with_(instructions=[*program.instructions[:-1], update.with_(unless=flag)])
    before = weight._array.copy()
    check(program, [array(3)])
    same_bits(weight._array, before)
    skip._array[...] = False
    check(program, [array(3)])
    assert (weight._array != before).any()


@pytest.mark.parametrize("number", [*range(8), FRESH_SEED])
def test_random_programs(number):
    """As recorded, and after all passes."""
    program = random_program(number)
    inputs = values_of(program, number)[0]
    check(program, inputs)
    check(run_passes(program, GraphConfig()), inputs)


def test_on_a_cuda_device():
    """The same kernels in the same order: the results are those of `interpret`, and states change in place."""
    weight = flow.tensor(array(3, 4), device="cuda")
    address = weight.data_ptr()

    def step(x):
        y = (x * weight[1:]).relu()
        sgd(weight, weight * 0.5)
        return [y, y.sum(), weight, x.t()]

    x = flow.tensor(array(2, 4), device="cuda")
    metas = [(x._array.shape, x._array.dtype, x.device)]
    program = trace.record(step, metas, [("weight", PARAMETER, weight)])
    replay = Replay(program)
    for _ in range(2):
        outputs, writes = interpret(program, [x._array])
        expected = [to_host(y).copy() for y in (*outputs, *writes.values())]
        found = [to_host(y) for y in (*replay([x._array]), weight._array)]
        for a, b in zip(found, expected, strict=True):
            same_bits(a, b)
    assert weight.data_ptr() == address


@pytest.mark.parametrize("number", range(5))
def test_blocks_that_live_together_lie_apart(number):
    random = np.random.default_rng(number)
    blocks = []
    for _ in range(60):
        first = int(random.integers(0, 40))
        blocks.append(Block(int(random.integers(0, 5000)), first, first + int(random.integers(0, 12))))
    end = assign_offsets(blocks)
    for i, a in enumerate(blocks):
        assert a.offset % 64 == 0 and a.offset + a.nbytes <= end
        for b in blocks[:i]:
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or a.last < b.first or b.last < a.first
    needed = max(sum(b.nbytes for b in blocks if b.first <= t <= b.last) for t in range(52))
    assert needed <= end < 1.3 * needed


def test_memory_in_words_and_as_a_picture():
    from matplotlib.figure import Figure

    x = array(64, 64)
    report = MemoryReport(plan(recorded(lambda x: [((x + 1.0).exp() @ x).sum()], [x])))
    assert report.before == 2 * x.nbytes and report.after == 2 * x.nbytes
    assert "results      32.00 KiB at most in 3 blocks (before planning 32.00 KiB)" in str(report)
    assert "0 to 2       16.00 KiB  [64, 64]  add, exp" in str(report)
    axes = report.picture(axes=Figure().subplots())
    boxes = [(p.get_x(), p.get_width(), p.get_height()) for p in axes.patches]
    assert boxes == [(0, 1, 16), (1, 2, 16), (2, 2, 16), (3, 2, 4 / 1024)]
    explained = [t.get_text() for t in axes.get_legend().get_texts()]
    assert explained == ["result", "result in the memory of an input", "bytes alive", "peak"]
    assert list(axes.lines[0].get_xdata()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype):
    kind = flow.Tensor._wrap(np.zeros(1)).to(getattr(flow, dtype))._array.dtype
    weight = flow.tensor(array(3, 4)).to(getattr(flow, dtype))

    def step(x):
        y = (x @ weight.t()).relu().softmax(-1)
        sgd(weight, weight * y.sum().view(1, 1))
        return [y, y.float().mean(), y + 1.0]

    check(recorded(step, [array(5, 4).astype(kind)], [weight]), [array(5, 4).astype(kind)])


def test_gradients_that_are_changed_in_place():
    """Clipping writes into gradients, also into one that is returned as it was before."""
    model = flow.nn.Linear(4, 3)

    def step(x):
        loss = (model(x) ** 2).sum()
        loss.backward()
        before = model.weight.grad * 1.0
        norm = flow.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        return [loss, norm, before, model.weight.grad, model.bias.grad.view(3, 1)]

    x = array(5, 4)
    program = recorded(step, [x], list(model.parameters()))
    check(program, [x])
    gradient = next(i for i in program.instructions if i.mutates).inputs[0]
    check(program.with_(outputs=[*program.outputs, gradient]), [x])


def test_result_of_one_call_as_input_of_the_next():
    x = array(64, 64)
    replay = Replay(recorded(lambda x: [x * 0.5 + 1.0], [x]))
    y = expected = x
    for _ in range(5):
        (y,) = replay([y])
        expected = expected * np.float32(0.5) + np.float32(1)
        same_bits(y, expected)


def test_overlapping_memory():
    """Pairs are found whatever the order and the strides; device memory has addresses of its own."""
    memory = array(10, 10)
    parts = {"all": memory, "head": memory[:3], "tail": memory[7:], "column": memory[:, 0], "none": memory[:0]}
    parts |= {"other": array(3), "device": flow.ones(4, device="cuda")._array}
    parts["view"] = parts["device"].view(lambda a: a[:2])
    found = {frozenset(pair) for pair in overlapping(parts)}
    expected = "all-head all-tail all-column head-column tail-column device-view"
    assert found == {frozenset(pair.split("-")) for pair in expected.split()}


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "SoftmaxGrad", "LogSoftmaxGrad", "Logsumexp", "Var", "Norm"])
def test_bits_do_not_depend_on_where_results_lie(name):
    """In a plan a result may lie right behind an operand, where compiled loops must not add up in another order."""
    op, write = Op.by_name[name], kernel_of("cpu", name).run
    more = {
        "Logsumexp": {"keepdim": False},
        "Var": {"keepdim": False, "correction": 1},
        "Norm": {"p": 2.0, "keepdim": False},
    }
    attrs = {"dim": 1, **more.get(name, {})}
    for shape in [(1, 24), (2, 24), (3, 16), (1, 40), (5, 8), (2, 100)]:
        operands = [array(*shape, seed=i) for i in range(2 if name.endswith("Grad") else 1)]
        result_shape, dtype = op.infer(*operands, **attrs)
        results = set()
        for gap in (0, 1, 8, 64, 1000):
            memory = np.zeros(2000, np.float32)
            views, end = [], 0
            for x in operands:
                views.append(memory[end : end + x.size].reshape(shape))
                views[-1][...] = x
                end += x.size
            size = int(np.prod(result_shape))
            result = memory[end + gap : end + gap + size].reshape(result_shape)
            write(result, *views, **attrs)
            results.add(result.tobytes())
        assert dtype == np.float32 and len(results) == 1, shape
