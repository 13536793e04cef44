"""The checks of lesson 14: ml_dtypes rounds, miniflow's own scaler and checkpoint are followed, bytes are counted."""

import tracemalloc
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import miniflow as flow
from tutorials import refused, same

INF, NAN = float("inf"), float("nan")
TINY, GOOD, HUGE = 2.0**-26, 2.0**-20, 2.0**15  # at 1; times 4 the first is in the range of float16, the last is not
MAY_NOT_CALL = {
    "14.1": ["bfloat16", "ml_dtypes"],
    "14.2": ["GradScaler"],
}


def floats_of(bits):
    return np.asarray(bits, np.uint32).view(np.float32)


@pytest.mark.task("14.1")
def test_bfloat16(impl, rng):
    bits = rng.integers(0, 2**32, (300, 7), np.uint32)
    upper = bits & np.uint32(0xFFFF0000)
    samples = {"random bits": bits, "halfway": upper | 0x8000, "above": upper | 0x8001, "below": upper | 0x7FFF}
    samples = {what: floats_of(sample) for what, sample in samples.items()}
    samples["NaN"] = floats_of([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000])
    samples["large and small"] = np.float32([0, -0.0, 1, INF, -INF, 3.4e38, -3.4e38, 1e-45, 3.39e38])
    samples["every third column"] = rng.standard_normal((6, 4)).astype(np.float32)[::2, ::3]
    for what, x in samples.items():
        before = x.view(np.uint32).copy()
        got = impl.round_to_bfloat16(x)
        with np.errstate(all="ignore"):
            wanted = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        hint = "nearest, and to even halfway: add 0x7FFF, and 1 more if the last bit that stays is 1; NaN apart"
        same(got, wanted, f"round_to_bfloat16 of {what}", hint, rtol=0, atol=0)
        numbers = ~np.isnan(wanted)
        same(np.signbit(got)[numbers], np.signbit(wanted)[numbers], f"the signs of round_to_bfloat16 of {what}")
        same(x.view(np.uint32), before, f"{what} after round_to_bfloat16", "return a new array")


@pytest.mark.task("14.1")
def test_lost(impl, rng):
    count = [int(n) for n in rng.integers(1, 9, 4)]
    x = rng.permutation(np.repeat(np.float32([TINY, GOOD, HUGE, 0]), count)) * rng.choice(np.float32([-1, 1]))
    total = sum(count[:3])
    tiny, _, huge, _ = count
    for scale, zero, infinite in [(1.0, tiny, 0), (0.25, tiny, 0), (4.0, 0, huge), (2.0, tiny, huge)]:
        got = impl.lost(x, scale)
        what, hint = f"lost({x.tolist()}, {scale})", "gradients that are 0 before do not count; -inf does"
        same(float(got[0]), zero / total, f"the share that becomes 0 in {what}", hint)
        same(float(got[1]), infinite / total, f"the share that becomes inf in {what}", hint)


@pytest.mark.task("14.2")
def test_factor(impl, rng):
    parameters, without = [flow.zeros(3, requires_grad=True), flow.zeros(2, 2, requires_grad=True)], flow.ones(1)
    scaler, oracle, good = impl.LossScaler(8.0, interval=3), flow.amp.GradScaler(init_scale=8.0, growth_interval=3), 0
    sgd = flow.optim.SGD(parameters, lr=0.0)
    for number in range(40):
        factor, seen = scaler.factor, []
        true = [rng.standard_normal(p.shape).astype(np.float32) for p in parameters]
        bad = [INF, NAN, -INF][number % 3] if number % 20 >= 13 or number % 20 == 4 else None
        if bad is not None:
            true[int(rng.integers(2))].flat[-1] = bad
        what = f"step {number}, at the factor {factor}, gradients with {bad}"
        for p, g in zip(parameters, true):
            p.grad = scaler.scale(flow.tensor(g))
            same(p.grad, g * np.float32(factor), f"scale of a tensor in {what}")
        optimizer = SimpleNamespace(step=lambda: seen.extend(p.grad.numpy().copy() for p in parameters))  # noqa: B023
        got = scaler.step(optimizer, [*parameters, without])
        same(got, bad is None, f"what {what} returns", "one inf or NaN in any gradient is enough to skip")
        same(len(seen), 0 if bad else 2, f"the gradients that the optimizer sees in {what}", "skipped or not?")
        for found, wanted in zip(seen, true):
            same(found, wanted, f"a gradient that the optimizer sees in {what}", "divide by the factor before")
        for p, g in zip(parameters, true):
            p.grad = flow.tensor(g)
        oracle.step(sgd)
        oracle.update()
        hint = "double after `interval` good steps in a row, then count from 0; halve after a bad one, to 1 at least"
        same(float(scaler.factor), oracle.get_scale(), f"the factor after {what}", hint)
        good = 0 if bad or good == 2 else good + 1
        state = scaler.state_dict()
        wanted = {"factor": oracle.get_scale(), "good_steps": good}
        same(state, wanted, f"state_dict after {what}", "a skipped step ends the row")
        scaler = impl.LossScaler(2.0, interval=3)  # each step is resumed
        scaler.load_state_dict(state)


class FixedScaler:
    """Scales by 1024, and notes what it is given."""

    def __init__(self):
        self.calls = []

    def scale(self, loss):
        self.calls.append(str(loss.dtype))
        return loss * 1024.0

    def step(self, optimizer, parameters):
        for p in parameters:
            p.grad.mul_(1 / 1024)
        self.calls.append((len(parameters), flow.is_autocast_enabled("cpu")))
        optimizer.step()


@pytest.mark.task("14.3")
def test_train_step(impl, rng):
    seed, scaler, loss_function = int(rng.integers(1000)), FixedScaler(), flow.nn.CrossEntropyLoss()
    models = [flow.manual_seed(seed) and flow.nn.Sequential(flow.nn.Linear(5, 7), flow.nn.Linear(7, 3)) for _ in "ab"]
    optimizers = [flow.optim.SGD(model.parameters(), lr=0.5) for model in models]
    oracle = flow.amp.GradScaler(init_scale=1024.0)
    for number in range(3):
        x, labels = flow.tensor(rng.standard_normal((4, 5)).astype(np.float32)), flow.tensor(rng.integers(0, 3, 4))
        optimizers[1].zero_grad()
        with flow.autocast("cpu", flow.float16):
            wanted = loss_function(models[1](x), labels)
        oracle.scale(wanted).backward()
        oracle.step(optimizers[1])
        oracle.update()
        got = impl.train_step(models[0], loss_function, optimizers[0], scaler, x, labels)
        same(got, wanted.item(), f"the loss that train_step {number} returns", "that before scaling, as a float")
        what = "the dtype in scaler.scale; the number of parameters, and whether autocast is on, in scaler.step"
        same(scaler.calls, ["miniflow.float32", (4, False)], what, "autocast is for the model and the loss alone")
        scaler.calls.clear()
        for p, q in zip(*[model.parameters() for model in models]):
            what = f"a parameter of shape {tuple(p.shape)} after train_step {number}"
            same(p, q.detach().numpy(), what, "forget old gradients; compute in float16", rtol=1e-6)


class Run:
    """A small training run, whose batches and dropout are random."""

    def __init__(self, seed):
        flow.manual_seed(seed)
        self.model = flow.nn.Sequential(flow.nn.Linear(3, 5), flow.nn.Dropout(0.5), flow.nn.Linear(5, 2))
        optimizer = flow.optim.Adam(self.model.parameters(), lr=0.1)
        scheduler = flow.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        scaler = flow.amp.GradScaler(init_scale=4.0, growth_interval=3)
        self.parts = {"model": self.model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}

    def train(self, steps):
        _, optimizer, scheduler, scaler = self.parts.values()
        for _ in range(steps):
            optimizer.zero_grad()
            scaler.scale((self.model(flow.randn(6, 3)) ** 2).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()


@pytest.mark.task("14.4")
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_resumed(impl, rng, tmp_path, steps):
    path, seed = tmp_path / "run.safetensors", int(rng.integers(1000))
    whole = Run(seed)
    whole.train(steps)
    impl.save_run(path, whole.parts)
    same([p.name for p in tmp_path.iterdir()], [path.name], "the files in the folder after save_run")
    whole.train(3)
    drawn = flow.rand(3).numpy()
    resumed = Run(seed + 1)
    resumed.train(1)
    impl.load_run(path, resumed.parts)
    resumed.train(3)
    what = f"after {steps} steps, save_run, load_run in another run, and 3 steps"
    same(flow.rand(3), drawn, f"random numbers {what}", "save the state of the generator")
    for got, wanted in zip(resumed.model.parameters(), whole.model.parameters()):
        same(got, wanted.detach().numpy(), f"a parameter {what}", "all parts; all bits", rtol=0, atol=0)
    for name in ("scheduler", "scaler"):
        same(resumed.parts[name].state_dict(), whole.parts[name].state_dict(), f"the {name} {what}")


@pytest.mark.task("14.4")
def test_a_failure_leaves_the_old_file(impl, tmp_path):
    path, seen = tmp_path / "run.safetensors", []
    path.write_text("old")

    def write(state, temporary):
        seen.append((temporary.parent, temporary.name != path.name, path.exists() and path.read_text()))
        temporary.write_text("new")
        if len(seen) == 1:
            raise OSError("no space left")

    refused(lambda: impl.save_run(path, {}, write), OSError, "save_run whose write fails")
    same(path.read_text(), "old", "the file after save_run whose write failed")
    impl.save_run(path, {}, write)
    same(seen, [(tmp_path, True, "old")] * 2, "folder, whether the name is another, and the old file during write")
    same(path.read_text(), "new", "the file after save_run")


@pytest.mark.task("14.5")
def test_recomputed(impl, rng):
    flow.manual_seed(int(rng.integers(1000)))
    model = flow.nn.Sequential(flow.nn.Linear(5, 5), flow.nn.Tanh(), flow.nn.Dropout(0.4))
    x, dy, state = flow.randn(4, 5, requires_grad=True), flow.randn(4, 5), flow.get_rng_state()
    calls, found = [], []

    def function(x):
        calls.append(flow.is_grad_enabled())
        return model(x)

    for run in (flow.utils.checkpoint.checkpoint, impl.checkpoint):
        x.grad = None
        model.zero_grad(set_to_none=True)
        calls.clear()
        flow.set_rng_state(state)
        y = run(function, 2 * x)
        between = flow.rand(3)
        y.backward(dy)
        found.append([y, between, x.grad, *[p.grad for p in model.parameters()], flow.rand(3)])
        what = "for each call of the function, whether it is recorded"
        if run is impl.checkpoint:  # the library records both
            same(calls, [False, True], what, "once here, once in backward")
    names = ["the result", "random numbers between", "the gradient of x", "that of the weight", "that of the bias"]
    for name, wanted, got in zip([*names, "random numbers after backward"], *found):
        hint = "draw the same mask again, and then go on as if nothing had been drawn"
        same(got, wanted.detach().numpy(), f"checkpoint with dropout: {name}", hint, rtol=0, atol=0)


@pytest.mark.task("14.5")
def test_memory(impl):
    count, x, kept, gradients = 6, flow.ones(300, 100, requires_grad=True), [], []

    def segment(x):
        for _ in range(4):
            x = flow.tanh(x * 1.01)
        return x

    for run in (lambda f, x: f(x), impl.checkpoint):
        y = run(segment, x)  # the first call loads code, which takes memory
        tracemalloc.start()
        y = x
        for _ in range(count):
            y = run(segment, y)
        kept.append(tracemalloc.get_traced_memory()[0] / (4 * x.numel()))
        tracemalloc.stop()
        gradients += flow.autograd.grad(y.sum(), [x])
    what = f"memory after {count} segments of 8 operators, in arrays of the size of x"
    if kept[1] > count + 0.5 or kept[0] < 3 * count:
        raise AssertionError(f"{what}: expected at most {count + 0.5}, got {kept[1]:.1f}. Hint: keep x, nothing else")
    same(gradients[1], gradients[0].numpy(), f"the gradient of x through {count} segments", rtol=0, atol=0)
