"""Memory and state that a step finds, changes or keeps: as in eager mode, or an error that names it."""

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphTraceError
from miniflow.graph import trace
from miniflow.graph.overlap import sharing

X = flow.tensor([1.0, 2.0])


class Weighted(nn.Module):
    """A weight, and buffers by name."""

    def __init__(self, **buffers):
        super().__init__()
        self.w = nn.Parameter(flow.tensor([1.5, -0.5]))
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)


class Calls(nn.Module):
    """Its forward is a function of the module and x; attributes are given by name."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.__dict__["function"] = function
        self.__dict__.update(attributes)

    def forward(self, x):
        return self.function(self, x)


def graph_of(function, *modules, optimizer=None):
    class Anonymous(nn.Graph):
        def __init__(self):
            super().__init__()
            for i, module in enumerate(modules):
                setattr(self, f"m{i}", module)
            if optimizer is not None:
                self.add_optimizer(optimizer)

        def build(self, *inputs):
            return function(*inputs)

    return Anonymous()


def buffered(function, **buffers):
    module = Calls(function)
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer)
    return module


def assert_equal_calls(make, count=4):
    """Calls of a graph over a module equal eager calls of its twin, buffers too."""
    eager, module = make(), make()
    graph = graph_of(lambda x: module(x), module)
    for k in range(count):
        x = X * (k + 1)
        assert_same(graph(x), eager(x).detach().numpy())
        for got, want in zip(module.buffers(), eager.buffers(), strict=True):
            assert_same(got, want.numpy())


# in-place operations


def multiplied_twice(m, x):
    y = flow.ones(2)
    y.mul_(m.w)
    y.mul_(m.w)
    return (y * x).sum()


def multiplied_buffer(m, x):
    h = m.h.detach()
    h.mul_(m.w)
    h.mul_(m.w)
    return (h * x).sum()


def rows(m, x):
    y = flow.zeros(2, 2)
    y[0] = m.w * x
    y[1] = x
    y *= m.w
    return y.square_().sum()


@pytest.mark.parametrize("loss", [multiplied_twice, multiplied_buffer, rows])
def test_gradients_of_what_was_written_twice(loss):
    results = []
    for in_graph in (False, True):
        m = Weighted(h=flow.tensor([1.0, 2.0]))
        optimizer = flow.optim.SGD(m.parameters(), lr=0.01)

        def step(x, m=m):
            y = loss(m, x)
            y.backward()
            return y

        graph = graph_of(step, m, optimizer=optimizer) if in_graph else None
        for _ in range(3):
            if in_graph:
                graph(X)
            else:
                optimizer.zero_grad()
                step(X)
                optimizer.step()
        results.append((m.w.detach().numpy(), m.h.numpy()))
    for want, got in zip(*results, strict=True):
        assert_close(got, want)


# buffers


def delay(m, x):
    y = x + 10 * m.h1 + 100 * m.h2
    m.h2 = m.h1
    m.h1 = x
    return y


def swap(m, x):
    m.h1, m.h2 = m.h2, m.h1
    return x + m.h1


@pytest.mark.parametrize("function", [delay, swap])
def test_assigned_buffers_are_read_before_they_are_written(function):
    assert_equal_calls(lambda: buffered(function, h1=flow.zeros(2), h2=flow.ones(2)))


def mean(m, x):
    m.mean = m.mean * 0.5 + x
    return m.mean * 1


def test_an_assigned_buffer_leaves_the_tensor_alone_that_it_was_made_from():
    template = flow.zeros(2)
    module = buffered(mean, mean=template)
    graph = graph_of(lambda x: module(x), module)
    for expected in (1.0, 1.5, 1.0, 1.5):
        if expected == 1.0:
            module.mean = template
        assert graph(X)[0].item() == expected
    assert template.tolist() == [0.0, 0.0]


def test_an_assigned_buffer_is_written_to_by_later_calls():
    """Unlike in eager mode, where `old` stays as it is."""
    module, eager = (buffered(mean, mean=flow.zeros(2)) for _ in range(2))
    graph = graph_of(lambda x: module(x), module)
    graph(X), eager(X)
    old, copied, old_eager = module.mean, module.mean.clone(), eager.mean
    graph(X), eager(X)
    assert old is module.mean and old.tolist() == eager.mean.tolist() == [1.5, 3.0]
    assert copied.tolist() == old_eager.tolist() == [1.0, 2.0]


def shared_with_a_parameter():
    module = buffered(lambda m, x: mean(m, x) + m.w)
    module.w = nn.Parameter(flow.ones(2))
    module.register_buffer("mean", module.w.detach())
    return module


def shared_with_a_buffer():
    zeros = flow.zeros(2)
    return buffered(mean, mean=zeros, other=zeros)


def test_an_assigned_buffer_in_shared_memory_is_refused():
    for make in (shared_with_a_parameter, shared_with_a_buffer):
        module = make()
        with pytest.raises(GraphTraceError, match=r"buffer m0\.mean, .*\.clone\(\)"):
            graph_of(lambda x, m=module: m(x), module)(X)
        assert isinstance(module.mean._array, np.ndarray)


def test_a_buffer_that_would_follow_a_parameter_is_refused():
    module = Weighted(old=flow.zeros(2))

    def step(x):
        loss = (module.w * x + module.old).sum()
        module.old = module.w.detach()
        loss.backward()

    with pytest.raises(GraphTraceError, match=r"m0\.old the memory of m0\.w.*clone"):
        graph_of(step, module, optimizer=flow.optim.SGD(module.parameters(), lr=0.1))(X)


def test_buffers_of_modules_in_a_list():
    eager, module = (buffered(mean, mean=flow.zeros(2)) for _ in range(2))
    graph = graph_of(lambda x: [module][0](x))
    for _ in range(3):
        assert_same(graph(X), eager(X).numpy())
        assert_same(module.mean, eager.mean.numpy())
    module(X)  # is as usable as before


def test_a_buffer_that_is_written_gets_no_history():
    def forward(m, x):
        y = m.w * x
        m.mean.mul_(0.5).add_(y)
        return y

    module = buffered(forward, mean=flow.zeros(2))
    module.w = nn.Parameter(flow.ones(2))
    graph = graph_of(lambda x: module(x), module)
    graph(X)
    assert not module.mean.requires_grad
    assert module.mean.numpy().tolist() == [1.0, 2.0]
    copy.deepcopy(module)(X)


# state in Python


def lazy(m, x):
    if m.h is None:
        m.h = flow.zeros(2)
    m.h = m.h * 0.5 + x
    return m.h * 1


def lazy_in_place(m, x):
    if m.h is None:
        m.h = flow.zeros(2)
    m.h += x
    return m.h * 1


def plain(m, x):
    m.h = m.h * 0.5 + x
    return m.h * 1


def lazy_from_an_input(m, x):
    if m.h is None:
        m.h = x
    else:
        m.h = m.h * 0.5 + x
    return m.h * 1


def first_of_all(m, x):
    if m.h is None:
        m.h = x * 1
    return m.h + x - x


def absent(m, x):
    if not hasattr(m, "h"):
        m.h = x
    m.h = m.h * 1
    return m.h * 1


def random(m, x):
    if m.h is None:
        m.h = flow.rand(2)
    return x + 0 * m.h


def pair(m, x):
    h, count = m.h or (x * 0, 0)
    m.h = h + x, count + 1
    return m.h[0] * 1


def total(m, x):
    m.h = m.h + x
    return m.h * 1


def in_a_list(m, x):
    m.h[0] = m.h[0] * 0.5 + x
    return m.h[0] * 1


@pytest.mark.parametrize(
    ("function", "before"),
    [
        (plain, flow.zeros(2)),
        (in_a_list, [flow.zeros(2)]),
        (lazy, None),
        (lazy_in_place, None),
        (total, 0.0),
        (lazy_from_an_input, None),
        (first_of_all, None),
        (random, None),
        (pair, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_state_in_plain_attributes_is_refused(function, before):
    module = Calls(function, h=before)
    with pytest.raises(GraphTraceError, match=r"m0\.h .*register_buffer\('h'"):
        graph_of(lambda x: module(x), module)(X)
    assert module.h is before
    assert module(X).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("learns", [False, True])
def test_an_average_of_parameters_that_is_made_later_is_refused_where_they_are_updated(learns):
    def step(x):
        if module.h is None:
            module.h = module.w.detach().clone()
        module.h.mul_(0.5).add_(module.w.detach() * 0.5)
        y = (x * module.w).sum()
        return y.backward() if learns else y

    module = Calls(None, h=None)
    module.w = nn.Parameter(flow.ones(2))
    graph = graph_of(step, module, optimizer=flow.optim.SGD(module.parameters(), lr=0.1) if learns else None)
    if learns:
        with pytest.raises(GraphTraceError, match=r"m0\.h .*register_buffer\('h'"):
            graph(X)
    else:
        assert_same(graph(X), X.sum().numpy())
    assert module.h is None


@pytest.mark.parametrize("given", [{}, {"h": None}])
def test_state_that_is_absent_or_none_in_the_class_is_refused(given):
    module = type("Lazy", (Calls,), given)(lazy_from_an_input if given else absent)
    with pytest.raises(GraphTraceError, match=r"m0\.h .*register_buffer\('h'"):
        graph_of(lambda x: module(x), module)(X)
    assert "h" not in vars(module) and "__getattribute__" not in vars(nn.Module)
    assert module(X).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("function", [lazy, lazy_in_place])
def test_a_buffer_that_is_made_later_is_refused(function):
    module = buffered(function, h=None)
    with pytest.raises(GraphTraceError, match=r"m0\.h .*register_buffer"):
        graph_of(lambda x: module(x), module)(X)
    assert module.h is None


def test_state_in_a_list_of_the_graph_is_refused():
    graph = graph_of(lambda x: in_a_list(graph, x))
    graph.h = [flow.zeros(2)]
    with pytest.raises(GraphTraceError, match=r"Anonymous_\d+\.h "):
        graph(X)
    assert graph.h[0].tolist() == [0.0, 0.0]


def masked(m, x):
    if m.mask is None:
        m.mask = flow.tril(flow.ones(2, 2)) == 0
    m.kept = x * 3
    m.all.append(x * 2)
    return x + m.mask.float().sum(0)


def test_masks_that_are_made_once_and_activations_that_are_kept():
    module = Calls(masked, mask=None, all=[])
    first, second = (graph_of(lambda x: module(x), module) for _ in range(2))
    expected = (X + flow.tensor([0.0, 1.0])).numpy()
    for graph in (first, second):
        assert_same(graph(X), expected)
        assert module.mask is None and module.all == [] and "kept" not in vars(module)
    assert_same(module(X), expected)
    assert_same(second(X), expected)
    flow.ones(3) + first(flow.ones(3, 2)).sum()  # is recorded again, now with tensors in the attributes
    assert isinstance(module.mask._array, np.ndarray) and module.kept.tolist() == [3.0, 6.0]


def stored(m, x):
    m.last = x * 2
    m.last = m.last + 1
    return m.last * 3


def stored_twice(m, x):
    for _ in range(2):
        m.last = x = x.tanh() if m.count else x
    return x


def summed_up_again(m, x):
    m.loss = 0.0
    for part in (x, x * 2):
        m.loss = m.loss + part.sum()
    return m.loss * 1


def cached_angles(m, x):
    if m.angles is None or m.angles.shape != x.shape:
        m.angles = m.frequencies * 2
    return x + m.angles


@pytest.mark.parametrize("function", [stored, stored_twice, summed_up_again, cached_angles])
def test_activations_and_caches_in_attributes(function):
    def make():
        module = Calls(function, last=None, loss=None, angles=None, count=2)
        module.register_buffer("frequencies", flow.tensor([3.0, 4.0]))
        return module

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*build left tensors in m0.l")
        assert_equal_calls(make)


def initialised_by_data(m, x):
    if not m.is_ready:
        with flow.no_grad():
            m.mean.copy_(x)
        m.is_ready = True
    return x - m.mean


def initialised_and_stored(m, x):
    m.last = initialised_by_data(m, x)
    return m.last * 1


@pytest.mark.parametrize("function", [initialised_by_data, initialised_and_stored])
def test_a_flag_that_build_sets_after_it_has_read_it_is_refused(function):
    """Unless eager code has set it before."""
    module, eager = (buffered(function, mean=flow.zeros(2)) for _ in range(2))
    module.is_ready = eager.is_ready = False
    with pytest.raises(GraphTraceError, match=r"build reads m0\.is_ready and then changes it.* before the first call"):
        graph_of(lambda x: module(x), module)(X)
    assert not module.is_ready and module.mean.tolist() == [0.0, 0.0]
    assert_same(module(X), eager(X).numpy())
    graph = graph_of(lambda x: module(x), module)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*build left tensors in m0.last")
        for k in (2, 3):
            assert_same(graph(X * k), eager(X * k).numpy())


@pytest.mark.parametrize("given", [{}, {"layer": None}, {"layer": nn.ReLU()}])
def test_a_module_that_build_makes_is_refused(given):
    def forward(m, x):
        if not isinstance(getattr(m, "layer", None), nn.Linear):
            m.layer = nn.Linear(2, 2)
        return m.layer(x)

    module = Calls(forward)
    for name, value in given.items():
        setattr(module, name, value)
    with pytest.raises(GraphTraceError, match=r"build assigns the module m0\.layer, .*in __init__"):
        graph_of(lambda x: module(x), module)(X)
    assert getattr(module, "layer", None) is given.get("layer")
    expected = module(X)
    assert_same(graph_of(lambda x: module(x), module)(X), expected.detach().numpy())


def test_a_flag_of_the_graph_that_build_sets_after_it_has_read_it_is_refused():
    def build(x):
        graph.is_first, was_first = False, graph.is_first
        return x * 2 if was_first else x * 1

    graph = graph_of(build)
    graph.is_first = True
    with pytest.raises(GraphTraceError, match=r"build reads Anonymous_\d+\.is_first and then changes it"):
        graph(flow.ones(1))
    assert graph.is_first


def rotated(m, x):
    if m.length != len(x):
        m.length, m.cache.angles = len(x), flow.arange(len(x)) * 1.0
    return x + m.cache.angles


@pytest.mark.parametrize("length", [0, 3])
def test_a_cache_and_the_flag_that_says_what_it_holds_are_put_back_together(length):
    module, eager = (Calls(rotated, length=0, cache=SimpleNamespace(angles=None)) for _ in range(2))
    if length:
        module(flow.ones(length))
    graphs = [graph_of(lambda x: module(x), module) for _ in range(2)]
    for x in (X, flow.ones(4), X):
        for call in (*graphs, module):
            assert_same(call(x), eager(x).numpy())


def test_a_graph_warns_once_of_tensors_in_attributes():
    module = Calls(stored, last=flow.zeros(2))
    graph = graph_of(lambda x: module(x), module)
    with pytest.warns(UserWarning, match=r"build left tensors in m0\.last; after a call .*register_buffer"):
        graph(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(flow.ones(3))
    assert module.last.tolist() == [0.0, 0.0]


def test_an_exception_in_build_leaves_attributes_as_they_were():
    fails = [True]

    def forward(m, x):
        m.mask = x * 2
        m.b = x * 3
        if fails:
            raise KeyError("x")
        return x

    module = Calls(forward, mask=None)
    module.register_buffer("b", flow.zeros(2))
    graph = graph_of(lambda x: module(x), module)
    with pytest.raises(KeyError):
        graph(X)
    assert module.mask is None and module.b.tolist() == [0.0, 0.0]
    fails.clear()
    graph(X)
    assert module.b.tolist() == [3.0, 6.0]


def test_modules_within_job_functions_keep_their_buffers():
    module, eager = buffered(mean, mean=flow.zeros(2)), buffered(mean, mean=flow.zeros(2))

    @flow.global_function(type="predict")
    def job(x: flow.typing.Numpy.Placeholder((2,))) -> flow.typing.Numpy:
        return module(x)

    for _ in range(3):
        assert_same(job(X.numpy()), eager(X).numpy())


# other memory


def set_data(m):
    m.w.data = m.w.data.clamp(0.0, 1.0)


def to_double(m):
    m.double()


@pytest.mark.parametrize("change", [set_data, to_double])
def test_other_memory_for_a_tensor_is_refused(change):
    module = Weighted()
    with pytest.raises(GraphTraceError, match=r"test_memory_in_build\.py:\d+: .*other memory"):
        graph_of(lambda x: change(module) or x * module.w, module)(X)
    assert module.w.tolist() == [1.5, -0.5]


def test_captured_tensors_are_the_users():
    scale = flow.tensor([2.0, 2.0])
    graph = graph_of(lambda x: x * scale)
    graph(X)
    for other in (flow.tensor([5.0, 7.0]), flow.tensor(3.0)):
        scale.data = other
        assert_same(graph(X), (X * other).numpy())


def test_a_write_to_a_captured_tensor_is_seen_by_the_tape():
    captured, w = flow.ones(2), flow.ones(2, requires_grad=True)
    graph = graph_of(lambda x: captured.add_(1) * x)
    graph(X)
    y = (w * captured).sum()
    graph(X)
    with pytest.raises(flow.errors.AutogradError):
        y.backward()


def test_other_tensors_on_the_array_of_a_state():
    first = flow.ones(2)
    second = first.detach()
    program = trace.record(
        lambda x: [x * first + second * second.detach()], [((2,), np.dtype("f4"), flow.device("cpu"))]
    )
    ((alias, tensor),) = program.aliases
    assert alias is second and tensor is first
    assert program.with_().aliases == program.aliases


@pytest.mark.parametrize(
    "look",
    [
        lambda s, x: flow.tensor(s),
        lambda s, x: flow.tensor([s, 1.0]),
        lambda s, x: x.new_tensor(s),
        lambda s, x: copy.deepcopy(s),
        lambda s, x: nn.functional.one_hot(s.long()),
        lambda s, x: nn.functional.one_hot(LABELS),
        lambda s, x: LABELS.nonzero(),
    ],
    ids=["tensor", "list", "new_tensor", "deepcopy", "one_hot", "one_hot of a captured tensor", "nonzero"],
)
def test_values_are_not_burned_in(look):
    module = Weighted(s=flow.tensor(2.0))
    with pytest.raises(GraphTraceError, match=r"depends on values|cannot be looked at in nn\.Graph\.build"):
        graph_of(lambda x: x.sum() * look(module.s, x), module)(X)


LABELS = flow.tensor([0, 2])


# states in one memory


def test_two_parameters_in_one_memory_that_are_both_updated():
    first = nn.Parameter(flow.ones(2, 2))
    second = nn.Parameter(first.data.t())
    graph = graph_of(lambda x: (x @ first @ second).sum().backward(), optimizer=flow.optim.SGD([first, second], lr=0.1))
    with pytest.raises(GraphTraceError, match=r"param\.\d and optimizer\.0\.param\.\d share memory.*\.clone\(\)"):
        graph(X)


def test_a_view_that_is_read_after_its_memory_was_written():
    def forward(m, x):
        y = x + m.head if m.reads_first else None
        m.buf.add_(1)
        return x + m.head if y is None else y

    for reads_first in (False, True):
        module = Calls(forward, reads_first=reads_first)
        module.register_buffer("buf", flow.zeros(4))
        module.head = module.buf[:2]
        graph = graph_of(lambda x, m=module: m(x), module)
        if not reads_first:
            with pytest.raises(GraphTraceError, match="share memory.*reads the other"):
                graph(X)
        else:
            assert [graph(X)[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]


def test_views_that_interleave_share_nothing():
    memory = np.zeros((4, 4), np.float32)
    device = flow.zeros(4, 4, device="cuda")._array
    columns = {name: memory[:, part] for name, part in PARTS.items()}
    columns |= {f"cuda {name}": device.view(lambda a, part=part: a[:, part]) for name, part in PARTS.items()}
    found = {frozenset(pair) for pair in sharing(columns)}
    assert found == {frozenset(pair) for pair in [("left", "middle"), ("middle", "right")]} | {
        frozenset(pair) for pair in [("cuda left", "cuda middle"), ("cuda middle", "cuda right")]
    }


PARTS = {"left": slice(0, 2), "middle": slice(1, 3), "right": slice(2, 4)}


# generators and constants


@pytest.mark.parametrize(
    "use",
    [
        lambda: flow.manual_seed(3),
        lambda: flow.Generator(),
        lambda: GENERATOR.manual_seed(3),
        lambda: GENERATOR.set_state(STATE),
        flow.get_rng_state,
        flow.seed,
    ],
)
def test_generators_are_seeded_outside(use):
    with pytest.raises(GraphTraceError, match=r"seed the generator before the call"):
        graph_of(lambda x: use() and x)(X)


GENERATOR = flow.Generator()
STATE = GENERATOR.get_state()


@pytest.mark.filterwarnings("ignore:.*becomes a constant")
def test_numpy_arguments_are_copied():
    graph = graph_of(lambda x, k: x * k)
    k = np.array([1.0, 2.0], np.float32)
    graph(X, k)
    k[:] = 10
    graph(X, k)
    assert_same(graph(X, np.array([1.0, 2.0], np.float32)), np.array([1.0, 4.0], np.float32))
    signs = [graph(flow.ones(2), k).numpy() for k in (np.float32(0.0), np.float32(-0.0))]
    assert [bool(np.signbit(y).all()) for y in signs] == [False, True]


@pytest.mark.parametrize("wrap", [flow.from_numpy, flow.as_tensor])
def test_memory_of_numpy_arrays_is_read_again_and_not_written(wrap):
    table = np.float32([3.0, 4.0])

    class Reads(nn.Graph):
        def build(self, x):
            return wrap(table) * 2 + x

    graph = Reads()
    assert_same(graph(X), np.float32([7.0, 10.0]))
    table[0] = 5.0
    assert_same(graph(X), np.float32([11.0, 10.0]))

    class Writes(nn.Graph):
        def build(self, x):
            total = wrap(np.zeros(2, np.float32))
            total[:1] += x[:1]
            return total

    with pytest.raises(GraphTraceError, match=r"test_memory_in_build.py:\d+: got a write .* use flow.tensor\(array\)"):
        Writes()(X)
