"""Recording switched off and on: as a block, as a decorator, by thread."""

import inspect
import threading

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow


def scalar(value: float = 3.0) -> flow.Tensor:
    """A 0-dim leaf in float64."""
    return flow.tensor(value, dtype=flow.float64, requires_grad=True)


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64."""
    return flow.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


@pytest.mark.parametrize("mode", [flow.no_grad, flow.inference_mode, lambda: flow.set_grad_enabled(False)])
def test_nothing_is_recorded_inside(mode):
    x = scalar()
    with mode():
        assert not flow.is_grad_enabled()
        y = x * 2
    assert flow.is_grad_enabled() and not y.requires_grad and y.is_leaf
    with flow.no_grad(), flow.enable_grad():
        assert (x * 2).requires_grad


def test_modes_as_decorators():
    x = scalar()

    @flow.no_grad()
    def called():
        return x * 2

    @flow.no_grad
    def bare(scale, *, shift):
        "Its documentation."
        return x * scale + shift

    @flow.enable_grad()
    def recorded():
        return x * 2

    @flow.set_grad_enabled(False)
    def switched():
        return x * 2

    assert flow.is_grad_enabled()
    assert not called().requires_grad and not bare(2, shift=1).requires_grad and not switched().requires_grad
    assert bare.__name__ == "bare" and bare.__doc__ == "Its documentation."
    with flow.no_grad():
        assert recorded().requires_grad and not flow.is_grad_enabled()


def test_inference_mode_takes_a_mode_as_that_of_torch():
    with flow.inference_mode(True):
        assert not flow.is_grad_enabled()
        with flow.inference_mode(mode=False):
            assert flow.is_grad_enabled()

    @flow.inference_mode(False)
    def recorded():
        return flow.is_grad_enabled()

    @flow.inference_mode
    def bare():
        return flow.is_grad_enabled()

    with flow.no_grad():
        assert recorded()
    assert not bare()


@pytest.mark.parametrize(
    ("decorator", "state"),
    [
        (flow.no_grad(), flow.is_grad_enabled),
        (flow.no_grad, flow.is_grad_enabled),
        (flow.inference_mode(), flow.is_grad_enabled),
        (lambda function: flow.set_grad_enabled(False)(function), flow.is_grad_enabled),
        (flow.autocast("cpu"), lambda: not flow.is_autocast_enabled("cpu")),
    ],
)
def test_a_decorated_generator_runs_in_the_mode_and_its_caller_does_not(decorator, state):
    @decorator
    def numbers(n):
        """Its documentation."""
        try:
            sent = yield n, state()
            yield sent, state()
        except ZeroDivisionError:
            yield "caught", state()
        finally:
            closed.append(state())
        return "result", state()

    flow.set_grad_enabled(True)
    closed = []
    generator = numbers(5)
    assert next(generator) == (5, False) and state()
    assert generator.send(7) == (7, False) and state()
    assert generator.throw(ZeroDivisionError()) == ("caught", False) and state()
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == ("result", False) and state()
    generator = numbers(1)
    next(generator)
    generator.close()
    assert closed == [False, False] and state()
    assert numbers.__doc__ == "Its documentation." and inspect.isgeneratorfunction(numbers)


def test_modes_are_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), flow.no_grad():
        raise ZeroDivisionError
    assert flow.is_grad_enabled()

    @flow.no_grad
    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert flow.is_grad_enabled()


def test_one_mode_object_may_be_entered_again():
    mode = flow.no_grad()
    with mode:
        with mode:
            assert not flow.is_grad_enabled()
        assert not flow.is_grad_enabled()
    assert flow.is_grad_enabled()


def test_set_grad_enabled_acts_at_once():
    flow.set_grad_enabled(False)
    try:
        assert not flow.is_grad_enabled()
    finally:
        flow.set_grad_enabled(True)
    assert flow.is_grad_enabled()


def test_modes_belong_to_their_thread():
    states = {}
    entered, leave = threading.Event(), threading.Event()

    def run():
        with flow.no_grad():
            entered.set()
            leave.wait(10)
            states["inside"] = flow.is_grad_enabled()
        states["after"] = flow.is_grad_enabled()

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)
    states["here"] = flow.is_grad_enabled()
    leave.set()
    thread.join()
    assert states == {"here": True, "inside": False, "after": True}


def test_backward_in_two_threads():
    results = {}

    def run(name):
        x = leaf(50, 50, seed=name)
        for _ in range(20):
            x.grad = None
            ((x @ x).tanh() * x).sum().backward()
        results[name] = x.grad.cpu().numpy()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parallel = dict(results)
    for i in range(3):
        run(i)
        assert_close(parallel[i], results[i])


def test_backward_leaves_the_mode_as_it_was():
    x = scalar()
    with flow.no_grad():
        pass
    y = x * x
    with flow.no_grad():
        y.backward(create_graph=True)
        assert not flow.is_grad_enabled()
    assert x.grad.requires_grad
