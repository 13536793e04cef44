"""Averages of parameters beside PyTorch's."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.optim import swa_utils

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

pytestmark = pytest.mark.cpu_only("no test here looks at the device")


def mean_of_squares(average, p, count):
    return average + (p * p - average) / (count + 2)


@pytest.mark.parametrize(
    "options",
    [
        lambda utils: {},
        lambda utils: {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.7)},
        lambda utils: {"avg_fn": mean_of_squares, "use_buffers": True},
    ],
)
def test_averages(options):
    states = []
    for framework, utils in ((flow, swa_utils), (torch, torch.optim.swa_utils)):
        model = framework.nn.Sequential(framework.nn.Linear(3, 2), framework.nn.BatchNorm1d(2))
        averaged = utils.AveragedModel(model, **options(utils))
        for step in range(4):
            draw = np.random.default_rng(step)
            with framework.no_grad():
                for p in model.parameters():
                    p.copy_(framework.tensor(draw.normal(size=tuple(p.shape)).astype("float32")))
            model(framework.tensor(draw.normal(size=(5, 3)).astype("float32")))
            averaged.update_parameters(model)
        states.append(averaged.state_dict())
    assert list(states[0]) == sorted(states[1], key=list(states[0]).index)
    if "use_buffers" in options(swa_utils):
        del states[1]["module.1.num_batches_tracked"]  # torch averages integers too
    for name, value in states[1].items():
        assert_close(states[0][name], value, rtol=1e-5, atol=1e-6, what=name)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_schedule(strategy):
    found = []
    for framework, utils in ((flow, swa_utils), (torch, torch.optim.swa_utils)):
        groups = [{"params": [framework.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.03)]
        optimizer = framework.optim.SGD(groups)
        schedule = utils.SWALR(optimizer, [0.1, 0.05], anneal_epochs=7, anneal_strategy=strategy)
        rows = []
        for _ in range(12):
            rows.append([group["lr"] for group in optimizer.param_groups])
            optimizer.step()
            schedule.step()
        found.append(rows)
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="one of them"):
        swa_utils.AveragedModel(flow.nn.Linear(1, 1), avg_fn=mean_of_squares, multi_avg_fn=mean_of_squares)
    with pytest.raises(ValueError, match="decay=2"):
        swa_utils.get_ema_multi_avg_fn(2)


def test_the_average_lies_on_the_device_that_is_given():
    averaged = swa_utils.AveragedModel(flow.nn.Linear(2, 1), device="cuda")
    found = {x.device.type for x in (*averaged.module.parameters(), averaged.n_averaged)}
    assert found == {"cuda"}
    on_cuda = flow.nn.Linear(2, 1).to("cuda")
    assert {p.device.type for p in swa_utils.AveragedModel(on_cuda).module.parameters()} == {"cuda"}
