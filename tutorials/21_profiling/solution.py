"""Profiling and rooflines. Fill in what raises Todo, then run: python -m tutorials check 21"""

import json
import math

import numpy as np

import miniflow as flow
from tutorials import Todo  # noqa: F401


def median_time(function, clock, warm_up, repeats):
    """The time of one call: the median of `repeats` calls, after `warm_up` calls that are not timed.

    Args:
        function: what is timed; it is called without arguments.
        clock: a function without arguments that returns the time, such as time.perf_counter.
        warm_up, repeats: how many calls, integers; repeats is at least 1.

    Returns:
        a float, in the unit of the clock. For an even number of repeats, the mean of the two in the middle.
    """
    # task 21.1: time one call
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(repeats):
        begin = clock()
        function()
        times.append(clock() - begin)
    return float(np.median(times))
    # end


def self_times(events):
    """The time of each name without the events within its own.

    Args:
        events: tuples (name, start, end) of integers, in the order in which they began; of two events, one lies within
            the other, or one begins when the other has ended, or later.

    Returns:
        a dict from the name to the sum of the self times of its events.
    """
    # task 21.2: what an event does itself
    totals, running = {}, []
    for name, start, end in events:
        while running and running[-1][1] <= start:
            running.pop()
        totals[name] = totals.get(name, 0) + end - start
        if running:
            totals[running[-1][0]] -= end - start
        running.append((name, end))
    return totals
    # end


def cost(name, *shapes):
    """The operations of an operator on float32, and the bytes that it has to move.

    Args:
        name: "matmul", "linear", "add", "relu" or "sum" (of all elements).
        shapes: those of its operands, tuples: (m, k) and (k, n) for matmul; (m, k), (n, k) and (n,) for linear; two
            shapes that broadcast for add; one for relu and sum.

    Returns:
        two integers. A multiplication or an addition is an operation, and so is a comparison.
    """
    # task 21.3: operations and bytes
    if name == "matmul":
        (m, k), (_, n) = shapes
        result, operations = (m, n), 2 * m * n * k
    elif name == "linear":
        (m, k), (n, _), _ = shapes
        result, operations = (m, n), 2 * m * n * k
    elif name == "sum":
        result, operations = (), math.prod(shapes[0])
    else:
        result = np.broadcast_shapes(*shapes)
        operations = math.prod(result)
    return operations, 4 * sum(map(math.prod, (*shapes, result)))
    # end


def roofline(operations, moved, peak, bandwidth):
    """The least time of a computation under the roofline model, and what it waits for.

    Args:
        operations: how many.
        moved: bytes.
        peak: operations in a second, at most.
        bandwidth: bytes in a second, at most.

    Returns:
        seconds, a float, and "compute" or "memory"; "compute" if both take the same time.
    """
    # task 21.4: the least time
    computing, moving = operations / peak, moved / bandwidth
    return max(computing, moving), "compute" if computing >= moving else "memory"
    # end


def chrome_trace(events):
    """The text of a file that chrome://tracing and ui.perfetto.dev draw.

    Args:
        events: tuples (name, start, end), in nanoseconds.

    Returns:
        JSON: an object whose "traceEvents" is a list with an object for each event. It has the name, "ph": "X" for a
        complete event, the start "ts" and the duration "dur", both in microseconds, "pid": 0 and "tid": 0.
    """
    # task 21.5: a file to look at
    boxes = [
        {"name": name, "ph": "X", "ts": start / 1000, "dur": (end - start) / 1000, "pid": 0, "tid": 0}
        for name, start, end in events
    ]
    return json.dumps({"traceEvents": boxes})
    # end


def slow_distances(x, centers):
    """The squared distance of each row of x to each of the centers; `distances` computes the same.

    Args:
        x: a tensor (n, d).
        centers: a tensor (k, d).

    Returns:
        a tensor (n, k).
    """
    columns = []
    for center in centers:
        difference = x - center
        columns.append((difference * difference).sum(1))
    return flow.stack(columns, 1)


def distances(x, centers):
    """As `slow_distances`, with one product of matrices, and never negative."""
    # task 21.6: the same with less memory moved
    squares = (x * x).sum(1, keepdim=True) + (centers * centers).sum(1)
    return (squares - 2 * (x @ centers.t())).clamp(min=0)
    # end
