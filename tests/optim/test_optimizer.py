"""The base of the optimizers: groups, steps, state, refusals."""

import copy

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn, optim
from miniflow.errors import ArgumentError, AutogradError, CheckpointError, ShapeError
from miniflow.graph.ir import Scalar
from miniflow.graph.trace import active, record

ALL = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad]
WITH_STATE = [
    (optim.SGD, {"momentum": 0.9}),
    (optim.Adam, {"amsgrad": True}),
    (optim.AdamW, {"weight_decay": 0.1}),
    (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    (optim.Adagrad, {"lr_decay": 0.1}),
]


def leaf(*values):
    return flow.tensor(list(values), requires_grad=True)


def give_gradients(params, seed):
    draw = np.random.default_rng(seed)
    for p in params:
        p.grad = flow.tensor(draw.normal(size=tuple(p.shape)), dtype=p.dtype)


@pytest.mark.parametrize(("optimizer", "lr"), list(zip(ALL, [1e-3, 1e-3, 1e-3, 1e-2, 1e-2], strict=True)))
def test_defaults_are_those_of_pytorch(optimizer, lr):
    defaults = optimizer([leaf(1.0)], fused=False, foreach=None).defaults
    assert defaults["lr"] == lr and defaults["weight_decay"] == (0.01 if optimizer is optim.AdamW else 0)
    assert "fused" not in defaults


def test_groups_keep_what_is_the_users():
    def make():
        return optim.SGD([{"params": [leaf(1.0)], "name": "head", "lr_mult": 2}], lr=0.1)

    second = make()
    second.load_state_dict(make().state_dict())
    assert second.param_groups[0]["name"] == "head" and second.param_groups[0]["lr_mult"] == 2
    second.add_param_group(param_group={"params": [leaf(2.0)]})
    assert "name" not in second.param_groups[1]


@pytest.mark.parametrize("optimizer", ALL)
def test_a_loss_falls(optimizer):
    flow.manual_seed(0)
    model = nn.Linear(4, 1)
    x = flow.randn(64, 4)
    y = x @ flow.tensor([[1.0], [-2.0], [0.5], [3.0]])
    steps = optimizer(model.parameters(), lr=0.1 if optimizer is not optim.Adagrad else 0.5)
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(model(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_an_expanded_parameter_is_refused():
    p = nn.Parameter(flow.ones(1).expand(3))
    p.grad = flow.ones(3)
    with pytest.raises(ShapeError, match="adam_update: the tensor is an expanded or read-only view"):
        optim.Adam([p]).step()


def test_parameters_without_gradient_are_left_alone():
    p, q = leaf(1.0), leaf(2.0)
    p.grad = flow.tensor([1.0])
    optimizer = optim.Adam([p, q])
    optimizer.step()
    assert q.tolist() == [2.0] and q not in optimizer.state and p.item() != 1.0


def test_groups_have_options_of_their_own():
    p, q = leaf(1.0), leaf(1.0)
    optimizer = optim.SGD([{"params": [p]}, {"params": q, "lr": 0.5}], lr=0.25)
    p.grad = q.grad = flow.tensor([1.0])
    optimizer.step()
    assert (p.item(), q.item()) == (0.75, 0.5)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert (p.item(), q.item()) == (0.75, 0.0)
    r = leaf(1.0)
    r.grad = flow.tensor([1.0])
    optimizer.add_param_group({"params": [r], "maximize": True})
    optimizer.step()
    assert r.item() == 1.25 and len(optimizer.param_groups) == 3


def test_zero_grad():
    p = leaf(1.0)
    optimizer = optim.SGD([p])
    p.grad = flow.tensor([3.0])
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is None


def test_closure_runs_with_gradients():
    p = leaf(2.0)
    optimizer = optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with flow.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 4.0 and p.item() == 1.0 and optimizer.step() is None


@pytest.mark.parametrize(("optimizer", "options"), WITH_STATE)
def test_an_update_is_seen_by_the_tape(optimizer, options):
    p = leaf(2.0)
    y = (p * p).sum()
    p.grad = flow.tensor([1.0])
    optimizer([p], **options).step()
    with pytest.raises(AutogradError, match="changed by an in-place operation"):
        y.backward()


def test_views_of_a_parameter_see_the_update():
    p = leaf(1.0, 2.0)
    part = p.detach()[1:]
    p.grad = flow.tensor([1.0, 1.0])
    optim.SGD([p], lr=0.5).step()
    assert part.tolist() == [1.5]


@pytest.mark.parametrize(("optimizer", "options"), WITH_STATE)
def test_state_goes_on_where_it_was(optimizer, options, tmp_path):
    def params():
        return [flow.ones(2, 3).requires_grad_(), flow.ones(4, dtype=flow.float64).requires_grad_()]

    straight, first, second = params(), params(), params()
    whole = optimizer(straight, lr=0.1, **options)
    begun = optimizer(first, lr=0.1, **options)
    for seed in range(3):
        give_gradients(straight, seed)
        give_gradients(first, seed)
        whole.step()
        begun.step()
    flow.save({"model": first, "optimizer": begun.state_dict()}, tmp_path / "checkpoint.safetensors")
    checkpoint = flow.load(tmp_path / "checkpoint.safetensors")
    with flow.no_grad():
        for p, value in zip(second, checkpoint["model"], strict=True):
            p.copy_(value)
    resumed = optimizer(second, lr=0.7)
    resumed.load_state_dict(checkpoint["optimizer"])
    assert resumed.param_groups[0]["lr"] == 0.1
    for seed in range(3, 6):
        give_gradients(straight, seed)
        give_gradients(second, seed)
        whole.step()
        resumed.step()
    for p, q in zip(straight, second, strict=True):
        assert_same(q.detach(), p.detach().cpu().numpy())


def test_state_dict_has_the_structure_of_pytorch():
    p, q, r = leaf(1.0), leaf(2.0), leaf(3.0)
    optimizer = optim.Adam([{"params": [p, q]}, {"params": [r], "lr": 0.5}])
    q.grad = r.grad = flow.tensor([1.0])
    optimizer.step()
    state = optimizer.state_dict()
    assert set(state) == {"state", "param_groups"} and set(state["state"]) == {1, 2}
    assert set(state["state"][1]) == {"step", "exp_avg", "exp_avg_sq"} and state["state"][1]["step"] == 1
    assert [g["params"] for g in state["param_groups"]] == [[0, 1], [2]]
    assert [g["lr"] for g in state["param_groups"]] == [1e-3, 0.5]
    assert optimizer.param_groups[0]["params"] == [p, q]


@pytest.mark.parametrize("dtype", [flow.float32, flow.float64])
def test_loading_copies_and_casts(dtype):
    p, q = leaf(1.0), flow.ones(1, dtype=dtype, requires_grad=True)
    source, target = optim.Adam([p]), optim.Adam([q])
    p.grad = flow.tensor([1.0])
    source.step()
    target.load_state_dict(source.state_dict())
    state = target.state[q]
    assert state["exp_avg"].dtype is dtype and state["step"] == 1
    source.state[p]["exp_avg"].fill_(9)
    assert state["exp_avg"].item() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: s["param_groups"].append(s["param_groups"][0]),
            r"got groups of \[2, 2\] parameters; expected \[2\]",
        ),
        (lambda s: s["param_groups"][0]["params"].pop(), r"groups of \[1\] parameters; expected \[2\]"),
        (lambda s: s.pop("state"), "expected a dict with 'state' and 'param_groups'"),
        (lambda s: s["param_groups"][0].update(alpha=1), "with the options .*'alpha'.*; expected \\['params', 'lr'"),
        (lambda s: s["param_groups"][0].pop("eps"), "with the options .*; expected .*'eps'"),
        (lambda s: s["state"].update({7: {}}), r"state for .*7.*; expected \[0, 1\] only"),
        (
            lambda s: s["state"][1].update(exp_avg=flow.zeros(3)),
            r"exp_avg of parameter 1 has shape \(3,\); expected \(2,\)",
        ),
        (lambda s: s["state"][1].pop("step"), "for parameter 1; expected its 'step' too"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, words):
    params = [leaf(1.0), leaf(2.0, 3.0)]
    optimizer = optim.Adam(params)
    give_gradients(params, 0)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 5.0
    change(state)
    before = [optimizer.state[p]["exp_avg"].cpu().numpy().copy() for p in params]
    with pytest.raises(CheckpointError, match=words):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 1e-3
    for p, old in zip(params, before, strict=True):
        assert_same(optimizer.state[p]["exp_avg"], old)


def test_refused_parameters():
    p = leaf(1.0)
    cases = [
        ([], ArgumentError, "empty list of parameters"),
        (p, TypeError, "single Tensor; expected a list"),
        ({"params": [p]}, TypeError, "single dict"),
        ([("w", p)], TypeError, r"parameter 0 of group 0 is a tuple; expected a Tensor: pass model.parameters\(\)"),
        ([{"lr": 1.0}], TypeError, "expected a dict with the key 'params'"),
        ([p * 2], ArgumentError, "was computed by mul_backward"),
        ([flow.tensor([1])], ArgumentError, "has miniflow.int64; expected a floating dtype"),
        ([p, leaf(1.0), p], ArgumentError, "parameter 2 of group 0 appears twice"),
        ([{"params": [p]}, {"params": [p]}], ArgumentError, "parameter 0 of group 1 appears twice"),
        (
            [{"params": [p], "weight_decya": 1.0}],
            ArgumentError,
            "a parameter group has 'weight_decya'; did you mean 'weight_decay'",
        ),
    ]
    for params, error, words in cases:
        with pytest.raises(error, match=words):
            optim.SGD(params)


@pytest.mark.parametrize(
    ("optimizer", "options", "words"),
    [
        (optim.SGD, {"lr": -1}, "SGD: got lr=-1; expected a number of at least 0"),
        (optim.SGD, {"lr": float("nan")}, "lr=nan"),
        (optim.SGD, {"lr": "0.1"}, "lr='0.1'"),
        (optim.SGD, {"momentum": -0.1}, "momentum=-0.1"),
        (optim.SGD, {"weight_decay": -0.1}, "weight_decay=-0.1"),
        (optim.SGD, {"nesterov": True}, "nesterov=True with momentum=0"),
        (optim.SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "dampening=0.1"),
        (optim.Adam, {"betas": (0.9, 1.0)}, r"Adam: got betas=\(0.9, 1.0\); expected two numbers"),
        (optim.Adam, {"betas": 0.9}, "betas=0.9"),
        (optim.AdamW, {"eps": -1}, "AdamW: got eps=-1"),
        (optim.RMSprop, {"alpha": 1.5}, "alpha=1.5; expected a number from 0 to 1"),
        (optim.RMSprop, {"momentum": -1}, "momentum=-1"),
        (optim.Adagrad, {"lr_decay": -1}, "lr_decay=-1"),
        (optim.Adagrad, {"initial_accumulator_value": -1}, "initial_accumulator_value=-1"),
    ],
)
def test_impossible_options(optimizer, options, words):
    with pytest.raises(ArgumentError, match=words):
        optimizer([leaf(1.0)], **options)
    with pytest.raises(ArgumentError, match=words):
        optimizer([{"params": [leaf(1.0)], **options}])


def test_a_generator_that_was_read_is_empty():
    parameters = nn.Linear(1, 1).parameters()
    optim.SGD(parameters)
    with pytest.raises(ArgumentError, match="a generator can be read only once"):
        optim.SGD(parameters)


def test_clip_grad_uses_the_keys_of_each_group():
    p, q, r = leaf(0.0, 0.0), leaf(0.0), leaf(0.0)
    optimizer = optim.SGD(
        [
            {"params": [p], "clip_grad_max_norm": 1.0},
            {"params": [q], "clip_grad_max_norm": 2.0, "clip_grad_norm_type": float("inf")},
            {"params": [r]},
        ]
    )
    p.grad, q.grad, r.grad = flow.tensor([3.0, 4.0]), flow.tensor([-50.0]), flow.tensor([7.0])
    optimizer.clip_grad()
    np.testing.assert_allclose(p.grad.cpu().numpy(), [0.6, 0.8], rtol=1e-5)
    np.testing.assert_allclose(q.grad.cpu().numpy(), [-2.0], rtol=1e-5)
    assert r.grad.tolist() == [7.0]


def test_an_optimizer_of_ones_own():
    class Halving(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"factor": 0.5})

        def update(self, group, params):
            for p in params:
                p.data.mul_(group["factor"])

    p = leaf(4.0)
    p.grad = flow.tensor([1.0])
    Halving([p]).step()
    assert p.item() == 2.0
    with pytest.raises(NotImplementedError, match="must override update"):
        optimizer = optim.Optimizer([p], {})
        optimizer.step()


def test_repr():
    assert repr(optim.SGD([leaf(1.0)], lr=0.5)) == (
        "SGD (\nParameter Group 0\n    dampening: 0.0\n    lr: 0.5\n    maximize: False\n    momentum: 0.0\n"
        "    nesterov: False\n    weight_decay: 0.0\n)"
    )


@pytest.mark.parametrize(("optimizer", "options"), [*WITH_STATE, (optim.SGD, {"momentum": 0.9, "dampening": 0.5})])
def test_state_that_was_made_before_the_first_step_changes_nothing(optimizer, options):
    params = [[leaf(1.0, 2.0), leaf(3.0)] for _ in range(2)]
    before, after = (optimizer(some, lr=0.1, **options) for some in params)
    after.create_state()
    assert set(after.state) == set(params[1])
    assert after.state_dict()["state"] == {}, "no step has used it so far"
    for seed in range(2):
        for some, instance in zip(params, (before, after), strict=True):
            give_gradients(some, seed)
            instance.step()
        after.create_state()
    for p, q in zip(*params, strict=True):
        assert_same(q.detach(), p.detach().cpu().numpy())
        assert before.state[p].keys() == after.state[q].keys()
    assert set(after.state_dict()["state"]) == {0, 1}


def test_state_is_made_for_what_requires_grad():
    p, q = leaf(1.0), leaf(2.0).requires_grad_(False)
    plain = optim.SGD([p, q])
    plain.create_state()
    assert not plain.state
    adam = optim.Adam([p, q])
    adam.create_state()
    assert set(adam.state) == {p} and adam.state[p]["step"] == 0


def looked_up(optimizer):
    """For each group of an optimizer the sources of what a recording of its step looks up."""
    params = [p for group in optimizer.param_groups for p in group["params"]]

    def step():
        for p in params:
            p.grad = flow.ones(*p.shape)
        with active().updating("optimizer.0"):
            optimizer.step()
        return []

    attributes = [instruction.attrs for instruction in record(step, []).instructions if instruction.op.mutates]

    def sources(value):
        if isinstance(value, tuple | list):
            parts = [sources(part) for part in value]
            return parts[0] if isinstance(value, list) else tuple(parts)
        return value.source if isinstance(value, Scalar) else None

    return [{name: found for name, value in attrs.items() if (found := sources(value))} for attrs in attributes]


def test_what_changes_from_step_to_step_is_looked_up_at_each_step():
    p, q = leaf(1.0), leaf(2.0)
    optimizer = optim.Adam([{"params": [p]}, {"params": [q], "lr_scale": 0.5}], lr=0.5)
    optimizer.create_state()
    first, second = looked_up(optimizer)
    assert (first["lr"](), second["lr"](), second["steps"]()) == (0.5, 0.25, 1)
    optimizer.count_step([q])
    optimizer.param_groups[1]["lr"] = 2.0
    assert (first["lr"](), second["lr"](), first["steps"](), second["steps"]()) == (0.5, 1.0, 1, 2)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()) | {"state": {}})
    optimizer.param_groups[1].update(lr=3.0, betas=(0.5, 0.25), eps=0.125, weight_decay=0.75)
    assert second["lr"]() == 1.5
    assert [second["betas"][i]() for i in range(2)] == [0.5, 0.25]
    assert (second["eps"](), second["weight_decay"](), first["weight_decay"]()) == (0.125, 0.75, 0.0)


def test_first_gradients_are_looked_up_only_where_they_count():
    p = leaf(1.0)
    numbers = {"lr", "momentum", "dampening", "weight_decay"}
    for options in ({}, {"momentum": 0.5}):
        (found,) = looked_up(optim.SGD([p], **options))
        assert set(found) == numbers
    optimizer = optim.SGD([p], momentum=0.5, dampening=0.1)
    optimizer.create_state()
    (found,) = looked_up(optimizer)
    fresh = found["fresh"]
    assert set(found) == numbers | {"fresh"}
    assert fresh() is True
    optimizer.count_step([p])
    assert fresh() is False


def test_statistics_for_averaged_parameters():
    model = flow.nn.Sequential(flow.nn.BatchNorm1d(1), flow.nn.Dropout(0.5)).eval()
    batches = [[flow.tensor([[0.0], [2.0]]), 0], [flow.tensor([[4.0], [8.0]]), 1]]
    flow.optim.swa_utils.update_bn(batches, model)
    assert model[0].running_mean.tolist() == [3.5] and model[0].running_var.tolist() == [5.0]
    assert model[0].momentum == 0.1 and not model.training and not model[1].training
