"""When a replay on a GPU is launched as a CUDA graph; the driver is a stand-in that repeats what was recorded."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from compare import assert_close, to_host

import miniflow as flow
from miniflow.graph import trace
from miniflow.graph.capture import CHANGING, Capture, why_not
from miniflow.graph.ir import PARAMETER, Scalar
from miniflow.graph.replay import Replay


class Graphs:
    """Records by running the function, and launches by copying what a run gives into the recorded outputs."""

    def __init__(self, error=None):
        self.recording, self.launches, self.destroyed, self.error = False, 0, 0, error

    def begin(self, stream):
        if self.error:
            raise RuntimeError(self.error)
        self.recording = True

    def end(self, stream):
        self.recording = False
        return "graph"

    def launch(self, graph, stream):
        self.launches += 1
        self.capture.relaunch()

    def destroy(self, graph):
        self.destroyed += 1


class Recorded(Capture):
    def relaunch(self):
        for place, y in zip(self.outputs, self.function(*self.inputs), strict=True):
            flow.backends.memory.copy_into(place, y)


def captured(step, shape, error=None):
    from miniflow.backends.cuda.streams import Stream

    program = trace.record(step, [(shape, np.dtype("float32"), flow.device("cuda"))])
    graphs = Graphs(error)
    replay = Replay(program)
    graphs.capture = Recorded(replay._function, program, graphs, Stream(0))
    replay.capture = graphs.capture
    return replay, graphs


def on_device(values):
    return flow.tensor(np.asarray(values, np.float32), device="cuda")._array


def test_second_call_is_captured_and_outputs_are_fresh():
    replay, graphs = captured(lambda x: [x * 2.0, x.sum()], (3,))
    outputs, reasons = [], []
    for i in range(4):
        outputs.append(replay([on_device([i, 1, 2])]))
        reasons.append(replay.capture.reason)
    for i, (y, total) in enumerate(outputs):
        assert_close(to_host(y), np.array([2 * i, 2, 4], np.float32))
        assert_close(to_host(total), np.float32(i + 3))
    assert reasons == ["the first call", None, None, None] and graphs.launches == 3


def test_other_numbers_are_replayed_on_the_stream():
    rate = [1.0]
    replay, graphs = captured(lambda x: [x + 1.0], (2,))
    instruction = replay.program.instructions[0]
    scalar = Scalar("rate", lambda: rate[0])
    replay.program.instructions[0] = instruction.with_(attrs={"unused": scalar})
    numbers = [1.0, 1.0, 2.0, 3.0, 3.0, 3.0]
    launches = []
    for number in numbers:
        rate[0] = number
        (y,) = replay([on_device([number, 0])])
        assert_close(to_host(y), np.array([number + 1, 1], np.float32))
        launches.append(graphs.launches)
    assert launches == [0, 1, 1, 1, 2, 3] and graphs.destroyed == 1
    rate[0] = 4.0
    replay([on_device([0, 0])])
    assert replay.capture.reason == CHANGING


def test_the_next_launch_waits_for_the_copies_that_another_stream_makes_of_the_outputs(monkeypatch):
    from miniflow.backends.cuda.streams import Stream, stream

    replay, _ = captured(lambda x: [x * 2.0], (3,))
    waits, caller = [], Stream(0)
    monkeypatch.setattr(Stream, "wait_stream", lambda self, other: waits.append((self, other)))
    with stream(caller):
        replay([on_device([0, 1, 2])])
    own = replay.capture.stream
    assert waits == [(own, caller), (caller, own), (own, caller)]


def test_failure_falls_back_and_says_why(caplog):
    replay, graphs = captured(lambda x: [x * 3.0], (2,), error="no such luck")
    for _ in range(3):
        (y,) = replay([on_device([1, 2])])
        assert_close(to_host(y), np.array([3, 6], np.float32))
    assert replay.capture.reason == "capturing failed: no such luck" and graphs.launches == 0
    assert [record.message for record in caplog.records] == ["program: capturing failed: no such luck"]


def test_programs_that_are_never_captured():
    def reason(step, device, **states):
        states = [(name, PARAMETER, tensor) for name, tensor in states.items()]
        program = trace.record(step, [((4,), np.dtype("float32"), flow.device(device))], states)
        return why_not(program, emulated=False)

    assert reason(lambda x: [x + 1.0], "cuda") is None
    assert reason(lambda x: [x + 1.0], "cpu") == "it works on cpu, not on one cuda device"
    assert reason(lambda x: [x.to("cpu")], "cuda").startswith("it works on cpu, cuda:0, not")
    assert reason(lambda x: [flow.nn.functional.dropout(x)], "cuda") == f"random draws: {CHANGING}"


def test_an_emulated_device_is_never_captured():
    program = trace.record(lambda x: [x + 1.0], [((4,), np.dtype("float32"), flow.device("cuda"))])
    config = types.SimpleNamespace(cuda_graph=True, outputs_buffer_size=2)
    if not flow.cuda.is_emulated():
        pytest.skip("this machine has a GPU")
    replay = Replay(program, config)
    assert replay.capture == "the device is emulated"
    assert_close(to_host(replay([on_device(np.ones(4))])[0]), np.full(4, 2, np.float32))


@pytest.mark.slow
def test_ranges_for_profilers(monkeypatch):
    """Each module is a range, where nvtx is installed."""
    calls = []
    nvtx = types.ModuleType("nvtx")
    nvtx.__spec__ = types.SimpleNamespace(name="nvtx")
    nvtx.push_range, nvtx.pop_range = calls.append, lambda: calls.append("pop")
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    model = flow.nn.Sequential(flow.nn.Linear(3, 2), flow.nn.ReLU()).to("cuda")
    modules = {module: f"model.{name}" for name, module in model.named_modules() if name}
    metas = [((2, 3), np.dtype("float32"), flow.device("cuda"))]
    program = trace.record(lambda x: [model(x)], metas, modules=modules)
    Replay(program)([flow.ones(2, 3, device="cuda")._array])
    assert calls == ["model.0", "pop", "model.1", "pop"]


def test_a_graph_that_asks_for_cuda_graphs_replays_on_the_stream_where_there_are_none():
    class Doubled(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.enable_cuda_graph()

        def build(self, x):
            return (x * 2).exp()

    graph = Doubled()
    x = flow.tensor([0.0, 1.0], device="cuda" if flow.cuda.is_emulated() else "cpu")
    for _ in range(3):
        assert_close(graph(x).cpu(), np.exp(np.array([0.0, 2.0], np.float32)), rtol=1e-6)
    assert isinstance(graph._last.replay.capture, str) and graph._last.replay.capture
