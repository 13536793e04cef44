"""Within a region of `flow.autocast` a parameter is cast once, and again when it has changed."""

import weakref

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.backends.registry import KERNELS, Kernel, kernel_of
from miniflow.dispatch.tape import modes
from miniflow.ops.promotion import Cast

X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)


@pytest.fixture
def here():
    return flow.get_default_device().type


class Casts:
    """Counts the casts of a tensor's array within."""

    def __init__(self, monkeypatch, device):
        self.arrays = []
        kernel = kernel_of(device, "Cast")

        def counted(out, x, *, dtype):
            self.arrays.append(x)
            kernel.run(out, x, dtype=dtype)

        monkeypatch.setitem(KERNELS[device], "Cast", Kernel(counted))
        monkeypatch.setattr(Cast, "kernels", {})

    def of(self, tensor):
        return sum(x is tensor._array for x in self.arrays)


def test_a_parameter_is_cast_once(here, monkeypatch):
    casts = Casts(monkeypatch, here)
    x, w, frozen = flow.tensor(X), flow.tensor(W, requires_grad=True), flow.tensor(W)
    with flow.autocast(here):
        for _ in range(3):
            with flow.autocast(here):
                x @ w @ frozen
        assert (casts.of(w), casts.of(frozen), casts.of(x)) == (1, 3, 3)
    with flow.autocast(here):
        x @ w
    assert casts.of(w) == 2


def test_a_parameter_that_changed_is_cast_again(here):
    x, w = flow.tensor(X), flow.tensor(W, requires_grad=True)
    with flow.autocast(here):
        before = x @ w
        with flow.no_grad():
            w.mul_(2.0)
        assert_same(x @ w, before * 2)
        w.data = flow.tensor(W * 4)
        assert_same(x @ w, before * 4)
        w.grad = flow.tensor(W * 4)
        flow.optim.SGD([w], lr=1.0).step()
        assert_same(x @ w, before * 0)


def test_casts_made_without_recording_do_not_hide_gradients(here):
    x, w = flow.tensor(X), flow.tensor(W, requires_grad=True)
    with flow.autocast(here):
        with flow.no_grad():
            x @ w
        y = (x @ w).sum()
    y.backward()
    assert w.grad is not None and w.grad.dtype is flow.float32


def test_the_cache_can_be_switched_off(here, monkeypatch):
    casts = Casts(monkeypatch, here)
    x, w = flow.tensor(X), flow.tensor(W, requires_grad=True)
    with flow.autocast(here, cache_enabled=False):
        x @ w
        x @ w
    assert casts.of(w) == 2


def test_the_cache_keeps_nothing_alive(here):
    region = flow.autocast(here)
    x = flow.tensor(X)
    with region:
        w = flow.tensor(W, requires_grad=True)
        x @ w
        seen = weakref.ref(w)
        del w
        assert seen() is None
        v = flow.tensor(W, requires_grad=True)  # perhaps at the same address
        assert_same((x @ v).detach(), (x @ flow.tensor(W)))
        low = weakref.ref(modes.autocast.cache._casts[id(v), region.dtype.numpy][1])
    assert low() is None  # without waiting for the garbage collector
