"""`flow.profiler`: which events there are, what they count, and that a profile changes nothing."""

import json
import threading

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.dispatch.dispatcher import Op
from miniflow.errors import ArgumentError, ArgumentTypeError, FileWriteError, ShapeError
from miniflow.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def by_name(prof: profile, **options: bool) -> dict:
    """The averages of a profile by the name of the event."""
    return {row.key: row for row in prof.key_averages(**options)}


def network() -> nn.Sequential:
    """A convolution and a layer, of known parameters."""
    flow.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 5))


def trained(steps: int = 2, prof: profile | None = None) -> list[np.ndarray]:
    """The parameters of the network after some steps of Adam."""
    module = network()
    optimizer = flow.optim.Adam(module.parameters())
    x, y = flow.randn(3, 2, 8, 8), flow.tensor([0, 4, 2])
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        if prof is not None:
            prof.step()
    return [p.numpy() for p in module.parameters()]


# what is counted


def test_a_profile_of_the_cpu_loads_nothing_for_gpus(monkeypatch):
    """Loading it takes 50 ms, which would be those of the first operator."""
    monkeypatch.setattr(flow.cuda, "is_available", lambda: pytest.fail("asked for a GPU"))
    with profile() as prof:
        flow.ones(4, device="cpu") + 1
    assert [event.name for event in prof.events() if event.is_operator] == ["add"]


def test_each_operator_is_a_row():
    x, w = flow.ones(4, 6), flow.ones(6, 5)
    with profile(record_shapes=True, profile_memory=True, with_flops=True) as prof:
        y = (x @ w) @ flow.ones(5, 5)
        y.t()
        y + 1.0
    rows = by_name(prof, group_by_input_shape=True)
    assert [(e.name, e.input_shapes, e.flops) for e in prof.events() if e.name == "matmul"] == [
        ("matmul", ((4, 6), (6, 5)), 2 * 4 * 6 * 5),
        ("matmul", ((4, 5), (5, 5)), 2 * 4 * 5 * 5),
    ]
    assert rows["matmul"].count == 1, "shapes are told apart"
    assert by_name(prof)["matmul"].count == 2
    assert by_name(prof)["matmul"].bytes == 4 * (4 * 6 + 6 * 5 + 4 * 5 + 4 * 5 + 5 * 5 + 4 * 5)
    assert by_name(prof)["matmul"].cpu_memory_usage == 4 * (4 * 5 + 4 * 5)
    assert (rows["add"].bytes, rows["add"].flops, rows["add"].cpu_memory_usage) == (4 * (20 + 20), 20, 80)
    view = by_name(prof)["transpose"]
    assert (view.bytes, view.cpu_memory_usage, view.flops) == (0, 0, 0)


def test_an_expanded_operand_counts_what_it_has_in_memory():
    x = flow.ones(1, 5).expand(4, 5)
    with profile() as prof:
        flow.exp(x)
    assert by_name(prof)["exp"].bytes == 4 * (5 + 20)


def test_convolutions_count_their_products():
    x, w = flow.ones(2, 4, 7, 7, requires_grad=True), flow.ones(6, 2, 3, 3, requires_grad=True)
    with profile(with_flops=True) as prof:
        nn.functional.conv2d(x, w, stride=2, groups=2).sum().backward()
    products = 2 * (2 * 6 * 3 * 3) * (2 * 3 * 3)
    flops = {row.key: row.flops for row in prof.key_averages() if row.flops}
    assert flops == dict.fromkeys(("conv2d", "conv2d_data_grad", "conv2d_weight_grad"), products)


def test_self_times_add_up_to_the_time_of_what_holds_all():
    with profile() as prof, record_function("all of it"):
        trained()
    rows = by_name(prof)
    assert {"all of it", "backward", "Optimizer.step#Adam.step", "conv2d", "adam_update", "linear"} <= rows.keys()
    assert sum(row.self_cpu_time_total for row in rows.values()) == pytest.approx(rows["all of it"].cpu_time_total)
    for row in rows.values():
        assert 0 <= row.self_cpu_time_total <= row.cpu_time_total <= rows["all of it"].cpu_time_total, row.key
    assert rows["backward"].self_cpu_time_total < rows["backward"].cpu_time_total
    assert rows["backward"].cpu_time == rows["backward"].cpu_time_total / 2


def test_events_nest():
    with profile() as prof:
        with record_function("outer"), record_function("inner"):
            flow.ones(2) + 1
    outer, inner, *operators = prof.events()
    assert (outer.name, inner.name, operators[-1].name) == ("outer", "inner", "add")
    assert outer.start <= inner.start <= operators[-1].start
    assert operators[-1].end <= inner.end <= outer.end
    assert outer.children == inner.end - inner.start


def test_record_function_decorates_and_does_nothing_without_a_profile():
    @record_function("doubled")
    def doubled(x):
        """Twice x."""
        return x * 2

    assert doubled(flow.ones(1)).item() == 2 and doubled.__doc__ == "Twice x."
    with profile() as prof:
        doubled(flow.ones(1))
        doubled(flow.ones(1))
    assert by_name(prof)["doubled"].count == 2


def test_graphs_and_loaders():
    class Doubled(nn.Graph):
        def build(self, x):
            return x * 2

    doubled, x = Doubled(), flow.ones(3)
    doubled(x)
    loader = flow.utils.data.DataLoader(flow.utils.data.TensorDataset(flow.arange(5.0)), batch_size=2)
    with profile() as prof:
        doubled(x)
        batches = [batch.tolist() for (batch,) in loader]
    assert batches == [[0, 1], [2, 3], [4]]
    rows = by_name(prof)
    assert rows["Doubled"].count == 1 and "mul" not in rows, "the replay consists of no operators"
    assert rows["enumerate(DataLoader)"].count == 4, "three batches, and the end"


def test_an_operator_on_a_global_tensor_holds_those_of_its_shards():
    flow.parallel.simulate(2)
    try:
        split = flow.ones(4, 2).to_global(placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
        with profile() as prof:
            flow.exp(split)
    finally:
        flow.parallel.simulate(1)
    outer, *shards = [event for event in prof.events() if event.name == "exp"]
    assert len(shards) == 2 and all(outer.start <= e.start and e.end <= outer.end for e in shards)


def test_lines_of_the_program():
    with profile(with_stack=True) as prof:
        flow.ones(2).exp()
        flow.ones(2).exp()
    rows = [row for row in prof.key_averages(group_by_stack_n=1) if row.key == "exp"]
    lines = [int(row.stack.removeprefix("test_profiler.py:")) for row in rows]
    assert lines[1] == lines[0] + 1


# when it is measured


def test_a_schedule_keeps_the_active_steps():
    traces = []
    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    actions = [plan(i) for i in range(10)]
    cycle = [ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE]
    assert actions == [ProfilerAction.NONE, *cycle, *cycle, ProfilerAction.NONE]
    with profile(schedule=plan, on_trace_ready=lambda p: traces.append(p.key_averages())) as prof:
        trained(12, prof)
    steps = [[row.key for row in trace if row.key.startswith("ProfilerStep")] for trace in traces]
    assert steps == [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#7", "ProfilerStep#8"]]
    assert [next(row.count for row in trace if row.key == "backward") for trace in traces] == [2, 2]
    kept = [row.key for row in prof.key_averages() if row.key.startswith("ProfilerStep")]
    assert kept == ["ProfilerStep#7", "ProfilerStep#8"], "the last cycle can be looked at, at the end too"


def test_a_range_may_hold_steps():
    with profile(schedule=schedule(wait=0, warmup=0, active=3)) as prof:
        with record_function("epoch"):
            for _ in range(2):
                flow.ones(2).exp()
                prof.step()
        flow.ones(2).log()
    events = {event.name: event for event in prof.events()}
    first, second, epoch = (events[name] for name in ("ProfilerStep#0", "ProfilerStep#1", "epoch"))
    assert first.start <= epoch.start <= first.end <= second.start <= second.end <= epoch.end
    assert first.children == 0, "the range outlives the step, and what was called is in the range"
    assert all(event.children < event.end - event.start for event in prof.events())
    assert events["ProfilerStep#2"].start <= events["log"].start and events["log"].end <= events["ProfilerStep#2"].end


def test_without_a_schedule_the_trace_is_ready_at_the_end():
    ready = []
    with profile(on_trace_ready=ready.append) as prof:
        flow.ones(2)
        assert ready == []
    assert ready == [prof]


def test_other_threads_are_not_measured():
    with profile() as prof:
        thread = threading.Thread(target=lambda: flow.ones(2).exp())
        thread.start()
        thread.join()
        flow.ones(2).log()
    assert "log" in by_name(prof) and "exp" not in by_name(prof)


def test_a_profile_changes_no_number():
    expected = trained()
    with profile(record_shapes=True, with_flops=True, with_stack=True):
        actual = trained()
    for a, b in zip(actual, expected, strict=True):
        assert_same(a, b)
    for x in (flow.ones(3, 4).t(), flow.ones(2, 3)):
        with profile():
            y = x + x
        assert y.is_contiguous() == (x + x).is_contiguous()


def test_errors_pass_through_and_leave_no_profile_behind():
    tables = {op: op.kernels for op in Op.by_name.values()}
    with pytest.raises(ShapeError, match="matmul"), profile() as prof:
        flow.ones(2, 3) @ flow.ones(2, 3)
    assert all(op.kernels is table for op, table in tables.items())
    assert by_name(prof)["matmul"].count == 1
    with profile() as again:
        flow.ones(2) + 1
    assert "matmul" not in by_name(again) and by_name(again)["add"].count == 1


def test_a_second_profile_is_refused():
    with profile(), pytest.raises(ArgumentError, match="another profile is on"):
        profile().start()
    with pytest.raises(ArgumentError, match="profile.stop: it is not on in this thread"):
        profile().stop()


# what comes out


def test_the_table():
    with profile(record_shapes=True, with_flops=True, activities=[ProfilerActivity.CPU]) as prof:
        flow.ones(64, 64) @ flow.ones(64, 64)
        flow.ones(2) + flow.ones(2)
    text = prof.key_averages(group_by_input_shape=True).table(sort_by="flops", row_limit=1)
    rule, head, _, row, _, total = text.splitlines()
    assert [len(line) for line in (head, row)] == [len(rule)] * 2
    columns = ["Name", "Self CPU %", "CPU time avg", "# of Calls", "Bytes", "Total MFLOPs", "Input Shapes"]
    assert all(name in head for name in columns) and "CPU Mem" not in head
    assert row.split()[0] == "matmul" and "48.00 KB" in row and "0.524" in row and "[[64, 64], [64, 64]]" in row
    assert total.startswith("Self CPU time total: ")
    assert len(prof.key_averages().table(row_limit=-1).splitlines()) == 5 + len(prof.key_averages())
    assert str(prof.key_averages()) == prof.key_averages().table()
    with pytest.raises(ArgumentError, match="got sort_by='time'; expected one of self_cpu_time_total"):
        prof.key_averages().table(sort_by="time")


def test_the_trace_for_chrome(tmp_path):
    with profile(record_shapes=True) as prof, record_function("step"):
        flow.ones(2, 3).exp()
    prof.export_chrome_trace(tmp_path / "trace.json")
    step, *_, exp = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert (step["name"], step["cat"], step["ph"], step["args"]) == ("step", "user_annotation", "X", {})
    assert (exp["name"], exp["cat"], exp["args"]["Input Dims"]) == ("exp", "cpu_op", [[2, 3]])
    assert step["ts"] <= exp["ts"] and exp["ts"] + exp["dur"] <= step["ts"] + step["dur"] + 1e-3
    assert step["tid"] == exp["tid"]


@pytest.mark.parametrize("options", [{"wait": -1, "warmup": 0, "active": 1}, {"wait": 0, "warmup": 0, "active": 0}])
def test_what_schedule_refuses(options):
    with pytest.raises(ArgumentError, match="schedule: got .*expected at least one active step"):
        schedule(**options)


def averages():
    """Those of a profile of one operator."""
    with profile() as prof:
        flow.ones(2).exp()
    return prof.key_averages()


CPU = ProfilerActivity.CPU
REFUSED = {  # what is called, and the words of its error
    "names": (lambda: profile(activities=["cpu"]), r"profile: got activities=\['cpu'\]; expected some of Prof"),
    "no list": (lambda: profile(activities=CPU), r"=<ProfilerActivity.CPU: 0>; .* in \[ProfilerActivity.CPU\]"),
    "no schedule": (lambda: profile(schedule=3), "profile: got schedule=3; expected a function"),
    "no handler": (lambda: profile(on_trace_ready="t.json"), "got on_trace_ready='t.json'; expected a function"),
    "steps": (lambda: schedule(wait="a", warmup=0, active=1), "schedule: got wait='a'; expected an integer"),
    "half a step": (lambda: schedule(wait=0, warmup=0, active=1.5), "schedule: got active=1.5; expected an integer"),
    "rows": (lambda: averages().table(row_limit="a"), "table: got row_limit='a'; expected an integer"),
    "all rows": (lambda: averages().table(row_limit=None), "table: got row_limit=None; expected an integer"),
    "stacks": (
        lambda: profile().key_averages(group_by_stack_n="a"), "key_averages: got group_by_stack_n='a'; expected an int"
    ),
    "a number as path": (lambda: profile().export_chrome_trace(5), "export_chrome_trace: got path=5; expected a path"),
    "no name": (lambda: record_function(3), "record_function: got name=3; expected a text"),
    "a function as name": (lambda: record_function(print), r'got name=<built-in .* as in record_function\("forward"\)'),
}  # fmt: skip


@pytest.mark.parametrize("option", REFUSED)
def test_what_is_of_another_type(option):
    call, message = REFUSED[option]
    with pytest.raises(ArgumentTypeError, match=message):
        call()


@pytest.mark.parametrize("name", ["no/such/t.json", "."])
def test_a_trace_that_cannot_be_written(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(FileWriteError, match=rf"export_chrome_trace: cannot write {path}: .*; expected room") as raised:
        profile().export_chrome_trace(path)
    assert ".tmp" not in str(raised.value) and list(tmp_path.iterdir()) == []


FAILING = {
    "a schedule of nothing": ({"schedule": lambda step: None}, ArgumentTypeError, "result=None; expected a Prof"),
    "a schedule that fails": ({"schedule": lambda step: step // 0}, ZeroDivisionError, "by zero"),
    "a handler that fails": ({"on_trace_ready": lambda prof: {}["trace"]}, KeyError, "trace"),
}  # fmt: skip


@pytest.mark.parametrize("way", FAILING)
def test_what_a_user_gave_may_fail_and_leaves_no_profile_behind(way):
    options, error, message = FAILING[way]
    with pytest.raises(error, match=message), profile(**options):
        pass
    assert "exp" in [row.key for row in averages()]


def test_a_step_of_a_profile_that_is_not_on():
    with pytest.raises(ArgumentError, match=r"profile.step: it is not on in this thread; call start\(\) first"):
        profile().step()
