"""Where a program spends its time: a row for each operator, with `torch.profiler`'s names, and a trace for Chrome.

While a profile is on, the table in which an operator keeps its kernels (`Op.kernels`) hands out kernels that note
when they begin and end; without a profile nothing is measured, and nothing is paid. Events nest: the time of an event
without that of the events within it is its "self" time. Beside the times stand the bytes of operands and results and,
if asked for, the operations: with both, an operator has its place under a roofline (Williams, Waterman and Patterson,
"Roofline: an insightful visual performance model for multicore architectures", 2009).

    with flow.profiler.profile(record_shapes=True) as prof:
        loss(model(x), y).backward()
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")  # for chrome://tracing or ui.perfetto.dev
"""

from __future__ import annotations

import enum
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from numbers import Integral
from typing import Any

from numpy import ufunc

from miniflow import cuda
from miniflow.backends.runtime_defaults import user_level
from miniflow.dispatch.context_decorator import ContextDecorator
from miniflow.dispatch.dispatcher import Op, is_array
from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError, ArgumentTypeError, refusal
from miniflow.serialization.atomic import replacing, writing

FLOPS: dict[str, Callable[..., int]] = {  # operator -> of result, operands and attributes; a multiply-add counts as two
    "Matmul": lambda y, a, b, *, transpose_x, **_: 2 * prod(y.shape) * a.shape[-2 if transpose_x else -1],
    "SummedProduct": lambda y, a, b: 2 * prod(y.shape) * prod(a.shape[:-1]),
    "Linear": lambda y, x, weight, bias: 2 * prod(y.shape) * x.shape[-1],
    "Conv2d": lambda y, x, weight, bias, **_: 2 * prod(y.shape) * prod(weight.shape[1:]),
    "Conv2dDataGrad": lambda dx, dy, weight, **_: 2 * prod(dy.shape) * prod(weight.shape[1:]),
    "Conv2dWeightGrad": lambda dweight, dy, x, **_: 2 * prod(dy.shape) * prod(dweight.shape[1:]),
    "Add": lambda y, *_: prod(y.shape),
    "Mul": lambda y, *_: prod(y.shape),
}


SORTABLE = ("self_cpu_time_total", "cpu_time_total", "cpu_time", "count", "bytes", "cpu_memory_usage", "flops")


class ProfilerActivity(enum.Enum):
    """What is measured. Source: `torch.profiler.ProfilerActivity`."""

    CPU = 0
    CUDA = 1


class ProfilerAction(enum.Enum):
    """What a schedule wants of a step. Source: `torch.profiler.ProfilerAction`."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def _require(condition: bool, op: str, expected: str, **got: Any) -> None:
    if not condition:
        raise refusal(ArgumentTypeError, op, expected, **got)


def _require_integers(op: str, **numbers: Any) -> None:
    for name, number in numbers.items():
        fits = isinstance(number, Integral) and not isinstance(number, bool)
        _require(fits, op, "an integer", **{name: number})


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0
) -> Callable[[int], ProfilerAction]:
    """For `profile`: after `skip_first` steps, cycles of `wait` and `warmup` steps whose events are not kept, and
    `active` ones whose events are. Source: `torch.profiler.schedule`.

    Args:
        repeat: the number of cycles; 0 for as many as there are.

    Raises:
        ArgumentError: for a negative number, or no active step.
        ArgumentTypeError: for what is no integer.
    """
    _require_integers("schedule", wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first)
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ArgumentError(
            f"schedule: got wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}; "
            "expected at least one active step, and no negative number"
        )

    def action(step: int) -> ProfilerAction:
        cycle, position = divmod(step - skip_first, wait + warmup + active)
        if step < skip_first or repeat and cycle >= repeat or position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        last = position == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


@dataclass(eq=False)
class Event:
    """One call of an operator, or one range.

    Attributes:
        name: as in `flow`, or of the range.
        is_operator: whether it is an operator.
        start, end: nanoseconds of `time.perf_counter_ns`.
        children: nanoseconds that the events directly within it took.
        input_shapes: of the operands that are arrays, if shapes are recorded.
        bytes: of the operands and results, each counted once: what memory has to move at least.
        cpu_memory_usage: bytes of the results that are no views.
        flops: floating-point operations; 0 where they are not counted.
        stack: `file:line` of the program, if stacks are recorded.
    """

    name: str
    is_operator: bool
    start: int
    end: int = 0
    children: int = 0
    input_shapes: tuple[tuple[int, ...], ...] = ()
    bytes: int = 0
    cpu_memory_usage: int = 0
    flops: int = 0
    stack: str = ""


@dataclass
class EventAverage:
    """The events of one name (and of equal shapes or lines, where these are told apart).

    Attributes:
        key: the name.
        count: how many events.
        cpu_time_total, self_cpu_time_total: microseconds, of all of them.
        input_shapes, stack, bytes, cpu_memory_usage, flops: as of `Event`; the numbers are sums.
    """

    key: str
    input_shapes: tuple[tuple[int, ...], ...] = ()
    stack: str = ""
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    bytes: int = 0
    cpu_memory_usage: int = 0
    flops: int = 0

    @property
    def cpu_time(self) -> float:
        """Microseconds of one event, on average."""
        return self.cpu_time_total / self.count

    def add(self, event: Event) -> None:
        """Count one event more."""
        duration = event.end - event.start
        self.count += 1
        self.cpu_time_total += duration / 1e3
        self.self_cpu_time_total += (duration - event.children) / 1e3
        self.bytes += event.bytes
        self.cpu_memory_usage += event.cpu_memory_usage
        self.flops += event.flops


class EventList(list):
    """What `profile.key_averages` returns: a list of `EventAverage`; printed, it is a table."""

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return sum(row.self_cpu_time_total for row in self)

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """The averages as text, one in a line.

        Args:
            sort_by: a number of `EventAverage`, such as "self_cpu_time_total" or "bytes", largest first; None for the
                order in which they came.
            row_limit: at most so many rows; -1 for all.

        Raises:
            ArgumentError: for another attribute.
            ArgumentTypeError: for a limit that is no integer.
        """
        _require_integers("table", row_limit=row_limit)
        if sort_by not in (None, *SORTABLE):
            raise ArgumentError(f"table: got sort_by={sort_by!r}; expected one of {', '.join(SORTABLE)}")
        rows = self if sort_by is None else sorted(self, key=lambda row: getattr(row, sort_by), reverse=True)
        whole = self.self_cpu_time_total or 1.0
        columns: dict[str, Callable[[EventAverage], str]] = {
            "Name": lambda row: row.key,
            "Self CPU %": lambda row: f"{row.self_cpu_time_total / whole:.2%}",
            "Self CPU": lambda row: _time_text(row.self_cpu_time_total),
            "CPU total %": lambda row: f"{row.cpu_time_total / whole:.2%}",
            "CPU total": lambda row: _time_text(row.cpu_time_total),
            "CPU time avg": lambda row: _time_text(row.cpu_time),
            "# of Calls": lambda row: str(row.count),
            "Bytes": lambda row: _bytes_text(row.bytes),
        }
        if any(row.cpu_memory_usage for row in self):
            columns["CPU Mem"] = lambda row: _bytes_text(row.cpu_memory_usage)
        if any(row.flops for row in self):
            columns["Total MFLOPs"] = lambda row: f"{row.flops / 1e6:.3f}" if row.flops else "--"
        if any(row.input_shapes for row in self):
            columns["Input Shapes"] = lambda row: str([list(shape) for shape in row.input_shapes])
        if any(row.stack for row in self):
            columns["Source Location"] = lambda row: row.stack
        lines = [
            list(columns),
            *([text(row) for text in columns.values()] for row in (rows if row_limit < 0 else rows[:row_limit])),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([rule, text[0], rule, *text[1:], rule, f"Self CPU time total: {_time_text(whole)}"])

    def __str__(self) -> str:
        return self.table()


def _time_text(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def _bytes_text(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


class profile:
    """Measure the operators and ranges of this thread in a `with` block, or between `start` and `stop`.

    Beside operators there are ranges: those of `record_function`, "backward", "Optimizer.step#Adam.step",
    "enumerate(DataLoader)", the calls of graphs, whose replay consists of no operators, and, with `step`,
    "ProfilerStep#0" and so on. On a GPU the device is waited for at the end of each operator.

    >>> import miniflow as flow
    >>> x = flow.ones(8, 8, requires_grad=True)
    >>> with flow.profiler.profile(with_flops=True) as prof:
    ...     with flow.profiler.record_function("forward"):
    ...         y = (x @ x).sum()
    ...     y.backward()
    >>> [(row.key, row.count, row.flops) for row in prof.key_averages() if row.flops]
    [('matmul', 3, 3072), ('add', 1, 64)]

    Args:
        activities: accepted as PyTorch has it; operators are measured wherever they run.
        schedule: step -> `ProfilerAction`, see `schedule`; None to keep all events.
        on_trace_ready: called with the profile at the end of each cycle of the schedule, or without one at the end.
        record_shapes: keep the shapes of operands.
        profile_memory: keep the bytes of results.
        with_stack: keep the line of the program.
        with_flops: count the operations of products, convolutions, add and mul.

    Raises:
        ArgumentError: if another profile is on.
        ArgumentTypeError: for activities of another type, or a schedule or `on_trace_ready` that cannot be called.

    Source: `torch.profiler.profile`.
    """

    lock = threading.Lock()  # held while a profile is on: it changes the tables of all operators

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
    ):
        fits = isinstance(activities, Iterable) and all(isinstance(one, ProfilerActivity) for one in activities)
        expected = "some of ProfilerActivity, as in [ProfilerActivity.CPU]"
        _require(fits or activities is None, "profile", expected, activities=activities)
        for name, value in {"schedule": schedule, "on_trace_ready": on_trace_ready}.items():
            _require(value is None or callable(value), "profile", "a function", **{name: value})
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops = with_stack, with_flops
        self.step_num = 0
        self.action = ProfilerAction.NONE
        self._events: list[Event] = []
        self._open: list[Event] = []
        self._step: Any = None

    # what is measured

    def start(self) -> None:
        """Begin to measure, as `with` does."""
        if not self.lock.acquire(blocking=False):
            raise ArgumentError("profile: another profile is on; stop it first")
        self._tables = {op: op.kernels for op in Op.by_name.values()}
        for op in self._tables:
            op.kernels = _TimedKernels(op)
        modes.profiler = self
        try:
            self._begin_step()
        except BaseException:
            self._restore()
            raise

    def step(self) -> None:
        """Say that a step of training ends and the next begins.

        Raises:
            ArgumentError: if it is not on in this thread.
        """
        self._require_on("step")
        self._end_step()
        self.step_num += 1
        self._begin_step()

    def stop(self) -> None:
        """Measure no more, as the end of `with` does.

        Raises:
            ArgumentError: if it is not on in this thread.
        """
        self._require_on("stop")
        try:
            self._end_step(last=True)
        finally:
            self._restore()

    def _require_on(self, method: str) -> None:
        if modes.profiler is not self:
            raise ArgumentError(f"profile.{method}: it is not on in this thread; call start() first")

    def _restore(self) -> None:
        modes.profiler = None
        for op, kernels in self._tables.items():
            op.kernels = kernels
        self.lock.release()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin_step(self) -> None:
        goes_on = self.action is ProfilerAction.RECORD
        self.action = ProfilerAction.RECORD if self.schedule is None else self.schedule(self.step_num)
        expected = f"a ProfilerAction for step {self.step_num}"
        _require(isinstance(self.action, ProfilerAction), "profile.schedule", expected, result=self.action)
        if self.action in RECORDING and not goes_on:  # until then the events of the last cycle can be looked at
            self._events.clear()
        if self.schedule is not None or self.step_num:
            self._step = self.range(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self, last: bool = False) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        complete = self.action is ProfilerAction.RECORD_AND_SAVE or (last and self.action is ProfilerAction.RECORD)
        if complete and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    @contextmanager
    def range(self, name: str, is_operator: bool = False) -> Iterator[Event]:
        """An event from the beginning of the block to its end."""
        event = Event(name, is_operator, time.perf_counter_ns())
        self._open.append(event)
        try:
            yield event
        finally:
            event.end = time.perf_counter_ns()
            position = self._open.index(event)  # not the last where a step ends within a range
            del self._open[position]
            if position:
                self._open[position - 1].children += event.end - event.start
            if self.action in RECORDING:
                self._events.append(event)

    def each(self, name: str, items: Iterable) -> Iterator:
        """The items, whose making is a range each."""
        items, end = iter(items), object()
        while True:
            with self.range(name):
                item = next(items, end)
            if item is end:
                return
            yield item

    def call(self, op: type[Op], kernel: Callable, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """What the kernel of an operator returns; the call is an event."""
        with self.range(op.function_name, is_operator=True) as event:
            results = kernel(*arrays, **attrs)
            if any(hasattr(x, "device_index") for x in _arrays_in(arrays)) and cuda.is_available():
                cuda.synchronize()
        self._describe(event, op, results, arrays, attrs)
        return results

    def _describe(self, event: Event, op: type[Op], results: Any, arrays: Any, attrs: dict[str, Any]) -> None:
        operands, outputs = list(_arrays_in(arrays)), list(_arrays_in(results))
        if not op.view:
            event.bytes = sum(map(_bytes_of, operands)) + sum(map(_bytes_of, outputs))
        if self.profile_memory and not op.view:
            event.cpu_memory_usage = sum(map(_bytes_of, outputs))
        if self.record_shapes:
            event.input_shapes = tuple(tuple(x.shape) for x in operands)
        if self.with_flops and op.__name__ in FLOPS:
            event.flops = FLOPS[op.__name__](results, *arrays, **attrs)
        if self.with_stack:
            frame = sys._getframe(user_level() - 1)
            event.stack = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"

    # what came out

    def events(self) -> list[Event]:
        """The events, in the order in which they began."""
        return sorted(self._events, key=lambda event: event.start)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """The events of one name together.

        Args:
            group_by_input_shape: those of other shapes apart; they have to be recorded.
            group_by_stack_n: those of other lines apart, if not 0.

        Raises:
            ArgumentTypeError: for a number that is no integer.
        """
        _require_integers("key_averages", group_by_stack_n=group_by_stack_n)
        rows: dict[tuple, EventAverage] = {}
        for event in self.events():
            key = (
                event.name,
                event.input_shapes if group_by_input_shape else (),
                event.stack if group_by_stack_n else "",
            )
            rows.setdefault(key, EventAverage(*key)).add(event)
        return EventList(rows.values())

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        """Write the events as JSON that chrome://tracing and ui.perfetto.dev draw.

        Raises:
            FileWriteError: if the file cannot be written.
            ArgumentTypeError: for what is no path.

        Source: Google, "Trace Event Format", complete events.
        """
        _require(isinstance(path, str | os.PathLike), "export_chrome_trace", "a path", path=path)
        events = [
            {
                "name": event.name,
                "cat": "cpu_op" if event.is_operator else "user_annotation",
                "ph": "X",
                "ts": event.start / 1e3,
                "dur": (event.end - event.start) / 1e3,
                "pid": os.getpid(),
                "tid": threading.get_ident(),
                "args": {
                    name: value
                    for name, value in (
                        ("Input Dims", event.input_shapes),
                        ("Bytes", event.bytes),
                        ("FLOPs", event.flops),
                        ("Call stack", event.stack),
                    )
                    if value
                },
            }
            for event in self.events()
        ]
        with writing("export_chrome_trace", path), replacing(path) as temporary:
            temporary.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")


class record_function(ContextDecorator):
    """A range of that name in the profile that is on, if one is; also decorates functions.

    Raises:
        ArgumentTypeError: for a name that is no text.

    Source: `torch.profiler.record_function`.
    """

    def __init__(self, name: str, args: str | None = None):
        _require(isinstance(name, str), "record_function", 'a text, as in record_function("forward")', name=name)
        self.name = name if args is None else f"{name}({args})"

    def clone(self) -> record_function:
        """Another range of that name."""
        return type(self)(self.name)

    def __enter__(self) -> record_function:
        self._range = nullcontext() if modes.profiler is None else modes.profiler.range(self.name)
        self._range.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._range.__exit__(*error)


class _TimedKernels(dict):
    """In place of an operator's table of kernels while a profile is on; dispatch fills it."""

    def __init__(self, op: type[Op]):
        super().__init__()
        self.op = op

    def __setitem__(self, kind: type, kernel: Callable) -> None:
        if isinstance(kernel, ufunc):
            kernel = partial(kernel, order="C")

        def run(*arrays: Any, **attrs: Any) -> Any:  # of other threads nothing is measured
            profiler = modes.profiler
            return kernel(*arrays, **attrs) if profiler is None else profiler.call(self.op, kernel, arrays, attrs)

        super().__setitem__(kind, run)


def _arrays_in(values: Any) -> Iterator[Any]:
    for value in values if isinstance(values, list | tuple) else (values,):
        if isinstance(value, list | tuple):
            yield from _arrays_in(value)
        elif is_array(value):
            yield value


def _bytes_of(array: Any) -> int:
    """Of an expanded array only the bytes that are there."""
    sizes = zip(array.shape, getattr(array, "strides", array.shape), strict=True)
    return prod(size for size, stride in sizes if stride) * array.dtype.itemsize
