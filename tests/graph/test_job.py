"""Job functions: variables of one name are shared, training is that of eager code, and mistakes are named."""

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow
import miniflow.nn.functional as F
import miniflow.typing as tp
from miniflow.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    DTypeError,
    GraphError,
    GraphTraceError,
    ShapeError,
)

random = np.random.default_rng(0)
X = random.standard_normal((7, 5)).astype(np.float32)
Y = np.array([0, 1, 2, 1, 2, 0, 0])
W = random.standard_normal((3, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_variables():
    flow.clear_default_session()


def logits_of(x):
    weight = flow.get_variable("dense-weight", (3, 5), initializer=lambda t: t.copy_(flow.tensor(W)))
    bias = flow.get_variable("dense.bias", (3,))
    return x @ weight.T + bias


def training_job(optimizer, reduction="mean"):
    @flow.global_function(type="train")
    def train_job(
        x: tp.Numpy.Placeholder((7, 5), dtype=flow.float32), y: tp.Numpy.Placeholder((7,), dtype=flow.int64)
    ) -> tp.Numpy:
        loss = F.cross_entropy(logits_of(x), y, reduction=reduction)
        optimizer().minimize(loss)
        return loss

    return train_job


def eager(make, rates, steps):
    """Losses and parameters of training without jobs."""
    weight, bias = flow.nn.Parameter(flow.tensor(W)), flow.nn.Parameter(flow.zeros(3))
    optimizer, losses = make([weight, bias]), []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rates[step]
        optimizer.zero_grad()
        loss = F.cross_entropy(flow.tensor(X) @ weight.T + bias, flow.tensor(Y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weight.detach().numpy(), bias.detach().numpy()


def test_sgd_with_a_schedule():
    schedule = flow.optimizer.PiecewiseConstantScheduler([2, 3], [0.5, 0.1, 0.02])
    job = training_job(lambda: flow.optimizer.SGD(schedule, momentum=0.9))
    losses = [job(X, Y) for _ in range(5)]
    assert all(type(loss) is np.ndarray and loss.shape == () for loss in losses)
    expected, weight, bias = eager(lambda p: flow.optim.SGD(p, 0.5, momentum=0.9), [0.5, 0.5, 0.1, 0.02, 0.02], 5)
    assert_close(np.array(losses), expected, rtol=1e-5)
    variables = flow.get_all_variables()
    assert list(variables) == ["dense-weight", "dense.bias"]
    assert_close(variables["dense-weight"].detach().numpy(), weight, rtol=1e-5)
    assert_close(variables["dense.bias"].detach().numpy(), bias, rtol=1e-5)


def test_adamw_with_a_cosine_and_losses_of_rows():
    schedule = flow.optimizer.CosineScheduler(0.1, steps=3, alpha=0.1)
    rates = [schedule.rate(step) for step in range(5)]
    assert rates[0] == 0.1 and rates[3] == rates[4] == pytest.approx(0.01)
    job = training_job(
        lambda: flow.optimizer.AdamW(schedule, beta2=0.9, weight_decay=0.1, do_bias_correction=True), reduction="none"
    )
    losses = [job(x=X, y=Y) for _ in range(5)]
    assert losses[0].shape == (7,)  # of which the mean is minimized
    expected, weight, _ = eager(lambda p: flow.optim.AdamW(p, 0.1, betas=(0.9, 0.9), weight_decay=0.1), rates, 5)
    assert_close(np.array([loss.mean() for loss in losses]), expected, rtol=1e-5)
    assert_close(flow.get_all_variables()["dense-weight"].detach().numpy(), weight, rtol=1e-5)


def test_jobs_share_variables():
    @flow.global_function(type="predict")
    def predict(x: flow.Placeholder((7, 5))) -> tuple[tp.Numpy, tp.Numpy]:
        logits = logits_of(x)
        return logits, logits.argmax(1)

    @flow.global_function()
    def as_tensor(x: flow.Placeholder((7, 5))):
        return logits_of(x)

    class NumpyLike:
        pass

    @flow.global_function()
    def like_numpy(x: flow.Placeholder((7, 5))) -> NumpyLike:
        return logits_of(x)

    assert type(like_numpy(X)) is flow.Tensor
    before, classes = predict(X)
    assert_close(before, X @ W.T, rtol=1e-5)
    assert classes.dtype == np.int64 and (classes == before.argmax(1)).all()
    training_job(lambda: flow.optimizer.Adam(0.1))(X, Y)
    after, _ = predict(X)
    assert (after != before).any()
    result = as_tensor(flow.tensor(X))
    assert type(result) is flow.Tensor
    assert_close(result.numpy(), after, rtol=1e-6)


def test_trainable_dtype_and_initializers():
    config = flow.function_config()
    config.default_data_type(flow.float64)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((2,), dtype=flow.float64)) -> tp.Numpy:
        flow.optimizer.SGD(0.1, momentum=0.0).minimize(
            (x * flow.get_variable("free", (2,), initializer=flow.ones_initializer())).sum()
            + flow.get_variable("fixed", (1,), initializer=flow.constant_initializer(3.0), trainable=False).sum()
        )
        uniform = flow.get_variable("uniform", (1000,), flow.float32, flow.random_uniform_initializer(2, 3))
        normal = flow.get_variable("normal", (1000,), flow.float32, flow.random_normal_initializer(5, 0.1))
        cut = flow.get_variable("cut", (1000,), flow.float32, flow.truncated_normal_initializer(0, 0.5))
        return uniform.min(), uniform.max(), normal.mean(), cut.abs().max()

    low, high, mean, largest = job(np.array([1.0, -2.0]))
    assert 2 <= low < 2.1 and 2.9 < high <= 3 and 4.9 < mean < 5.1 and 0.9 < largest <= 1
    variables = flow.get_all_variables()
    assert variables["free"].dtype == flow.float64 and variables["uniform"].dtype == flow.float32
    assert_close(variables["free"].detach().numpy(), np.array([0.9, 1.2]))
    assert_close(variables["fixed"].detach().numpy(), np.array([3.0]))


def test_variables_can_be_saved_and_loaded(tmp_path):
    job = training_job(lambda: flow.optimizer.SGD(0.1))
    job(X, Y)
    flow.save(flow.get_all_variables(), tmp_path / "variables.safetensors")
    first = job(X, Y)
    flow.load_variables(flow.load(tmp_path / "variables.safetensors"))
    flow.get_all_variables()
    second = job(X, Y)
    assert_close(second, first, rtol=0)
    with pytest.raises(
        CheckpointError, match=r"got 'other' of shape \(1,\); expected some of {'dense-weight': \(3, 5\)"
    ):
        flow.load_variables({"dense.bias": np.ones(3), "other": np.ones(1)})


def test_a_job_is_saved_as_a_graph(tmp_path):
    job = training_job(lambda: flow.optimizer.SGD(0.1))
    with pytest.raises(GraphError, match=r"graph must be compiled first\."):
        flow.save(job, tmp_path / "g")
    job(X, Y)
    flow.save(job, tmp_path / "g")
    loaded = flow.load(tmp_path / "g")
    assert_close(loaded(flow.tensor(X), flow.tensor(Y)).numpy(), job(X, Y), rtol=0)
    scheduled = training_job(lambda: flow.optimizer.SGD(flow.optimizer.CosineScheduler(0.1, 9)))
    scheduled(X, Y)
    with pytest.raises(CheckpointError, match="the schedule LambdaLR calls a function"):
        flow.save(scheduled, tmp_path / "s")


def test_the_function_runs_twice_and_keeps_its_name():
    runs = []

    @flow.global_function()
    def twice(x: flow.Placeholder((2,))):
        """Doubles."""
        runs.append(x)
        return x * 2

    assert twice.__name__ == "twice" and twice.__doc__ == "Doubles."
    for _ in range(3):
        assert_close(twice(np.ones(2, np.float32)).numpy(), np.array([2.0, 2.0], np.float32))
    assert len(runs) == 2


MISTAKES = {
    "type": (lambda: flow.global_function(type="test"), ArgumentError, "got type='test'; expected 'train' or"),
    "config": (lambda: flow.global_function("train", {}), ArgumentTypeError, "got a dict as function_config"),
    "placeholder": (lambda: flow.Placeholder((-1,)), ArgumentError, "sizes, integers of at least 0"),
    "outside": (lambda: flow.get_variable("w", (1,)), GraphError, "called outside of a job function"),
    "minimize outside": (
        lambda: flow.optimizer.SGD(0.1).minimize(flow.ones(1)), GraphError, "minimize: called outside of a job",
    ),
    "schedule": (lambda: flow.optimizer.SGD(None), ArgumentTypeError, "got a NoneType as lr_scheduler; expected"),
    "values": (
        lambda: flow.optimizer.PiecewiseConstantScheduler([1], [0.1]), ArgumentError, "boundaries and one value more",
    ),
    "steps": (lambda: flow.optimizer.CosineScheduler(0.1, 0), ArgumentError, "got steps=0; expected at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    make, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        make()


def run(body, type="predict", placeholder=None):
    placeholder = placeholder or flow.Placeholder((2,))

    @flow.global_function(type=type)
    def job(x: placeholder):
        return body(x)

    return job(flow.ones(2))


def again(x):
    flow.get_variable("w", (2,))
    return flow.get_variable("w", (3,))


def minimized(x, times=1):
    w = flow.get_variable("w", (2,))
    for _ in range(times):
        flow.optimizer.SGD(0.1).minimize((w * x).sum())
    return w


IN_JOBS = {
    "shape": (again, "predict", ShapeError, r"'w' has shape \(2,\); asked for \(3,\)"),
    "dtype": (
        lambda x: [flow.get_variable("w", (2,), d) for d in (flow.float32, flow.float64)], "predict", DTypeError,
        "'w' has miniflow.float32; asked for miniflow.float64",
    ),
    "no shape": (lambda x: flow.get_variable("w"), "predict", ShapeError, "no variable 'w' yet, and no shape"),
    "name": (lambda x: flow.get_variable(3, (2,)), "predict", ArgumentError, "got the name 3; expected a string"),
    "predict": (minimized, "predict", GraphError, 'called in a job function of type "predict"'),
    "no loss": (lambda x: x, "train", GraphError, "calls minimize of an optimizer.*it did not"),
    "two losses": (lambda x: minimized(x, 2), "train", GraphError, "minimize: called twice in one job function"),
    "value": (lambda x: x.sum().item(), "predict", GraphTraceError, "cannot be looked at"),
    "initializer": (
        lambda x: x * flow.get_variable("unmade", (2,), initializer=3), "predict", ArgumentTypeError,
        "get_variable: got initializer=3; expected a function that fills a tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_JOBS)
def test_mistakes_in_jobs(name):
    body, type, error, message = IN_JOBS[name]
    with pytest.raises(error, match=message):
        run(body, type)
    assert_close(run(lambda x: x * 2).numpy(), np.array([2.0, 2.0], np.float32))  # nothing is left of the failed one


def test_wrong_arguments():
    @flow.global_function()
    def job(x: flow.Placeholder((2,))):
        return x

    with pytest.raises(ShapeError, match=r"job: argument 'x' has shape \(3,\); expected \(2,\) as its placeholder"):
        job(np.ones(3, np.float32))
    with pytest.raises(DTypeError, match=r"'x' has miniflow.float64; expected miniflow.float32.*astype\('float32'\)"):
        job(np.ones(2))
    with pytest.raises(ArgumentTypeError, match="'x' is a list; expected a NumPy array or a Tensor"):
        job([1, 2])
    with pytest.raises(ArgumentTypeError, match=r"job: too many .*; expected job\(x\), got 2 arguments by position"):
        job(1, 2)
    assert repr(job) == "<job function job of type 'predict'>"
    with pytest.raises(ArgumentTypeError, match="load_variables: got a list; expected a dict of values by name"):
        flow.load_variables([1])
    with pytest.raises(ArgumentError, match="the parameter 'x' of bare has no placeholder; annotate it"):

        @flow.global_function()
        def bare(x):
            return x
