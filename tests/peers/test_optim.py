"""Twenty steps of every optimizer and option beside PyTorch's, on a network trained by each framework."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import CheckpointError
from miniflow.optim.optimizer import OF_THE_STEP

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "betas": (0.8, 0.6)}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.3, "decoupled_weight_decay": True, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.5, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1, "maximize": True, "betas": (0.7, 0.8)}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "maximize": True}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True}),
    ("Adadelta", {"lr": 0.5}),
    ("Adadelta", {"lr": 1.5, "rho": 0.6, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.01}),
    ("Adamax", {"lr": 0.01, "betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "betas": (0.5, 0.8), "eps": 1e-3, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.3, "decoupled_weight_decay": True, "maximize": True}),
    ("NAdam", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "betas": (0.5, 0.8), "eps": 1e-3, "weight_decay": 0.1, "momentum_decay": 3.0}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.3, "decoupled_weight_decay": True, "maximize": True}),
    ("ASGD", {"lr": 0.05}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.01}),
    ("Rprop", {"lr": 0.05, "etas": (0.3, 1.7), "step_sizes": (0.02, 0.07), "maximize": True}),
    ("Adagrad", {"lr": 0.05}),
    ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.05, "initial_accumulator_value": 0.5, "eps": 1e-4, "maximize": True}),
]
IDS = [f"{name}-{'-'.join(f'{k}={v}' for k, v in options.items())}" for name, options in CASES]
SHAPES = [(4, 6), (6,), (), (2, 3, 3, 2)]


@pytest.fixture(autouse=True)
def rates_in_float64():
    """ASGD of torch keeps "eta" in the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def both(dtype, seed=0):
    """The same leaves in both frameworks."""
    draw = np.random.default_rng(seed)
    arrays = [draw.normal(size=shape).astype(dtype) for shape in SHAPES]
    ours = [flow.tensor(a, requires_grad=True) for a in arrays]
    return ours, [torch.tensor(a, requires_grad=True) for a in arrays]


def give_gradients(ours, theirs, seed):
    draw = np.random.default_rng(seed)
    for p, q in zip(ours, theirs, strict=True):
        g = draw.normal(size=tuple(p.shape)).astype(p.dtype.numpy)
        p.grad, q.grad = flow.tensor(g), torch.tensor(g)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_twenty_steps(name, options, dtype, tolerance):
    ours, theirs = both(dtype)
    a = getattr(flow.optim, name)(ours, **options)
    b = getattr(torch.optim, name)(theirs, **options)
    for step in range(20):
        give_gradients(ours, theirs, step + 1)
        a.step()
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        assert_close(p.detach(), q, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_state_has_the_same_keys_and_values(name, options):
    ours, theirs = both("float64")
    a = getattr(flow.optim, name)([{"params": ours[:1]}, {"params": ours[1:], "lr": 0.02}], **options)
    b = getattr(torch.optim, name)([{"params": theirs[:1]}, {"params": theirs[1:], "lr": 0.02}], **options)
    for step in range(3):
        give_gradients(ours, theirs, step + 1)
        a.step()
        b.step()
    mine, yours = a.state_dict(), b.state_dict()
    assert set(mine) == set(yours)
    assert [g["params"] for g in mine["param_groups"]] == [g["params"] for g in yours["param_groups"]]
    assert [g["lr"] for g in mine["param_groups"]] == [g["lr"] for g in yours["param_groups"]]
    assert mine["state"].keys() == yours["state"].keys()
    for number, entry in yours["state"].items():
        entry = {k: v for k, v in entry.items() if v is not None and k not in OF_THE_STEP}
        assert mine["state"][number].keys() == entry.keys()
        for key, value in entry.items():
            if key == "step":
                assert mine["state"][number][key] == int(value)
            else:
                assert_close(mine["state"][number][key], value, rtol=1e-10, atol=1e-12, what=key)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_a_training_of_pytorch_goes_on(name, options):
    ours, theirs = both("float64")
    a, b = getattr(flow.optim, name)(ours, lr=1.0), getattr(torch.optim, name)(theirs, **options)
    for step in range(3):
        give_gradients(ours, theirs, step + 1)
        b.step()
    with flow.no_grad():
        for p, q in zip(ours, theirs, strict=True):
            p.copy_(flow.tensor(q.detach().numpy()))
    state = b.state_dict()
    as_ours = lambda x: flow.tensor(x.numpy()) if isinstance(x, torch.Tensor) else x  # noqa: E731
    state["state"] = {i: {k: as_ours(x) for k, x in values.items()} for i, values in state["state"].items()}
    a.load_state_dict(state)
    for step in range(3, 6):
        give_gradients(ours, theirs, step + 1)
        a.step()
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        assert_close(p.detach(), q, rtol=1e-10, atol=1e-10)
    other = flow.optim.Adam if name == "RMSprop" else flow.optim.RMSprop
    with pytest.raises(CheckpointError, match="was it saved by another kind of optimizer?"):
        other(ours).load_state_dict(state)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad(norm_type, max_norm):
    ours, theirs = both("float32")
    give_gradients(ours, theirs, 1)
    total = flow.nn.utils.clip_grad_norm_(ours, max_norm, norm_type)
    assert_close(total, torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type), rtol=1e-6)
    for p, q in zip(ours, theirs, strict=True):
        assert_close(p.grad, q.grad, rtol=1e-6)
    flow.nn.utils.clip_grad_value_(ours, 0.1)
    torch.nn.utils.clip_grad_value_(theirs, 0.1)
    for p, q in zip(ours, theirs, strict=True):
        assert_close(p.grad, q.grad, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"lr": 0.1, "betas": (0.5, 0.8), "eps": 0.1}, {"maximize": True}], ids=str)
def test_sparse_adam(options):
    start, draw = np.random.default_rng(0).normal(size=(7, 3)), np.random.default_rng(1)
    p, q = flow.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    a, b = flow.optim.SparseAdam([p], **options), torch.optim.SparseAdam([q], **options)
    for _ in range(6):
        rows, g = draw.choice(7, size=3, replace=False), draw.normal(size=(3, 3))
        dense = np.zeros((7, 3))
        dense[rows] = g
        p.grad, q.grad = flow.tensor(dense), torch.sparse_coo_tensor(rows[None], g, (7, 3), check_invariants=True)
        a.step()
        b.step()
    assert_close(p.detach(), q, rtol=1e-10, atol=1e-12)
    mine, yours = a.state_dict()["state"][0], b.state_dict()["state"][0]
    assert mine.keys() == yours.keys() and mine["step"] == yours["step"] == 6
    for name in ("exp_avg", "exp_avg_sq"):
        assert_close(mine[name], yours[name], rtol=1e-10, atol=1e-12)
