"""From graph to server. Fill in what raises Todo, then run: python -m tutorials check 20"""

import json
import math

import numpy as np

from tutorials import Todo  # noqa: F401

DTYPES = {"FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"), "INT64": np.dtype("<i8"), "UINT8": np.dtype("u1")}


def values(entry, raw=None):
    """The array of one input of a request.

    Args:
        entry: a dict with the `datatype`, one of `DTYPES`, the `shape`, a list of sizes, and, if there are no `raw`
            bytes, the `data`: a list of numbers in row-major order.
        raw: the numbers as bytes in that order, or None.

    Raises:
        ValueError: for an unknown datatype, a negative size, or another count of numbers than the shape has.
    """
    # task 20.1: an array of a request
    if entry["datatype"] not in DTYPES:
        raise ValueError(f"unknown datatype {entry['datatype']}")
    dtype, shape = DTYPES[entry["datatype"]], entry["shape"]
    array = np.array(entry["data"], dtype) if raw is None else np.frombuffer(raw, dtype)
    if any(n < 0 for n in shape) or array.size != math.prod(shape):
        raise ValueError(f"{array.size} numbers for the shape {shape}")
    return array.reshape(shape)
    # end


def read(body, length):
    """The inputs of a request: name -> array.

    Args:
        body: JSON, and behind it the bytes of all inputs with `binary_data_size`, in the order of the inputs.
        length: how many bytes of the body are JSON.

    Raises:
        ValueError: for JSON that is cut off, and for bytes that are missing, or that belong to no input.
    """
    # task 20.2: the body of a request
    document, raw, found = json.loads(body[:length]), body[length:], {}
    for entry in document["inputs"]:
        size = entry.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[entry["name"]] = values(entry)
        else:
            found[entry["name"]] = values(entry, raw[:size])
            raw = raw[size:]
    if raw:
        raise ValueError(f"{len(raw)} bytes belong to no input")
    return found
    # end


def answers(function, requests):
    """The answers to several requests, by one call.

    Args:
        function: takes a batch, and returns an array with a row for each row of it.
        requests: arrays of one row or more, equal in all other dims; at least one.

    Returns:
        a list of arrays, each with as many rows as the request.
    """
    # task 20.3: one call for several requests
    rows = [len(request) for request in requests]
    return np.split(function(np.concatenate(requests)), np.cumsum(rows)[:-1])
    # end


def schedule(arrivals, seconds, most, delay):
    """The batches that a server computes, one after the other, of requests with one row each.

    A batch begins when the one before has ended and `most` requests wait, or the first of them has waited for `delay`.
    It takes all that wait, at most `most`; also those that come at the very moment.

    Args:
        arrivals: the times at which requests come, in order.
        seconds: a function of the rows of a batch: how long it takes.
        most: rows of a batch.
        delay: how long a request waits for others; 0 if it does not.

    Returns:
        a list of tuples (begin, end, rows).
    """
    # task 20.4: batches of requests that wait
    found, free, first = [], -math.inf, 0
    while first < len(arrivals):
        ready = arrivals[first] + delay
        if first + most <= len(arrivals):
            ready = min(ready, arrivals[first + most - 1])
        begin = max(free, ready)
        rows = sum(time <= begin for time in arrivals[first : first + most])
        free = begin + seconds(rows)
        found.append((begin, free, rows))
        first += rows
    return found
    # end


def percentile(latencies, share):
    """The smallest of some latencies that at least this share of them does not exceed.

    Args:
        latencies: at least one, in any order.
        share: above 0 and at most 1; 0.5 for the median of an odd number.
    """
    # task 20.5: latencies of nearly all
    return sorted(latencies)[math.ceil(share * len(latencies)) - 1]
    # end
