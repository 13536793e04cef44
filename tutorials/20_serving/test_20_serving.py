"""The checks of lesson 20. Requests are written by the checks themselves; a server's time is made up."""

import json
import math
from functools import partial

import numpy as np
import pytest

from tutorials import drawn, refused, same, same_all

DTYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "UINT8": np.uint8}
SHAPES = [(3,), (1, 2, 2), (2, 0), ()]
MAY_NOT_CALL = {"20.5": ["percentile", "quantile", "nanpercentile", "nanquantile", "quantiles"]}


def numbers(rng, datatype, shape):
    """Random numbers of a datatype, also large ones."""
    if datatype[0] == "F":
        return drawn(rng, *shape, dtype=DTYPES[datatype])
    return rng.integers(0, 256 if datatype == "UINT8" else 2**62, shape).astype(DTYPES[datatype])


def entry_of(array, datatype, name="x"):
    return {"name": name, "datatype": datatype, "shape": list(array.shape)}


@pytest.mark.task("20.1")
@pytest.mark.parametrize("datatype", DTYPES)
def test_values(impl, rng, datatype):
    for shape in SHAPES:
        array = numbers(rng, datatype, shape)
        entry = entry_of(array, datatype)
        data = {"data": array.reshape(-1).tolist()}
        hint = "the datatype of the request, and its shape, of no dims too"
        same(impl.values(entry | data), array, f"values({entry | data})", hint)
        what = f"values({entry}, raw={array.tobytes()})"
        same(impl.values(entry, array.tobytes()), array, what, "bytes are numbers already")


@pytest.mark.task("20.1")
def test_values_are_counted(impl, rng):
    n = int(rng.integers(2, 6))
    for shape, count in [([n], n + 1), ([n], n - 1), ([2, n], n), ([-1, n], n), ([-n], n), ([-2, -n], 2 * n), ([], 2)]:
        for raw in (None, np.zeros(count, np.float32).tobytes()):
            entry = {"name": "x", "datatype": "FP32", "shape": shape, "data": [0.5] * count}
            what = f"values of {count} {'numbers' if raw is None else 'numbers in bytes'} for the shape {shape}"
            refused(partial(impl.values, entry, raw), ValueError, what)
    cut = {"name": "x", "datatype": "FP32", "shape": [n]}
    refused(lambda: impl.values(cut, b"\0" * (4 * n - 1)), ValueError, f"values of {4 * n - 1} bytes for {n} numbers")
    other = {"name": "x", "datatype": "FP8", "shape": [1], "data": [1]}
    refused(lambda: impl.values(other), ValueError, f"values({other})")


def request_of(rng, kinds):
    """A body of inputs, the length of its JSON, and their arrays."""
    arrays, entries, raw = {}, [], b""
    for k, (datatype, binary) in enumerate(kinds):
        array = numbers(rng, datatype, tuple(rng.integers(1, 4, 2)))
        arrays[f"INPUT_{k}"] = array
        entry = entry_of(array, datatype, f"INPUT_{k}")
        if binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            raw += array.tobytes()
        else:
            entry["data"] = array.reshape(-1).tolist()
        entries.append(entry)
    head = json.dumps({"inputs": entries}).encode()
    return head + raw, len(head), arrays


@pytest.mark.task("20.2")
@pytest.mark.parametrize("binary", [(False,), (True,), (True, True), (True, False, True), (False, True, False)])
def test_read(impl, monkeypatch, rng, binary):
    monkeypatch.setattr(impl, "values", right_values)  # so that this task does not need the one before
    names = list(DTYPES)
    body, length, arrays = request_of(rng, [(names[int(rng.integers(4))], one) for one in binary])
    what = f"read({body!r:.300}, {length})"
    got = impl.read(body, length)
    same(sorted(got), sorted(arrays), f"the names of {what}")
    for name, array in arrays.items():
        same(got[name], array, f"{name} of {what}", "each input begins where the one before has ended")


def right_values(entry, raw=None):
    """Task 20.1, for valid shapes."""
    kind, shape = DTYPES[entry["datatype"]], tuple(entry["shape"])
    found = np.frombuffer(entry.get("data") and np.array(entry["data"], kind).tobytes() if raw is None else raw, kind)
    if found.size != math.prod(shape):
        raise ValueError("another count")
    return found.reshape(shape)


@pytest.mark.task("20.2")
def test_bodies_are_whole(impl, monkeypatch, rng):
    monkeypatch.setattr(impl, "values", right_values)
    for binary in [(True,), (False, True), (True, True)]:
        body, length, _ = request_of(rng, [("FP32", one) for one in binary])
        for wrong, why in [(body + b"1234", "4 bytes too many"), (body[:-4], "4 bytes too few")]:
            refused(partial(impl.read, wrong, length), ValueError, f"read of a body with {why}")
        refused(partial(impl.read, body, length - 1), ValueError, "read of JSON that is cut off")


@pytest.mark.task("20.3")
def test_answers(impl, rng):
    for rows in [[1], [1, 1], [2, 1, 4], [3, 3], [1, 5]]:
        requests, calls = [drawn(rng, n, 2, 3) for n in rows], []

        def function(batch, calls=calls):
            calls.append(len(batch))
            return batch.sum(axis=2) - 1

        what = f"answers to requests of {rows} rows"
        hint = "each request gets the rows that it sent"
        same_all(impl.answers(function, requests), [x.sum(axis=2) - 1 for x in requests], what, hint)
        same(calls, [sum(rows)], f"the rows of each call of the function for {what}", "one call for all of them")


def limited(seconds, most, what):
    """The same function, which may be called only so often: a schedule without end calls it again and again."""
    calls = []

    def counted(rows):
        calls.append(rows)
        if len(calls) > most:
            raise AssertionError(f"{what}: expected at most {most} batches, each of one request or more")
        return seconds(rows)

    return counted


def simulated(arrivals, seconds, most, delay):
    """The same in small steps of time: all times are multiples of 1."""
    waiting, coming, found, now, free = [], list(arrivals), [], 0, 0
    while waiting or coming:
        while coming and coming[0] == now:
            waiting.append(coming.pop(0))
        if waiting and now >= free and (len(waiting) >= most or now - waiting[0] >= delay):
            rows = min(most, len(waiting))
            free = now + seconds(rows)
            found.append((now, free, rows))
            waiting = waiting[rows:]
        now += 1
    return found


@pytest.mark.task("20.4")
@pytest.mark.parametrize("most", [1, 2, 4])
def test_schedule(impl, rng, most):
    for delay in (0, 1, 5, 20):
        for count, span in [(1, 1), (2, 3), (8, 4), (12, 40), (12, 120)]:
            arrivals = np.sort(rng.integers(0, span, count)).tolist()
            step = int(rng.integers(1, 4))
            seconds = lambda rows, step=step: step + 2 * rows  # noqa: E731
            what = f"schedule({arrivals}, rows -> {step} + 2 rows, {most}, {delay})"
            expected = simulated(arrivals, seconds, most, delay)
            hint = "a batch begins as soon as the server is free and the batch is full, or its first request has waited"
            same_all(impl.schedule(arrivals, limited(seconds, count, what), most, delay), expected, what, hint)


@pytest.mark.task("20.4")
def test_full_batches_do_not_wait(impl, rng):
    start = int(rng.integers(0, 9))
    what = f"schedule of 4 requests at {start}, of which 4 are a batch"
    got = impl.schedule([start] * 4, limited(lambda rows: 7, 4, what), 4, 100)
    same_all(got, [(start, start + 7, 4)], what, "it is full")


@pytest.mark.task("20.5")
def test_percentile(impl, rng):
    for count in (1, 2, 5, 99, 100, 101, 1000):
        latencies = rng.permutation(np.arange(float(count))).tolist()
        for share in (0.01, 0.25, 0.5, 0.75, 1.0):
            at_least = lambda x, n=count, s=share: (x + 1) / n >= s  # noqa: E731
            expected = float(next(x for x in range(count) if at_least(x)))
            what = f"percentile of 0 to {count - 1} in a random order, share {share}"
            same(impl.percentile(latencies, share), expected, what, "how many latencies are not above it?")
