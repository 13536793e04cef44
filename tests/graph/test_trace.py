"""Recording: what becomes an instruction, a state, a write, a draw; and what is refused."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.device import CPU
from miniflow.dispatch.tape import modes
from miniflow.errors import GraphTraceError
from miniflow.graph.interpret import interpret
from miniflow.graph.ir import BACKWARD, CAPTURED, CONSTANT, FORWARD, UPDATE
from miniflow.graph.trace import active, record

X = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
ROWS = np.array([0, -1, 2])


def recorded(function, *arrays, **options):
    program = record(function, [(a.shape, a.dtype, CPU) for a in arrays], **options)
    program.check()
    return program


def assert_twin(function, *arrays):
    """The recorded function gives the bits of the eager one, for the arrays it was recorded with and for others."""
    program = recorded(function, *arrays)
    for change in (0, 1):
        given = [a + change if a.dtype.kind == "f" else a for a in arrays]
        got, _ = interpret(program, [a.copy() for a in given])
        want = function(*[flow.tensor(a) for a in given])
        assert len(got) == len(want) > 0
        for y, eager in zip(got, want, strict=True):
            assert_same(y, eager.detach().numpy())
    return program


def ops(program):
    return [instruction.op.function_name for instruction in program.instructions]


def test_nothing_is_computed_while_recording():
    seen = []
    program = recorded(lambda x: [seen.append(x) or (x * 2).exp()], X)
    assert ops(program) == ["mul", "exp"] and seen[0]._array.is_symbolic
    assert [slot.type for slot in program.outputs] == ["f32[4, 5, 6]"]
    assert modes.tracer is None


def test_writes_in_place_and_through_views_are_resolved():
    def build(x, i):
        x = x.clone()
        x[i] = 0
        x[:, 1] += 2
        y = x.transpose(0, 1)
        y.mul_(2)
        x[0, i] = i.float()[:, None]
        z = x.view(-1)[3:9]
        z.add_(1)
        return [x, y, z, y.reshape(5, -1), x.detach()]

    assert_twin(build, X, ROWS)


def test_strides_decide_as_in_eager_mode_what_is_a_view():
    def build(x):
        flat = x.transpose(0, 1).reshape(-1)  # a copy: writes to it do not reach x
        flat.zero_()
        with pytest.raises(flow.errors.ShapeError, match="strides"):
            x.transpose(0, 1).view(-1)
        return [x, flat]

    assert_twin(build, X)


def test_integer_tensors_index():
    assert_twin(lambda x, i: [x[i], x[:, i], x[i, i], x[0, i, i], x[:, [1, 2]], x[i[0]], x[..., i]], X, ROWS)


def test_tensors_made_in_build_are_constants_unless_written():
    def build(x):
        zeros, two = flow.zeros(3), flow.tensor([1.0, 2.0])
        zeros[0] = x[0, 0, 0]
        two.add_(x.sum())
        return [zeros, two, flow.ones_like(x) * 3, flow.arange(5)]

    program = assert_twin(build, X)
    assert not program.states and not program.writes
    assert {slot.kind for slot in program.constants} == {CONSTANT}


def test_a_captured_tensor_is_read_again_at_each_call():
    scale = flow.tensor(2.0)
    program = recorded(lambda x: [x * scale], X)
    assert [slot.kind for slot in program.states] == [CAPTURED]
    scale.fill_(3.0)
    assert_same(interpret(program, [X])[0][0], X * np.float32(3))


def test_a_captured_tensor_that_is_written_is_a_state():
    count = flow.tensor(0)
    program = recorded(lambda x: [count.add_(1) * x.sum()], X)
    (slot,) = program.writes
    assert count.item() == 0, "recording changed it"
    assert interpret(program, [X])[1][slot] == 1


def test_the_default_generator_is_drawn_from_at_each_call():
    def build(x):
        return [flow.nn.functional.dropout(x, 0.5), flow.rand(3)]

    flow.manual_seed(3)
    state = flow.get_rng_state()
    program = recorded(build, X)
    assert_same(flow.get_rng_state(), state.numpy(), what="recording drew numbers")
    graph = [interpret(program, [X])[0] for _ in range(2)]
    flow.set_rng_state(state)
    for got in graph:
        for y, eager in zip(got, build(flow.tensor(X)), strict=True):
            assert_same(y, eager.numpy())
    assert not np.array_equal(graph[0][1], graph[1][1])


def training_step(model, optimizer, update):
    def step(x, target):
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        with update():
            optimizer.step()
        return [loss]

    return step


def test_a_whole_training_step_with_its_phases_scopes_and_lines():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = flow.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    optimizer.create_state()
    step = training_step(model, optimizer, lambda: active().updating("optimizer.0"))
    meta = [((5, 4), np.dtype(np.float32), CPU), ((5,), np.dtype(np.int64), CPU)]
    states = [(name, "parameter", p) for name, p in model.named_parameters()]
    program = record(step, meta, states, modules={m: f"model.{name}" for name, m in model.named_modules()})
    program.check()
    phases = [instruction.phase for instruction in program.instructions]
    assert sorted(set(phases), key=phases.index) == [FORWARD, BACKWARD, UPDATE]
    linear = [i for i in program.instructions if i.scope == "model.0"]
    assert [(i.op.function_name, i.phase) for i in linear] == [
        ("linear", FORWARD),
        ("matmul", BACKWARD),
        ("sum", BACKWARD),
    ]
    assert all(i.location.startswith("test_trace.py:") for i in linear)
    updates = [i for i in program.instructions if i.phase == UPDATE]
    assert len(updates) == 6 and {i.scope for i in updates} == {"optimizer.0"}
    assert {repr(i.attrs["lr"]) for i in updates} == {"<optimizer.0.0.lr>"}
    optimizer.param_groups[0]["lr"] = 0.25
    assert updates[0].attrs["lr"].source() == 0.25
    assert all(p.grad is None for p in model.parameters())
    written = {slot.name for slot in program.writes}
    assert {"0.weight", "0.bias", "3.weight"} <= written


def test_gradients_that_were_there_are_left_alone():
    w = flow.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    old = w.grad
    program = recorded(lambda x: [(w * x[0, 0, :3]).sum().backward() or w.grad], X)
    assert w.grad is old and old.tolist() == [2.0] * 3
    assert_same(interpret(program, [X])[0][0], X[0, 0, :3])


LOOKS = {
    "item": lambda x: [x.sum().item()],
    "numpy": lambda x: [x.numpy()],
    "tolist": lambda x: [x.tolist()],
    "float": lambda x: [float(x[0, 0, 0])],
    "branch": lambda x: [x if x.sum() > 0 else -x],
    "one_hot": lambda x: [nn.functional.one_hot(x.long())],
    "tensor of tensor": lambda x: [flow.tensor(x)],
    "array": lambda x: [flow.from_numpy(np.asarray(x))],
    "range": lambda x: [flow.arange(int(x.sum()))],
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_values_names_the_line(look):
    with pytest.raises(GraphTraceError, match=r"^test_trace\.py:\d+: .*recorded once and replayed"):
        recorded(LOOKS[look], X)
    assert modes.tracer is None


def test_looking_at_a_parameter_is_refused_too():
    w = flow.ones(3)
    with pytest.raises(GraphTraceError, match="cannot be looked at"):
        recorded(lambda x: [x * w[0].item()], X)


def test_printing_in_build_shows_no_values(capsys):
    recorded(lambda x: [print(x) or x * 2], X)
    assert capsys.readouterr().out == "tensor(..., size=(4, 5, 6), dtype=miniflow.float32, is_lazy='True')\n"


@pytest.mark.parametrize(
    "use",
    [lambda y: y + 1, lambda y: y.numpy(), lambda y: y.sum(), lambda y: flow.ones(4, 5, 6) * y, lambda y: y.tolist()],
    ids=["add", "numpy", "sum", "second operand", "tolist"],
)
def test_a_tensor_kept_from_build_says_so_when_used(use):
    kept = []
    recorded(lambda x: [kept.append(x * 2) or x], X)
    with pytest.raises(GraphTraceError, match="return it from build"):
        use(kept[0])


def test_a_tensor_of_another_recording_is_refused():
    kept = []
    recorded(lambda x: [kept.append(x * 2) or x], X)
    with pytest.raises(GraphTraceError, match="made while program was being recorded"):
        recorded(lambda x: [x + kept[0]], X)


def test_recording_within_a_recording_is_refused():
    with pytest.raises(GraphTraceError, match="inner: called while outer is being recorded"):
        recorded(lambda x: [recorded(lambda y: [y], X, name="inner")], X, name="outer")
    assert modes.tracer is None


def test_outputs_must_be_tensors():
    with pytest.raises(GraphTraceError, match="output 1 is a int"):
        recorded(lambda x: [x, 3], X)


def test_autograd_functions_and_second_order_gradients_are_recorded():
    class Cube(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return dy * 3 * x * x

    def build(x):
        x = x.detach().requires_grad_()
        (dx,) = flow.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
        return [dx, *flow.autograd.grad((dx * dx).sum(), x)]

    assert_twin(build, X)


def test_shared_inputs_and_outputs_that_alias_inputs():
    program = assert_twin(lambda x: [x, x.view(-1), x.detach(), x[0]], X)
    assert program.outputs[0] is program.inputs[0]


def test_what_is_written_has_the_dtype_of_the_memory():
    def build(x):
        x = x.clone()
        x.mul_(x.double())  # computed in float64, written into float32
        x[0].copy_(x[1].double() + 1)
        return [x]

    assert_twin(build, X)


def test_draws_are_taken_from_the_generators_that_were_named():
    def build(x, first, second):
        dropped = flow.nn.functional.dropout(x, 0.5, generator=first)
        return [dropped, flow.rand(3, generator=second), flow.rand(3, generator=second)]

    one, two = (flow.Generator().manual_seed(seed) for seed in (1, 2))
    program = recorded(lambda x: build(x, one, two), X)
    got, _ = interpret(program, [X])
    want = build(flow.tensor(X), *(flow.Generator().manual_seed(seed) for seed in (1, 2)))
    for y, eager in zip(got, want, strict=True):
        assert_same(y, eager.numpy())
