"""Parameters as vectors, and parametrizations, beside PyTorch's."""

import copy
import math

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
pytest.importorskip("torch.nn.utils.prune")

pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def pair(make):
    ours, theirs = make(flow.nn).double(), make(torch.nn).double()
    ours.load_state_dict({k: flow.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def trained(layers, shape, steps=4):
    """Results, parameters and buffers after some steps of both."""
    for framework, layer in zip((flow, torch), layers, strict=True):
        optimizer = framework.optim.SGD(layer.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            y = layer(framework.tensor(draw(*shape, seed=step)))
            (y * framework.tensor(draw(*y.shape, seed=step + 9))).sum().backward()
            optimizer.step()
    ours, theirs = (x.state_dict() for x in layers)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        assert_close(ours[name], value, rtol=1e-8, atol=1e-9, what=name)


LAYERS = {
    "linear": (lambda nn: nn.Linear(4, 3), (5, 4)),
    "conv": (lambda nn: nn.Conv2d(2, 3, 3), (2, 2, 5, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(name, dim):
    make, shape = LAYERS[name]
    if dim is None and name == "conv":
        dim = -1
    layers = pair(lambda nn: nn.utils.parametrizations.weight_norm(make(nn), dim=dim))
    trained(layers, shape)
    weight = layers[0].weight.detach().numpy()
    plain = flow.nn.utils.parametrize.remove_parametrizations(layers[0], "weight")
    assert sorted(plain.state_dict()) == ["bias", "weight"] and type(plain) is type(make(flow.nn))
    assert_close(plain.weight.detach(), weight)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("count", [1, 3])
def test_spectral_norm(name, count):
    make, shape = LAYERS[name]
    layers = pair(lambda nn: nn.utils.parametrizations.spectral_norm(make(nn), n_power_iterations=count))
    trained(layers, shape)
    x = draw(*shape)
    assert_close(layers[0].eval()(flow.tensor(x)).detach(), layers[1].eval()(torch.tensor(x)).detach(), rtol=1e-9)
    weight = flow.nn.utils.parametrize.remove_parametrizations(layers[0], "weight").weight
    assert_close(weight.detach(), layers[1].weight.detach(), rtol=1e-9)


NAMED = {
    **{name: (make, shape, ["weight"]) for name, (make, shape) in LAYERS.items()},
    "transposed": (lambda nn: nn.ConvTranspose2d(2, 3, 3), (2, 2, 5, 5), ["weight"]),
    "lstm": (lambda nn: nn.LSTM(4, 3), (5, 2, 4), ["weight_hh_l0", "weight_ih_l0"]),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("name", NAMED)
def test_norms_whose_tensors_are_members(norm, name):
    """In values, gradients and names; the state of either kind is read by the other."""
    make, shape, names = NAMED[name]

    def made(nn, functions):
        layer = make(nn)
        for parameter in names:
            getattr(functions, norm)(layer, parameter)
        return layer

    def run(layer, framework):
        y = layer(framework.tensor(draw(*shape)))
        return y[0] if name == "lstm" else y

    ours, theirs = layers = pair(lambda nn: made(nn, nn.utils))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert type(ours).__name__ == type(theirs).__name__
    for _ in range(2):
        results = [run(layer, framework) for layer, framework in zip(layers, (flow, torch), strict=True)]
        assert_close(results[0].detach(), results[1].detach(), rtol=1e-9)
        for y, framework in zip(results, (flow, torch), strict=True):
            (y * framework.tensor(draw(*y.shape, seed=7))).sum().backward()
        for (key, p), (other, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert key == other
            assert_close(p.grad, q.grad, rtol=1e-8, atol=1e-9, what=key)
    new = made(flow.nn, flow.nn.utils.parametrizations).double()
    new.load_state_dict(ours.state_dict())
    again = made(flow.nn, flow.nn.utils).double()
    again.load_state_dict(new.state_dict())
    want = run(ours.eval(), flow).detach().numpy()
    for layer in (new, again):
        assert_close(run(layer.eval(), flow).detach(), want, rtol=1e-9)
    twin = copy.deepcopy(again)
    for parameter in names:
        getattr(flow.nn.utils, f"remove_{norm}")(again, parameter)
    assert sorted(again.state_dict()) == sorted(make(flow.nn).state_dict()) and type(again) is type(make(flow.nn))
    for layer in (again, twin):
        assert_close(run(layer, flow).detach(), want, rtol=1e-9)


def test_parametrizations_of_ones_own():
    def make(nn):
        layer = nn.Linear(3, 3)
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
        return nn.utils.parametrize.register_parametrization(layer, "bias", nn.Sigmoid())

    layers = pair(make)
    trained(layers, (4, 3))
    ours, theirs = layers
    parametrize = flow.nn.utils.parametrize
    with parametrize.cached():
        assert ours.weight is ours.weight
    assert ours.weight is not ours.weight and parametrize.is_parametrized(ours, "weight")
    parametrize.remove_parametrizations(ours, "weight", leave_parametrized=False)
    torch.nn.utils.parametrize.remove_parametrizations(theirs, "weight", leave_parametrized=False)
    assert_close(ours.weight.detach(), theirs.weight.detach(), rtol=1e-9)
    assert parametrize.is_parametrized(ours) and not parametrize.is_parametrized(ours, "weight")


def test_vectors():
    ours, theirs = pair(LAYERS["linear"][0])
    vector = flow.nn.utils.parameters_to_vector(ours.parameters())
    assert_close(vector.detach(), torch.nn.utils.parameters_to_vector(theirs.parameters()).detach())
    flow.nn.utils.vector_to_parameters(vector * 2, ours.parameters())
    assert_close(ours.weight.detach(), 2 * theirs.weight.detach())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda u: u.vector_to_parameters(flow.zeros(3), [flow.zeros(2)]), r"expected \(2,\)"),
        (lambda u: u.weight_norm(flow.nn.Linear(2, 2), "weights"), "got 'weights'"),
        (lambda u: u.parametrizations.weight_norm(flow.nn.Linear(2, 2), "weights"), "got 'weights'"),
        (lambda u: u.remove_weight_norm(flow.nn.Linear(2, 2)), "no such norm"),
        (lambda u: u.spectral_norm(flow.nn.Linear(2, 2), n_power_iterations=0), "at least 1"),
        (lambda u: u.parametrize.remove_parametrizations(flow.nn.Linear(2, 2), "bias"), "is not parametrized"),
        (
            lambda u: u.parametrize.register_parametrization(flow.nn.Linear(2, 2), "weight", flow.nn.Flatten(0)),
            r"weight became \(4,\)",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call(flow.nn.utils)


SHAPES = [(4, 4), (5, 3), (3, 5), (2, 4, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("orthogonal_map", [None, "matrix_exp", "cayley", "householder"])
def test_orthogonal(shape, orthogonal_map):
    start, layers = draw(*shape), []
    for framework in (flow, torch):
        module = framework.nn.Module()
        module.weight = framework.nn.Parameter(framework.tensor(start))
        layers.append(framework.nn.utils.parametrizations.orthogonal(module, "weight", orthogonal_map))
    ours, theirs = layers
    k = min(shape[-2:])
    assert_close(ours.weight.detach(), theirs.weight.detach(), rtol=1e-9, atol=1e-12)  # Q of the weight
    ours.load_state_dict({name: flow.tensor(x.numpy()) for name, x in theirs.state_dict().items()})
    for step in range(4):
        for framework, layer in ((flow, ours), (torch, theirs)):
            optimizer = framework.optim.SGD(layer.parameters(), lr=0.2)
            optimizer.zero_grad()
            (layer.weight * framework.tensor(draw(*shape, seed=step))).sum().backward()
            optimizer.step()
    weight = ours.weight.detach()
    assert_close(weight, theirs.weight.detach(), rtol=1e-9, atol=1e-12)
    tall = weight if shape[-2] >= shape[-1] else weight.transpose(-1, -2)
    assert_close(tall.transpose(-1, -2) @ tall, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), rtol=1e-9, atol=1e-12)


def test_orthogonal_refuses():
    layer = flow.nn.Linear(2, 2)
    for options in ({"orthogonal_map": "qr"}, {"use_trivialization": False}):
        with pytest.raises(flow.errors.ArgumentError, match="orthogonal: got orthogonal_map="):
            flow.nn.utils.parametrizations.orthogonal(layer, **options)
    with pytest.raises(flow.errors.ShapeError, match=r"got bias of shape \(2,\)"):
        flow.nn.utils.parametrizations.orthogonal(layer, "bias")


@pytest.mark.parametrize("size", [0.0, 1e-3, 0.5, 1.0, 30.0])
def test_matrix_exp(size):
    x = size * draw(2, 4, 4)
    ours, theirs = flow.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    for framework, given in ((flow, ours), (torch, theirs)):
        y = framework.linalg.matrix_exp(given - given.transpose(-1, -2))
        (y * framework.tensor(draw(2, 4, 4, seed=1))).sum().backward()
    assert_close(flow.linalg.matrix_exp(ours).detach(), torch.linalg.matrix_exp(theirs).detach(), rtol=1e-9)
    assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10)


PRUNING = {
    "l1": lambda prune, layer: prune.l1_unstructured(layer, "weight", 0.3),
    "l1 twice": lambda prune, layer: prune.l1_unstructured(prune.l1_unstructured(layer, "weight", 5), "weight", 0.5),
    "ln": lambda prune, layer: prune.ln_structured(layer, "weight", 0.4, n=2, dim=0),
    "ln twice": lambda prune, layer: prune.ln_structured(
        prune.ln_structured(layer, "weight", 1, n=1, dim=1), "weight", 2, n=float("inf"), dim=1
    ),
    "l1 after ln": lambda prune, layer: prune.l1_unstructured(
        prune.ln_structured(layer, "weight", 1, n=2, dim=0), "weight", 0.5
    ),
    "identity": lambda prune, layer: prune.identity(layer, "bias"),
}


@pytest.mark.parametrize("name", PRUNING)
def test_pruning(name):
    layers = pair(lambda nn: nn.Linear(4, 5))
    for framework, layer in zip((flow, torch), layers, strict=True):
        assert PRUNING[name](framework.nn.utils.prune, layer) is layer
        assert framework.nn.utils.prune.is_pruned(layer)
    trained(layers, (3, 4))  # compares the masks, too
    pruned = "bias" if name == "identity" else "weight"
    weight = getattr(layers[0], pruned).detach()
    assert_close(weight, getattr(layers[0], f"{pruned}_orig").numpy() * getattr(layers[0], f"{pruned}_mask").numpy())
    for framework, layer in zip((flow, torch), layers, strict=True):
        framework.nn.utils.prune.remove(layer, pruned)
    assert_close(layers[0].state_dict()[pruned], weight.numpy())
    trained(layers, (3, 4))
    assert type(layers[0]) is flow.nn.Linear and not flow.nn.utils.prune.is_pruned(layers[0])


def test_pruning_by_scores_and_masks():
    def prune(nn, tensor):
        layer = nn.Linear(4, 5)
        scores, mask = tensor(draw(5, 4)), tensor((draw(5) > 0).astype(float))
        nn.utils.prune.l1_unstructured(layer, "weight", 0.5, importance_scores=scores)
        return nn.utils.prune.custom_from_mask(layer, "bias", mask)

    ours, theirs = prune(flow.nn, flow.tensor), prune(torch.nn, torch.tensor)
    for name in ("weight_mask", "bias_mask"):
        assert_close(getattr(ours, name), getattr(theirs, name))
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    assert set(dict(ours.named_parameters())) == {"weight_orig", "bias_orig"}


@pytest.mark.parametrize("amount", [0.4, 7])
def test_global_pruning(amount):
    layers = pair(lambda nn: nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)))
    for framework, net in zip((flow, torch), layers, strict=True):
        prune = framework.nn.utils.prune
        prune.l1_unstructured(net[0], "weight", 2)
        pairs = [(net[0], "weight"), (net[1], "weight"), (net[1], "bias")]
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=amount)
    trained(layers, (3, 4))


def test_random_pruning():
    layer, prune = flow.nn.Linear(6, 10), flow.nn.utils.prune
    prune.random_unstructured(layer, "weight", 0.25)
    assert (layer.weight_mask == 0).sum().item() == 15 and (layer.weight == 0).sum().item() == 15
    layer = prune.random_structured(flow.nn.Linear(6, 10), "weight", 2, dim=1)
    assert sorted((layer.weight_mask == 0).sum(0).tolist()) == [0] * 4 + [10] * 2


def test_a_pruning_method_of_ones_own():
    class EveryOther(flow.nn.utils.prune.BasePruningMethod):
        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    layer = flow.nn.Linear(2, 3)
    EveryOther.apply(layer, "weight")
    assert layer.weight_mask.tolist() == [[0, 1]] * 3
    EveryOther.apply(layer, "weight")
    assert layer.weight_mask.tolist() == [[0, 0], [0, 1], [0, 0]]


def test_pruning_refuses():
    layer, prune = flow.nn.Linear(2, 3), flow.nn.utils.prune
    for amount, words in ((1.5, "got amount=1.5; expected a count, or a fraction"), (7, "expected at most 6")):
        with pytest.raises(flow.errors.ArgumentError, match=words):
            prune.l1_unstructured(layer, "weight", amount)
    for call in (prune.identity, prune.remove):
        with pytest.raises(flow.errors.ArgumentError, match="got the name 'wait'"):
            call(layer, "wait")


def test_a_pruned_layer_trains_in_a_graph():
    class Train(flow.nn.Graph):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.1))

        def build(self, x):
            loss = self.layer(x).square().sum()
            loss.backward()
            return loss

    ours, theirs = pair(lambda nn: nn.Linear(4, 5))
    flow.nn.utils.prune.l1_unstructured(ours, "weight", 0.5)
    torch.nn.utils.prune.l1_unstructured(theirs, "weight", 0.5)
    step, optimizer = Train(ours), torch.optim.SGD(theirs.parameters(), lr=0.1)
    for seed in range(3):
        x = draw(3, 4, seed=seed)
        optimizer.zero_grad()
        loss = theirs(torch.tensor(x)).square().sum()
        loss.backward()
        optimizer.step()
        assert_close(step(flow.tensor(x)), loss, rtol=1e-9)
    assert_close(ours.weight.detach(), (theirs.weight_orig * theirs.weight_mask).detach(), rtol=1e-9)


CONVOLUTIONS = {
    "conv1d": (lambda nn: nn.Conv1d(2, 3, 3, bias=False), (2, 2, 7), False),
    "conv2d": (lambda nn: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 6), False),
    "transposed": (lambda nn: nn.ConvTranspose2d(2, 3, 2), (2, 2, 4, 5), True),
    "linear": (lambda nn: nn.Linear(4, 3), (5, 4), None),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("options", [{}, {"affine": False}, {"bias": False, "eps": 0.1}])
def test_fused_batch_norm(name, options):
    make, shape, transpose = CONVOLUTIONS[name]
    channels = 6 if name == "conv2d" else 3
    if name == "linear" and options:
        options = {"eps": 0.1}  # torch wants weight and bias there

    def model(nn):
        norm = getattr(nn, f"BatchNorm{max(1, len(shape) - 2)}d")(channels, **options)
        return nn.Sequential(make(nn), norm)

    layers = pair(model)
    trained(layers, shape)
    fused = []
    for framework, layer in zip((flow, torch), layers, strict=True):
        functions, layer = framework.nn.utils, layer.eval()
        if transpose is None:
            fused.append(functions.fuse_linear_bn_eval(*layer))
        else:
            fused.append(functions.fuse_conv_bn_eval(*layer, transpose=transpose))
        x = framework.tensor(draw(*shape))
        assert_close(fused[-1](x).detach(), layer(x).detach().numpy(), rtol=1e-9)
    assert list(fused[0].state_dict()) == list(fused[1].state_dict())
    for (key, p), (_, q) in zip(fused[0].named_parameters(), fused[1].named_parameters(), strict=True):
        assert_close(p.detach(), q.detach(), rtol=1e-8, atol=1e-9, what=key)
        assert p.requires_grad == q.requires_grad
    with pytest.raises(ValueError, match="after .eval"):
        flow.nn.utils.fuse_conv_bn_eval(layers[0][0].train(), layers[0][1])


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf"), 0.5])
def test_total_norm_and_clipping_by_it(norm_type):
    arrays, grads = [draw(3, 4), draw(5), draw()], [draw(3, 4, seed=1), draw(5, seed=2), draw(seed=3)]
    found = []
    for framework in (flow, torch):
        parameters = [framework.nn.Parameter(framework.tensor(a)) for a in arrays]
        for p, g in zip(parameters, grads, strict=True):
            p.grad = framework.tensor(g)
        total = framework.nn.utils.get_total_norm([p.grad for p in parameters], norm_type)
        framework.nn.utils.clip_grads_with_norm_(parameters, 0.7, total)
        found.append([total, *[p.grad for p in parameters]])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-9)
    assert flow.nn.utils.get_total_norm([]).item() == 0 and flow.nn.utils.get_total_norm(flow.ones(4)).item() == 2
    with pytest.raises(flow.errors.AutogradError, match="get_total_norm: the norm of the gradients is nan"):
        flow.nn.utils.get_total_norm([flow.tensor([math.nan])], error_if_nonfinite=True)
