"""The checks of lesson 21. Clocks are made up and events are drawn, so nothing depends on how fast the machine is."""

import json
import math

import numpy as np
import pytest

import miniflow as flow
from tutorials import at_most, drawn, same


class Clock:
    """A clock that a function moves on: the durations of its calls, in turn."""

    def __init__(self, durations):
        self.now, self.looks, self.calls, self.durations = 100.0, 0, 0, list(durations)

    def __call__(self):
        self.looks += 1
        return self.now

    def work(self):
        """Take as long as the next duration says."""
        self.now += self.durations[self.calls]
        self.calls += 1


@pytest.mark.task("21.1")
@pytest.mark.parametrize("warm_up, repeats", [(0, 1), (3, 5), (2, 6), (1, 2)])
def test_median_time(impl, rng, warm_up, repeats):
    durations = [*(50.0 + rng.random(warm_up)), *rng.permutation([*rng.random(repeats - 1), 9.0])]
    clock = Clock(durations)
    what = f"median_time(function, clock, {warm_up}, {repeats}) of calls that take {np.round(durations, 3).tolist()}"
    expected = float(np.median(durations[warm_up:]))
    same(impl.median_time(clock.work, clock, warm_up, repeats), expected, what, "the first calls do not count")
    same(clock.calls, warm_up + repeats, f"the number of calls of {what}")
    at_most(clock.looks, 2 * repeats, f"looks at the clock of {what}", "one before each timed call, one after it")


def nested(rng, start, end, depth):
    """Random events between two times: (name, start, end), in the order of their beginning."""
    found, cuts = [], np.sort(rng.choice(np.arange(start, end), 2 * rng.integers(1, 4), replace=False))
    for begin, stop in cuts.reshape(-1, 2).tolist():
        found.append((str(rng.choice(["add", "matmul", "relu", "step"])), begin, stop))
        if depth and stop - begin > 20:
            found += nested(rng, begin, stop, depth - 1)
    return found


def self_times_of(events):
    """Each moment belongs to the event that began last of those that are running."""
    totals = {name: 0 for name, _, _ in events}
    edges = sorted({edge for _, *both in events for edge in both})
    for low, high in zip(edges, edges[1:]):
        running = [name for name, start, end in events if start <= low and high <= end]
        if running:
            totals[running[-1]] += high - low
    return totals


@pytest.mark.task("21.2")
@pytest.mark.parametrize(
    "events",
    [
        [("add", 2, 5)],
        [("step", 0, 10), ("add", 2, 5), ("add", 5, 9)],
        [("step", 0, 10), ("add", 0, 10)],
        [("step", 0, 90), ("loss", 10, 80), ("add", 20, 30), ("add", 40, 70), ("add", 81, 85), ("step", 90, 95)],
    ],
    ids=["one", "two within one", "as long as what it is in", "within each other"],
)
def test_self_times(impl, events):
    hint = "of an event, the time of those directly within it does not count"
    same(impl.self_times(events), self_times_of(events), f"self_times({events})", hint)


@pytest.mark.task("21.2")
def test_self_times_of_random_events(impl, rng):
    for _ in range(20):
        events = nested(rng, 0, 1000, 3)
        hint = "an event that has ended holds no others"
        same(impl.self_times(events), self_times_of(events), f"self_times({events})", hint)


@pytest.mark.task("21.2")
def test_self_times_of_a_real_profile(impl):
    x = flow.ones(4, 4, requires_grad=True)
    with flow.profiler.profile() as prof, flow.profiler.record_function("all"):
        (x @ x).relu().sum().backward()
    events = [(e.name, e.start, e.end) for e in prof.events()]
    expected = {row.key: round(1000 * row.self_cpu_time_total) for row in prof.key_averages()}
    same(impl.self_times(events), expected, "self_times of a profile of miniflow")


@pytest.mark.task("21.3")
def test_cost_of_products(impl, rng):
    for m, k, n in [(2, 3, 4), (64, 784, 256), tuple(int(size) for size in rng.integers(1, 50, 3))]:
        moved = 4 * (m * k + k * n + m * n)
        hint = f"{m * n} results, each of {k} products; each operand is read once, each result written once"
        same(impl.cost("matmul", (m, k), (k, n)), (2 * m * n * k, moved), f"cost('matmul', {(m, k)}, {(k, n)})", hint)
        what = f"cost('linear', {(m, k)}, {(n, k)}, {(n,)})"
        hint += "; the bias is the number that a sum begins with"
        same(impl.cost("linear", (m, k), (n, k), (n,)), (2 * m * n * k, moved + 4 * n), what, hint)


@pytest.mark.task("21.3")
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), ()])
def test_cost_of_pointwise_operators_and_sums(impl, shape):
    n = math.prod(shape)
    same(impl.cost("relu", shape), (n, 8 * n), f"cost('relu', {shape})", "each element is read, and one is written")
    same(impl.cost("sum", shape), (n, 4 * n + 4), f"cost('sum', {shape})", "the result is one number")
    same(impl.cost("add", shape, shape), (n, 12 * n), f"cost('add', {shape}, {shape})", "two are read, one is written")


@pytest.mark.task("21.3")
def test_cost_of_a_broadcast(impl):
    hint = "the result has the shape that the operands broadcast to; a small operand is read once"
    same(impl.cost("add", (6, 1), (1, 5)), (30, 4 * (6 + 5 + 30)), "cost('add', (6, 1), (1, 5))", hint)
    same(impl.cost("add", (3, 4), (4,)), (12, 4 * (12 + 4 + 12)), "cost('add', (3, 4), (4,))", hint)


@pytest.mark.task("21.4")
@pytest.mark.parametrize("limit", ["compute", "memory"])
def test_roofline(impl, rng, limit):
    peak, bandwidth = (float(rate) for rate in rng.uniform(10, 100, 2))
    seconds = float(rng.uniform(1, 5))
    other = seconds * float(rng.uniform(0.1, 0.9))
    operations, moved = (seconds, other) if limit == "compute" else (other, seconds)
    operations, moved = operations * peak, moved * bandwidth
    what = f"roofline({operations:.4g}, {moved:.4g}, peak={peak:.4g}, bandwidth={bandwidth:.4g})"
    time, name = impl.roofline(operations, moved, peak, bandwidth)
    same(time, seconds, f"the time of {what}", "computing and moving happen at the same time: which takes longer?")
    same(name, limit, f"the limit of {what}")


@pytest.mark.task("21.4")
def test_roofline_at_the_ridge(impl):
    what = "roofline(64, 32, peak=8, bandwidth=4)"
    same(tuple(impl.roofline(64, 32, 8, 4)), (8.0, "compute"), what, "both take 8 seconds")


@pytest.mark.task("21.5")
def test_chrome_trace(impl):
    events = [("step", 1000, 10000), ('a "name"', 2500, 4000), ("add", 4000, 4001)]
    text = impl.chrome_trace(events)
    same(type(text).__name__, "str", "the type of chrome_trace(...)", "json.dumps makes text of it")
    boxes = json.loads(text)["traceEvents"]
    expected = [{"name": "step", "ph": "X", "ts": 1.0, "dur": 9.0, "pid": 0, "tid": 0},
                {"name": 'a "name"', "ph": "X", "ts": 2.5, "dur": 1.5, "pid": 0, "tid": 0},
                {"name": "add", "ph": "X", "ts": 4.0, "dur": 0.001, "pid": 0, "tid": 0}]  # fmt: skip
    for box, wanted in zip(boxes, expected):
        hint = "microseconds are thousands of nanoseconds"
        same(box, wanted, f"an event of chrome_trace({events})", hint)
    same(len(boxes), 3, f"the number of events of chrome_trace({events})")


@pytest.mark.task("21.6")
@pytest.mark.parametrize("n, k, d", [(7, 3, 5), (1, 1, 1), (20, 30, 2)])
def test_distances(impl, rng, n, k, d):
    x, centers = drawn(rng, n, d), drawn(rng, k, d)
    expected = ((x[:, None, :].astype(np.float64) - centers) ** 2).sum(2).astype(np.float32)
    what = f"distances(x of shape {(n, d)}, centers of shape {(k, d)})"
    hint = "the square of a - b is that of a, plus that of b, minus twice the product"
    same(impl.distances(flow.tensor(x), flow.tensor(centers)), expected, what, hint, rtol=1e-4, atol=1e-5)


@pytest.mark.task("21.6")
def test_distances_are_not_negative(impl, rng):
    x = drawn(rng, 300, 40) * 30
    least = float(impl.distances(flow.tensor(x), flow.tensor(x)).min().item())
    hint = "rounding can leave a small negative number where the distance is zero"
    same(least >= 0, True, f"whether all distances are at least 0; the least is {least:g}", hint)


@pytest.mark.task("21.6")
@pytest.mark.parametrize("k", [5, 50])
def test_distances_move_little_memory(impl, k):
    n, d = 200, 60
    x, centers = flow.ones(n, d), flow.zeros(k, d)
    with flow.profiler.profile(record_shapes=True) as prof:
        impl.distances(x, centers)
    moved = sum(event.bytes for event in prof.events())
    hint = f"with one product of matrices, the size of x counts a few times, and not {k} times"
    at_most(len(prof.events()), 12, f"the operators of distances with {k} centers", "no loop over the centers")
    at_most(moved, 4 * (5 * n * d + 5 * k * d + 12 * n * k), f"bytes that distances moves with {k} centers", hint)
