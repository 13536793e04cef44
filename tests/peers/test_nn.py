"""Layers and modules beside PyTorch's: printed form, state dicts, outputs, gradients, hooks."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")


def to_torch(array):
    return torch.from_numpy(np.array(array))


def draw(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# one entry a layer: how to make it in either framework, and the shape of an input
LAYERS = {
    "Linear(3, 4)": (lambda nn: nn.Linear(3, 4), (5, 3)),
    "Linear(3, 4, bias=False)": (lambda nn: nn.Linear(3, 4, bias=False), (2, 5, 3)),
    "Identity": (lambda nn: nn.Identity(3, unused=1), (2, 3)),
    "Flatten": (lambda nn: nn.Flatten(), (2, 3, 4)),
    "Flatten(0, 1)": (lambda nn: nn.Flatten(0, 1), (2, 3, 4)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, 3)), (4, 6)),
    "Conv2d": (lambda nn: nn.Conv2d(3, 4, 3), (2, 3, 6, 7)),
    "Conv2d options": (
        lambda nn: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, bias=False),
        (2, 4, 7, 8),
    ),
    "Conv2d same": (lambda nn: nn.Conv2d(2, 3, (3, 4), padding="same", dilation=2), (2, 2, 8, 9)),
    "Conv2d reflect": (lambda nn: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"), (2, 2, 6, 7)),
    "Conv2d replicate": (lambda nn: nn.Conv2d(2, 3, 3, padding=2, padding_mode="replicate", stride=2), (2, 2, 6, 7)),
    "Conv2d circular same": (lambda nn: nn.Conv2d(2, 3, (2, 4), padding="same", padding_mode="circular"), (2, 2, 6, 7)),
    "Conv2d valid": (lambda nn: nn.Conv2d(2, 3, 3, padding="valid"), (2, 2, 6, 7)),
    "Conv1d": (lambda nn: nn.Conv1d(4, 6, 3, 2, 1, groups=2), (2, 4, 9)),
    "Conv1d same": (lambda nn: nn.Conv1d(2, 3, 4, padding="same", padding_mode="circular"), (2, 9)),
    "Conv3d": (lambda nn: nn.Conv3d(2, 4, (3, 2, 3), (1, 2, 1), (1, 0, 2), (2, 1, 1), bias=False), (2, 2, 6, 5, 4)),
    "Conv3d same": (lambda nn: nn.Conv3d(2, 3, (2, 3, 2), padding="same", padding_mode="replicate"), (1, 2, 4, 5, 4)),
    "Conv3d even": (lambda nn: nn.Conv3d(2, 3, (3, 2, 4), padding="same"), (2, 4, 5, 4)),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), (2, 4, 5)),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(4, 3, (3, 2), (2, 3), (1, 0), (1, 2)), (2, 4, 5, 4)),
    "ConvTranspose2d bare": (lambda nn: nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False), (4, 5, 4)),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(2, 4, 3, (3, 2, 1), (2, 1, 0), (2, 0, 0), 2), (1, 2, 1, 4, 3)),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(2), (2, 3, 6, 7)),
    "MaxPool2d options": (lambda nn: nn.MaxPool2d((3, 2), (2, 1), (1, 0), (2, 1), ceil_mode=True), (2, 3, 9, 8)),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(3, 2, 1), (2, 3, 6, 7)),
    "AvgPool2d options": (lambda nn: nn.AvgPool2d((3, 2), 2, (1, 1), True, False), (2, 3, 6, 7)),
    "AvgPool2d divisor": (lambda nn: nn.AvgPool2d(2, divisor_override=3), (2, 3, 6, 7)),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((2, 3)), (2, 3, 5, 7)),
    "AdaptiveAvgPool2d None": (lambda nn: nn.AdaptiveAvgPool2d((None, 1)), (2, 3, 5, 7)),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(3), (6, 3)),
    "BatchNorm1d 3-D": (lambda nn: nn.BatchNorm1d(3, eps=1e-3, momentum=0.3), (6, 3, 4)),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(3, momentum=None), (4, 3, 5, 2)),
    "BatchNorm2d bare": (lambda nn: nn.BatchNorm2d(3, affine=False, track_running_stats=False), (4, 3, 5, 2)),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), (2, 3, 4)),
    "LayerNorm options": (lambda nn: nn.LayerNorm((3, 4), eps=1e-2, bias=False), (2, 3, 4)),
    "LayerNorm bare": (lambda nn: nn.LayerNorm([3, 4], elementwise_affine=False), (2, 3, 4)),
    "Dropout 0": (lambda nn: nn.Dropout(0.0), (2, 3)),
    "ReLU": (lambda nn: nn.ReLU(), (3, 4)),
    "GELU": (lambda nn: nn.GELU(), (3, 4)),
    "GELU tanh": (lambda nn: nn.GELU("tanh"), (3, 4)),
    "SiLU": (lambda nn: nn.SiLU(), (3, 4)),
    "Softplus": (lambda nn: nn.Softplus(2.0, 1.0), (3, 4)),
    "Sigmoid": (lambda nn: nn.Sigmoid(), (3, 4)),
    "Tanh": (lambda nn: nn.Tanh(), (3, 4)),
    "Softmax": (lambda nn: nn.Softmax(dim=1), (3, 4)),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(dim=0), (3, 4)),
    **{
        f"{kind}Pad{d}d {padding}": (
            lambda nn, kind=kind, d=d, padding=padding, o=o: getattr(nn, f"{kind}Pad{d}d")(padding, *o),
            (2, 3, 4, 5, 4)[: d + 2],
        )
        for kind, o in {"Zero": (), "Constant": (3.5,), "Reflection": (), "Replication": (), "Circular": ()}.items()
        for d in (1, 2, 3)
        for padding in (1, (1, 2, 0, 3, 2, 1)[: 2 * d])
    },
    "Sequential": (
        lambda nn: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)),
        (3, 1, 5, 6),
    ),
}
PRINTED_ONLY = {
    "inplace": lambda nn: nn.Sequential(nn.ReLU(inplace=True), nn.SiLU(inplace=True), nn.Dropout(0.2, inplace=True)),
    "Embedding": lambda nn: nn.Sequential(nn.Embedding(5, 3), nn.Embedding(5, 3, padding_idx=-1)),
    "losses": lambda nn: nn.ModuleList(
        [nn.CrossEntropyLoss(), nn.NLLLoss(), nn.MSELoss(), nn.L1Loss(), nn.BCELoss(), nn.BCEWithLogitsLoss()]
    ),
    "nested": lambda nn: nn.ModuleDict(
        {
            "body": nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)] + [nn.ReLU()]),
            "head": nn.Sequential(),
        }
    ),
    "ParameterList": lambda nn: nn.ParameterList(
        [nn.Parameter((flow if nn is flow.nn else torch).zeros(size)) for size in ((2, 3), (4,))]
    ),
    "one parameter": lambda nn: nn.ParameterList([nn.Parameter((flow if nn is flow.nn else torch).zeros(3))]),
}


@pytest.mark.parametrize("name", [*LAYERS, *PRINTED_ONLY])
def test_printed_form(name):
    make = PRINTED_ONLY[name] if name in PRINTED_ONLY else LAYERS[name][0]
    assert repr(make(flow.nn)) == repr(make(torch.nn)).replace("torch.", "miniflow.")


def same_state(ours, theirs, what):
    mine, yours = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(yours)
    for key, value in yours.items():
        assert_close(mine[key], value, rtol=1e-10, atol=1e-12, what=f"{what}: {key}")


def twins(name):
    """The layer in both frameworks, float64, with the same random values."""
    make = LAYERS[name][0]
    ours, theirs = make(flow.nn).double(), make(torch.nn).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for i, (key, value) in enumerate(theirs.state_dict().items()):
        if value.is_floating_point():
            value.copy_(to_torch(draw(*value.shape, seed=100 + i) ** (2 if "var" in key else 1)))
    ours.load_state_dict({key: flow.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_gradients_and_state(name):
    ours, theirs = twins(name)
    for step in range(2):
        array = draw(*LAYERS[name][1], seed=step)
        x, z = flow.tensor(array, requires_grad=True), to_torch(array).requires_grad_()
        y, w = ours(x), theirs(z)
        assert_close(y.detach(), w, rtol=1e-9, atol=1e-11)
        cotangent = draw(*w.shape, seed=50 + step)
        y.backward(flow.tensor(cotangent))
        w.backward(to_torch(cotangent))
        assert_close(x.grad, z.grad, rtol=1e-9, atol=1e-11, what="input gradient")
    for (key, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(p.grad, q.grad, rtol=1e-9, atol=1e-10, what=f"gradient of {key}")
    same_state(ours, theirs, name)
    array = draw(*LAYERS[name][1], seed=9)
    evaluated = theirs.eval()(to_torch(array))
    assert_close(ours.eval()(flow.tensor(array)).detach(), evaluated, rtol=1e-9, atol=1e-11, what="in evaluation")


@pytest.mark.parametrize("name", ["Linear(3, 4)", "Conv2d options", "BatchNorm2d", "LayerNorm"])
def test_attributes_have_the_same_names(name):
    make = LAYERS[name][0]
    ours, theirs = make(flow.nn), make(torch.nn)
    inner = {"training", "output_padding", "transposed"}
    public = {k: v for k, v in vars(theirs).items() if not k.startswith("_") and k not in inner}
    assert {k: getattr(ours, k) for k in public} == public


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CrossEntropyLoss", {"ignore_index": 1, "label_smoothing": 0.1, "reduction": "sum"}),
        ("CrossEntropyLoss", {"weight": [0.5, 1.0, 2.0]}),
        ("NLLLoss", {"weight": [0.5, 1.0, 2.0], "ignore_index": 0, "reduction": "none"}),
        ("MSELoss", {"reduction": "sum"}),
        ("L1Loss", {}),
        ("BCELoss", {"weight": [0.5, 1.0, 2.0]}),
        ("BCEWithLogitsLoss", {"pos_weight": [0.5, 1.0, 2.0], "weight": [3.0, 1.0, 2.0], "reduction": "sum"}),
    ],
)
def test_losses(name, options):
    array = draw(4, 3)
    if name == "BCELoss":
        array = 1 / (1 + np.exp(-array))
    classes = name in ("CrossEntropyLoss", "NLLLoss")
    target = np.array([0, 2, 1, 2]) if classes else np.random.default_rng(1).uniform(size=(4, 3))
    results = []
    for framework in (flow, torch):
        given = {
            k: framework.tensor(v, dtype=framework.float64) if isinstance(v, list) else v for k, v in options.items()
        }
        x = framework.tensor(array, requires_grad=True)
        y = getattr(framework.nn, name)(**given)(x, framework.tensor(target))
        y.sum().backward()
        results.append((y.detach(), x.grad))
    (mine, my_grad), (yours, your_grad) = results
    assert_close(mine, yours)
    assert_close(my_grad, your_grad)


def test_backward_hooks_receive_the_same():
    results = []
    for framework in (flow, torch):
        nn = framework.nn

        class Both(nn.Module):
            def __init__(self, nn=nn):
                super().__init__()
                self.linear = nn.Linear(3, 2).double()

            def forward(self, x, factor, y):
                return self.linear(x) * factor, x * y

        module = Both()
        with framework.no_grad():
            module.linear.weight.copy_(framework.tensor(draw(2, 3, seed=5)))
            module.linear.bias.copy_(framework.tensor(draw(2, seed=6)))
        log = []

        def note(module, grad_input, grad_output, log=log):
            log.append((grad_input, grad_output))
            return tuple(None if g is None else g * 2 for g in grad_input)

        module.register_full_backward_hook(note)
        module.register_full_backward_pre_hook(lambda m, go: tuple(None if g is None else g * 3 for g in go))
        x = framework.tensor(draw(4, 3), requires_grad=True)
        y = framework.tensor(draw(4, 3, seed=1))
        first, second = module(x, 2.0, y)
        (first.sum() + (second * second).sum()).backward()
        results.append((log[0], x.grad, module.linear.weight.grad))
    ((my_input, my_output), my_x, my_weight), ((their_input, their_output), their_x, their_weight) = results
    for mine, theirs in ((my_input, their_input), (my_output, their_output)):
        assert [g is None for g in mine] == [g is None for g in theirs]
        for a, b in zip(mine, theirs, strict=True):
            if b is not None:
                assert_close(a, b, rtol=1e-9)
    assert_close(my_x, their_x, rtol=1e-9)
    assert_close(my_weight, their_weight, rtol=1e-9)


def test_shared_parameters_and_names():
    def make(nn):
        network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
        network[1].weight = network[0].weight
        network.append(network[0])
        return network

    ours, theirs = make(flow.nn), make(torch.nn)
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(ours, method)()] == [n for n, _ in getattr(theirs, method)()]
    for method in ("named_parameters", "named_modules"):
        every = [[n for n, _ in getattr(m, method)(remove_duplicate=False)] for m in (ours, theirs)]
        assert every[0] == every[1]
    assert list(ours.state_dict()) == list(theirs.state_dict())
