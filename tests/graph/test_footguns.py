"""The traps of recording and replaying, each with what happens instead of a silent wrong answer."""

import threading

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError, GraphTraceError


def graph_of(function, *modules, optimizer=None, **options):
    """A graph whose build is `function(graph, *inputs)`."""

    class Anonymous(nn.Graph):
        def __init__(self):
            super().__init__()
            for i, module in enumerate(modules):
                setattr(self, f"m{i}", module)
            if optimizer is not None:
                self.add_optimizer(optimizer)

        def build(self, *inputs):
            return function(self, *inputs)

    return Anonymous()


X = flow.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
OUTSIDE = flow.tensor([True, False])


# values in build


def test_item_in_build():
    with pytest.raises(GraphTraceError, match=r"test_footguns\.py:\d+: .*\.item\(\)"):
        graph_of(lambda g, x: x * x.sum().item())(X)


def test_a_python_branch_on_a_value_names_the_line():
    def build(g, x):
        if x.sum() > 0:
            return x
        return -x

    line = build.__code__.co_firstlineno + 1
    with pytest.raises(GraphTraceError, match=rf"test_footguns\.py:{line}: .*flow\.where"):
        graph_of(build)(X)


def test_printing_in_build_happens_once_and_shows_no_values(capsys):
    graph = graph_of(lambda g, x: print(x) or x * 2)
    for _ in range(3):
        assert_same(graph(X), (X * 2).numpy())
    assert capsys.readouterr().out == "tensor(..., size=(2, 3), dtype=miniflow.float32, is_lazy='True')\n"


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: x[x > 0],
        lambda g, x: x[:, x[0] > 0],
        lambda g, x: (x * 1).__setitem__(x > 0, 0.0),
        lambda g, x: x.nonzero(),
        lambda g, x: x.nonzero(as_tuple=True),
        lambda g, x: x.argwhere(),
        lambda g, x: x.masked_select(x > 0),
        lambda g, x: x[OUTSIDE],
    ],
    ids=["mask", "mask of a dim", "setitem", "nonzero", "as_tuple", "argwhere", "masked_select", "mask from outside"],
)
def test_a_shape_that_depends_on_values(build):
    message = r"^test_footguns\.py:\d+: nonzero: the shape of the result depends on values.*flow\.where"
    with pytest.raises(GraphTraceError, match=message):
        graph_of(build)(X)


def test_a_mask_that_build_makes_of_numbers_is_known():
    graph = graph_of(lambda g, x: x[flow.tensor([False, True])])
    assert_same(graph(X), X.numpy()[1:])


# Python around the recording


def test_python_side_effects_happen_while_recording_only():
    calls = []
    graph = graph_of(lambda g, x: calls.append(1) or x + len(calls))
    first, second = graph(X), graph(X)
    assert_same(first, (X + 1).numpy())
    assert_same(second, (X + 1).numpy())
    assert calls == [1]


def test_a_tensor_that_build_leaves_elsewhere_is_refused_when_used():
    kept = []
    graph = graph_of(lambda g, x: kept.append(x * 2) or x)
    graph(X)
    with pytest.raises(GraphTraceError, match="only what build returns has values"):
        kept[0] + 1


def test_a_captured_tensor_that_changes_is_read_at_each_call():
    scale = flow.tensor(2.0)
    graph = graph_of(lambda g, x: x * scale)
    assert_same(graph(X), (X * 2).numpy())
    scale.fill_(5.0)
    assert_same(graph(X), (X * 5).numpy())


def test_a_captured_tensor_that_build_writes_is_written_at_each_call():
    count = flow.tensor(0)
    graph = graph_of(lambda g, x: x + count.add_(1))
    for n in (1, 2, 3):
        assert_same(graph(X), (X + n).numpy())
        assert count.item() == n


def test_a_buffer_that_forward_reassigns_keeps_its_value():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", flow.zeros(3))

        def forward(self, x):
            self.mean = self.mean * 0.5 + x.mean(0) * 0.5
            return x - self.mean

    eager, twin = Average(), Average()
    graph = graph_of(lambda g, x: g.m0(x), twin)
    for _ in range(3):
        assert_same(graph(X), eager(X).numpy())
        assert_same(twin.mean, eager.mean.numpy())


def test_forward_called_directly_is_recorded_too():
    layer = nn.Linear(3, 2)
    graph = graph_of(lambda g, x: g.m0.forward(x), layer)
    assert_same(graph(X), layer(X).detach().numpy())


def test_forward_called_directly_where_a_flag_would_be_lost():
    layer = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    optimizer = flow.optim.SGD(layer.parameters(), lr=0.1)
    graph = graph_of(lambda g, x: g.m0.forward(x).sum().backward(), layer, optimizer=optimizer)
    graph.m0.config.activation_checkpointing = True
    with pytest.raises(GraphError, match="forward"):
        graph(X)


def test_forward_hooks_are_honoured():
    layer = nn.Linear(3, 2)
    layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    layer.register_forward_hook(lambda module, args, output: output * 3)
    graph = graph_of(lambda g, x: g.m0(x), layer)
    for _ in range(2):
        assert_same(graph(X), layer(X).detach().numpy())


def test_backward_hooks_are_honoured():
    layers = []
    for _ in range(2):
        flow.manual_seed(0)
        layer = nn.Linear(3, 2)
        layer.weight.register_hook(lambda g: g * 10)
        layer.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        layers.append(layer)
    eager, twin = layers
    graph = graph_of(lambda g, x: g.m0(x).sum().backward(), twin, optimizer=flow.optim.SGD(twin.parameters(), lr=0.1))
    graph(X)
    optimizer = flow.optim.SGD(eager.parameters(), lr=0.1)
    eager(X).sum().backward()
    optimizer.step()
    assert_same(twin.weight.detach(), eager.weight.detach().numpy())


# memory


def test_an_input_that_is_a_view():
    base = flow.arange(24).float().view(4, 6)
    graph = graph_of(lambda g, x: (x * 2, x.transpose(0, 1).reshape(-1)))
    for x in (base[1:3, ::2], base.t()[:2, 1:4], base[:1, :3].expand(2, 3), base.view(-1)[3:9].view(2, 3)):
        doubled, flat = graph(x)
        assert_same(doubled, (x * 2).numpy())
        assert_same(flat, x.transpose(0, 1).reshape(-1).numpy())


def test_an_output_that_aliases_an_input_is_a_copy():
    x = X.clone()
    same, view = graph_of(lambda g, x: (x, x.view(-1)))(x)
    x.fill_(0.0)
    assert_same(same, X.numpy())
    assert_same(view, X.view(-1).numpy())


def test_an_output_that_is_a_parameter_is_a_copy():
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    out = graph_of(lambda g, x: g.m0.weight, layer)(X)
    flow.nn.init.zeros_(layer.weight)
    assert_same(out.detach(), before.numpy())


def test_outputs_are_not_overwritten_by_later_calls():
    graph = graph_of(lambda g, x: x * 2)
    outputs = [graph(X + n) for n in range(5)]
    for n, out in enumerate(outputs):
        assert_same(out, ((X + n) * 2).numpy())


def test_the_same_tensor_passed_twice():
    graph = graph_of(lambda g, x, y: x * y + x)
    assert_same(graph(X, X), (X * X + X).numpy())
    other = X + 1
    assert_same(graph(X, other), (X * other + X).numpy())


def test_inputs_are_the_graphs_own_copies():
    def build(g, x):
        x.add_(1)
        return x * 2

    x = X.clone()
    graph = graph_of(build)
    for _ in range(2):
        assert_same(graph(x), ((X + 1) * 2).numpy())
        assert_same(x, X.numpy(), what="what was given")


def test_a_parameter_as_input_while_it_is_updated():
    layer = nn.Linear(3, 2, bias=False)
    optimizer = flow.optim.SGD(layer.parameters(), lr=1.0)

    def build(g, x, w):
        g.m0(x).sum().backward()
        return w * 1

    before = layer.weight.detach().clone()
    out = graph_of(build, layer, optimizer=optimizer)(X, layer.weight.detach())
    assert_same(out, before.numpy())
    assert (layer.weight.detach() != before).any().item()


# life


def test_a_graph_called_in_build_of_another():
    inner = graph_of(lambda g, x: x * 2)
    with pytest.raises(GraphTraceError, match="cannot be called within the build of another"):
        graph_of(lambda g, x: inner(x))(X)


def test_a_module_moved_to_another_device_after_compilation():
    layer = nn.LayerNorm(3)
    graph = graph_of(lambda g, x: g.m0(x), layer)
    want = graph(X).numpy().copy()
    layer.to("cuda")
    with pytest.raises(flow.errors.DeviceError, match="cuda:0"):
        graph(X)
    got = graph(X.to("cuda"))
    assert got.device.type == "cuda"
    assert_close(got.cpu(), want, rtol=1e-5)
    layer.to("cpu")
    assert_same(graph(X), want)


def test_an_exception_in_the_first_call_leaves_the_graph_and_the_model_as_they_were():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    fail = [True]

    def build(g, x):
        y = g.m0(x)
        if fail[0]:
            raise KeyError("in build")
        y.sum().backward()
        return y

    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    graph = graph_of(build, model, optimizer=optimizer)
    flow.manual_seed(3)
    state = flow.get_rng_state()
    values = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(KeyError, match="in build"):
        graph(X)
    assert not graph.is_compiled
    assert_same(flow.get_rng_state(), state.numpy())
    for name, value in model.state_dict().items():
        assert_same(value, values[name].numpy())
    assert all(p.grad is None for p in model.parameters())
    fail[0] = False
    graph(X)
    assert graph.is_compiled


def test_a_bad_class_target_is_refused_at_replay_too():
    table = nn.Embedding(5, 2)
    graph = graph_of(lambda g, i: g.m0(i), table)
    graph(flow.tensor([0, 4]))
    with pytest.raises(flow.errors.IndexRangeError):
        graph(flow.tensor([0, 5]))
    loss = graph_of(lambda g, x, t: nn.functional.cross_entropy(x, t))
    loss(X, flow.tensor([0, 2]))
    with pytest.raises(flow.errors.IndexRangeError):
        loss(X, flow.tensor([0, 3]))
    rows = graph_of(lambda g, x, i: x[i])
    rows(X, flow.tensor([1, -1]))
    with pytest.raises(flow.errors.IndexRangeError):
        rows(X, flow.tensor([2]))
    with pytest.raises(flow.errors.IndexRangeError):
        rows(X, flow.tensor([1, 7]))


def test_two_graphs_over_one_module_in_turns():
    flow.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    train = graph_of(lambda g, x: g.m0(x).square().sum().backward(), model, optimizer=optimizer)
    evaluate = graph_of(lambda g, x: g.m0(x), model)
    for _ in range(3):
        train(X)
        assert_same(evaluate(X), model(X).detach().numpy())


def test_graphs_in_several_threads():
    shared = graph_of(lambda g, x: (x * 2).exp())
    wrong = []

    def work(number):
        own = graph_of(lambda g, x: x * number + 1)
        for step in range(20):
            x = X + number + step / 8
            if not np.array_equal(own(x).numpy(), (x * number + 1).numpy()):
                wrong.append(("own", number, step))
            if not np.allclose(shared(x).numpy(), (x * 2).exp().numpy(), rtol=1e-6):
                wrong.append(("shared", number, step))
            eager = flow.tensor(2.0, requires_grad=True)
            (eager * 3).backward()
            if eager.grad.item() != 3.0:
                wrong.append(("eager", number, step))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_attribute_of_a_module_that_changes_is_noticed(capsys):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = 2.0

        def forward(self, x):
            return x * self.factor

    layer = Scale()
    graph = graph_of(lambda g, x: g.m0(x), layer)
    assert_same(graph(X), (X * 2).numpy())
    graph.debug(0)
    layer.factor = 3.0
    assert_same(graph(X), (X * 3).numpy())
    assert "m0.factor is 3.0, was 2.0" in capsys.readouterr().out
    layer.factor = 2.0
    assert_same(graph(X), (X * 2).numpy())


def test_train_and_eval_are_two_plans():
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    graph = graph_of(lambda g, x: g.m0(x), model)
    graph(X)
    model.eval()
    assert_same(graph(X), model(X).detach().numpy())
    model.train()
    state = flow.get_rng_state()
    got = graph(X)
    flow.set_rng_state(state)
    assert_same(got, model(X).detach().numpy())


def test_memory_of_a_parameter_that_is_read_elsewhere_after_backward():
    flow.manual_seed(0)
    layer = nn.Linear(300, 300, bias=False)  # large: its update is moved to where its gradient is made
    part = layer.weight.detach()[:2]
    x = flow.randn(4, 300)

    def build(g, x):
        g.m0(x).square().sum().backward()
        return part * 2

    graph = graph_of(build, layer, optimizer=flow.optim.SGD(layer.parameters(), lr=0.1))
    for _ in range(2):
        before = part.clone()
        assert_same(graph(x), (before * 2).numpy())
        assert (part != before).any().item()
