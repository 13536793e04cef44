"""autocast: random programs and models compute what was chosen for them, bit for bit, and stay close to float32."""

import numpy as np
import pytest
from checks import assert_close
from mixed_precision import BF16, F16, UNIT, casted, emulated, in_half, relative_error, runs
from programs import assert_same_bits, of_model, random_program, recorded, with_gradients

import miniflow as flow
from miniflow import nn

HALVES = pytest.mark.parametrize("dtype", [F16, BF16], ids=str)


@HALVES
@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(12))
def test_random_programs_compute_what_the_choice_says(number, dtype, seed):
    """Bit for bit, forward, backward and writes to states."""
    before = random_program(100 * number + seed)
    after = casted(before, dtype)
    for want, got in zip(emulated(before, dtype), runs(after), strict=True):
        assert_same_bits(got, want)


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3)), (5, 6)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 3),
            nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3),
        ),
        (3, 2, 6, 6),
    ),
    "attention": (lambda: Attention(8), (2, 5, 8)),
}  # fmt: skip


class Attention(nn.Module):
    """x + softmax(q k^T / sqrt(d)) v for q, k, v of normalized x."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = flow.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
        return x + self.out(weights @ v)


@HALVES
@pytest.mark.parametrize("name", MODELS)
def test_models_are_close_to_float32(name, dtype):
    """A rounding is off by `UNIT` of a value's size. Of the thirty that follow each other in these models, errors of
    random sign add up to sqrt(30), and normalizations and softmax amplify what is left by a small factor."""
    make, shape = MODELS[name]
    flow.manual_seed(3)
    before = of_model(make(), shape)
    after = casted(before, dtype)
    assert len(in_half(after)) >= 9
    relative_error(before, after, 24 * UNIT[dtype])
    for want, got in zip(emulated(before, dtype), runs(after), strict=True):
        assert_same_bits(got, want)


@HALVES
def test_equals_a_program_with_casts_written_by_hand(dtype):
    half = {F16: flow.float16, BF16: flow.bfloat16}[dtype]
    values = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)

    def gradients(forward):
        w, v = (flow.tensor(a, requires_grad=True) for a in values)
        return recorded(with_gradients(lambda x: forward(x, w, v), [w, v]), (3, 4), states={"w": w, "v": v})

    def plain(x, w, v):
        y = flow.tanh(x @ w) @ v
        return flow.exp(y).mean()

    def by_hand(x, w, v):
        y = flow.tanh(x.to(half) @ w.to(half)) @ v.to(half)
        return flow.exp(y.float()).mean()

    got, want = casted(gradients(plain), dtype), gradients(by_hand)
    for a, b in zip(runs(got), runs(want), strict=True):
        assert_same_bits(a, b)
    assert_close(runs(got)[0], runs(gradients(plain))[0], rtol=30 * UNIT[dtype], atol=0)
