"""`passes.checkpointing`: not one bit changes, and the peak of memory falls."""

import numpy as np
import pytest
from checks import assert_same
from op_classes import Gelu, GeluGrad, Mul
from programs import ProgramBuilder, assert_same_results, assert_unchanged, random_program
from training import Training, micro_batches, peak_bytes

import miniflow as flow
from miniflow import nn
from miniflow.graph.ir import BACKWARD, FORWARD
from miniflow.graph.passes import accumulation, cse, dead_code
from miniflow.graph.passes.checkpointing import flagged, run, segments_of
from miniflow.graph.uses import Uses
from miniflow.ops.matmul import Linear, Matmul
from miniflow.ops.normalization import BatchNorm

PRODUCT = {"transpose_x": False, "transpose_y": False}


def numbers(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def hand_written():
    """y = gelu(x w) 2, of which gelu(x w) is in a module, and its gradient by x."""
    b = ProgramBuilder()
    x, w = b.input(2, 3), b.parameter(4, 3)
    b.scope = "block.fc"
    h = b(Linear, x, w, None)
    b.scope = "block"
    a = b(Gelu, h, approximate="none")
    b.scope = ""
    y = b(Mul, a, 2.0)
    b.phase = BACKWARD
    da = b(Mul, y, 2.0)
    b.scope = "block"
    dh = b(GeluGrad, da, h, approximate="none")
    b.scope = "block.fc"
    return b.build(y, b(Matmul, dh, w, **PRODUCT))


GOLDEN = """\
program:
  %0:f32[2, 3] = input input.0
  %1:f32[4, 3] = parameter parameter.0
  %2:f32[2, 4] = linear(%0, %1, None)                                     # block.fc
  %3:f32[2, 4] = gelu(%2, approximate='none')                             # block
  %4:f32[2, 4] = mul(%3, 2.0)
  %5:f32[2, 4] = mul(%4, 2.0)
  %6:f32[2, 4] = linear(%0, %1, None)                                     # block.fc
  %7:f32[2, 4] = gelu_grad(%5, %6, approximate='none')                    # block
  %8:f32[2, 3] = matmul(%7, %1, transpose_x=False, transpose_y=False)     # block.fc
  return %4, %8"""


def test_golden():
    before = hand_written()
    after = assert_unchanged(before, lambda program: run(program, {"block"}))
    assert str(after) == GOLDEN
    again = after.instructions[4]
    assert again.after is after.instructions[3].output and again.phase == BACKWARD
    assert_same_results(before, after)


@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(30))
def test_random_programs(number):
    """Every now and then an instruction of forward is not in the module; all of backward belongs to it."""
    random = np.random.default_rng(number)
    recorded = random_program(number, steps=40)
    scopes = ["module" if i.phase == BACKWARD or random.random() < 0.9 else "" for i in recorded.instructions]
    pairs = zip(recorded.instructions, scopes, strict=True)
    before = recorded.with_(instructions=[i.with_(scope=scope) for i, scope in pairs])
    after = run(before, {"module"})
    assert_same_results(before, after)
    assert_same_results(before, cse.run(dead_code.run(after)))


def test_without_flagged_modules_nothing_happens():
    program = hand_written()
    assert run(program, frozenset()) is program and run(program, {"blo", "other"}) is program


@pytest.mark.parametrize(
    "scope, module",
    [("", None), ("a", None), ("ab.c", None), ("a.b", "a.b"), ("a.b.c.d", "a.b"), ("d", "d"), ("d.e.f", "d")],
)
def test_the_outermost_flagged_module_counts(scope, module):
    assert flagged(scope, {"a.b", "a.b.c", "d", "d.e"}) == module


# networks


class Residual(nn.Module):
    """Half of a transformer block: x + drop(fc2(gelu(fc1(norm(x)))))."""

    def __init__(self, width, rate=0.1):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act, self.drop = nn.GELU(), nn.Dropout(rate)

    def forward(self, x):
        return x + self.drop(self.fc2(self.act(self.fc1(self.norm(x)))))


class Attention(nn.Module):
    """The other half, with one head: x + softmax(q k^T) v."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = flow.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        return x + self.out(self.drop(weights) @ v)


class WithStatistics(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x):
        return flow.relu(self.norm(self.conv(x)))


class Shared(nn.Module):
    """Calls one block twice, with something of its own between."""

    def __init__(self):
        super().__init__()
        self.block = Residual(8)

    def forward(self, x):
        return self.block(flow.relu(self.block(x)))


NETWORKS = {
    "mlp": (lambda: nn.Sequential(*[Residual(8) for _ in range(3)]), (6, 8)),
    "transformer": (lambda: nn.Sequential(Attention(8), Residual(8), Attention(8), Residual(8)), (3, 5, 8)),
    "convolutions": (lambda: nn.Sequential(WithStatistics(3), WithStatistics(3), WithStatistics(3)), (2, 3, 5, 5)),
    "shared": (Shared, (6, 8)),
    "plain": (lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), (6, 8)),
}
SCOPES = [{"model"}, {"model.0", "model.1", "model.2"}, {"model.1"}, {"model.block"}, {"model.0.fc1", "model.1.act"}]


def training(name, device="cpu"):
    flow.manual_seed(5)
    make, shape = NETWORKS[name]
    model = make().to(device)
    step = Training(model, nn.MSELoss(), flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return step, [numbers(*shape), numbers(*shape, seed=1)]


def three_steps(step, program, arrays):
    outputs = []
    for number in range(3):
        flow.manual_seed(number)
        outputs += step.replay(program, *arrays)
    return {**step.values(), **{f"output {i}": y for i, y in enumerate(outputs)}}


@pytest.mark.parametrize("scopes", SCOPES, ids=lambda s: ",".join(sorted(s)))
@pytest.mark.parametrize("name", NETWORKS)
def test_no_bit_changes(name, scopes):
    (kept, arrays), (computed_again, _) = training(name), training(name)
    before = computed_again.record(*arrays)
    after = assert_unchanged(before, lambda program: run(program, scopes))
    after.check()
    got, want = three_steps(computed_again, after, arrays), three_steps(kept, kept.record(*arrays), arrays)
    assert got.keys() == want.keys() and got
    for key, value in got.items():
        assert_same(value, want[key], what=key)


@pytest.mark.parametrize("name", NETWORKS)
def test_backward_reads_nothing_of_a_segment_but_what_others_need(name):
    step, arrays = training(name)
    scopes = {"shared": {"model.block"}, "plain": {"model"}}.get(name, {f"model.{i}" for i in range(4)})
    before = step.record(*arrays)
    after = run(before, scopes)
    again = [i for i in after.instructions if i.after is not None]
    assert again and len(after.instructions) == len(before.instructions) + len(again)
    assert all(i.op is not BatchNorm for i in again)
    inside = {s for segment in segments_of(after, scopes) for i in segment if i.op is not BatchNorm for s in i.outputs}
    entering = {s for i in again for s in i.reads}
    for instruction in after.instructions:
        if instruction.phase == BACKWARD and instruction.after is None and flagged(instruction.scope, scopes):
            left = [slot for slot in instruction.reads if slot in inside and slot not in entering]
            outside = [i for s in left for i in Uses(after).readers[s] if not flagged(i.scope, scopes)]
            assert not left or outside, f"{instruction.op.function_name} {instruction.scope} keeps {left}"


def test_draws_are_those_of_forward():
    step, arrays = training("mlp")
    after = run(step.record(*arrays), {f"model.{i}" for i in range(3)})
    draws = [(i.phase, i.attrs["offset"].name) for i in after.instructions if i.is_random]
    first = [name for phase, name in draws if phase == FORWARD]
    assert len(first) == 3 and sorted(name for phase, name in draws if phase == BACKWARD) == sorted(first)


def test_random_copies_are_computed_from_the_same_mask():
    """Dropout in front of what backward reads: with another mask the gradient of the weight would differ."""
    flow.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 8)), nn.Linear(8, 8))
    step = Training(model, nn.MSELoss(), flow.optim.SGD(model.parameters(), lr=0.1))
    arrays = [numbers(6, 8), numbers(6, 8, seed=1)]
    before = step.record(*arrays)
    assert_same_results(before, run(before, {"model.0"}))


def test_together_with_accumulation_each_micro_step_is_a_segment_of_its_own():
    (both, arrays), (eager, _) = training("mlp"), training("mlp")
    recorded = accumulation.run(both.record(*micro_batches(arrays, 3)[0]), 3)
    after = run(recorded, {"model.0", "model.1"})
    after.check()
    assert len(list(segments_of(recorded, {"model.0", "model.1"}))) == 6
    for number in range(2):
        flow.manual_seed(number)
        got = both.replay(after, *arrays)
        flow.manual_seed(number)
        for y, want in zip(got, eager.eager(*micro_batches(arrays, 3)), strict=True):
            assert_same(y, want)
    for key, value in both.values().items():
        assert_same(value, eager.values()[key], what=key)


BLOCKS = {
    "mlp": (lambda: nn.Sequential(*[Residual(64) for _ in range(8)]), (512, 64), 8, 0.45),
    "transformer": (
        lambda: nn.Sequential(*[nn.Sequential(Attention(64), Residual(64)) for _ in range(8)]), (8, 64, 64), 8, 0.4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_the_peak_falls(name, capsys):
    make, shape, blocks, share = BLOCKS[name]
    model = make()
    step = Training(model, nn.MSELoss(), flow.optim.SGD(model.parameters(), lr=0.1))
    before = step.record(numbers(*shape), numbers(*shape))
    after = run(before, {f"model.{i}" for i in range(blocks)})
    peaks = peak_bytes(before), peak_bytes(after)
    with capsys.disabled():
        print(f"\n{name}: {peaks[0] / 2**20:.1f} MiB without, {peaks[1] / 2**20:.1f} MiB with checkpointing")
    assert peaks[1] < share * peaks[0]
