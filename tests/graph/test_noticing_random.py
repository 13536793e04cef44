"""Random attributes and random changes of them: a graph computes what eager code does.

Attributes are numbers, strings, tensors, tuples, lists, dicts, sets, deques, arrays and objects in each other. Changes
replace, add, remove and reorder entries of any of them, fields of objects, attributes and modes; some put equal values.
"""

import collections
import copy
import random
import secrets

import numpy as np
import pytest
from networks import Predict

import miniflow as flow
from miniflow import nn

NAMES, FIELDS = "pqr", "abcdef"


class Fields:
    """An object of a user's class."""


def number(draw):
    size = draw.randint(0, 3)
    kinds = [size, float(size), size > 1, FIELDS[size], None, np.float32(size), (size, 1.0), flow.tensor(float(size))]
    return draw.choice(kinds)


def value(draw, depth=3):
    """What an attribute may hold."""
    if not depth or draw.random() < 0.3:
        return number(draw)
    inner = [value(draw, depth - 1) for _ in range(draw.randint(0, 4))]
    sizes = [draw.randint(0, 9) for _ in inner]
    kind = draw.choice(["list", "tuple", "deque", "dict", "set", "array", "object"])
    if kind == "object":
        held = Fields()
        vars(held).update(zip(FIELDS, inner, strict=False))
        return held
    if kind == "dict":
        return dict(zip(draw.sample(FIELDS, len(inner)), inner, strict=True))
    if kind in ("set", "array"):
        return set(sizes) if kind == "set" else np.array([1, *sizes], draw.choice(["f4", "i8"]))
    return {"list": list, "tuple": tuple, "deque": collections.deque}[kind](inner)


def total(held, within=False):
    """A sum that depends on every kind, order and number in a value; of objects in objects on their presence alone."""
    if isinstance(held, dict | Fields):
        if isinstance(held, Fields) and within:
            return 5.0
        entries = held if isinstance(held, dict) else vars(held)
        parts = [ord(key) + 1.3 * total(each, within or entries is not held) for key, each in entries.items()]
    elif isinstance(held, list | tuple | set | collections.deque | np.ndarray):
        parts = [1.3 * total(each, within) for each in held]
    elif isinstance(held, str):
        return float(ord(held))
    else:
        scale = {int: 3.0, float: 5.0, bool: 7.0, np.float32: 11.0}.get(type(held), 13.0)
        return 17.0 if held is None else held * scale
    return 19.0 + sum((0.7 * i + 1) * part for i, part in enumerate(parts))


class Sums(nn.Module):
    def forward(self, x):
        found = sum((i + 1) * total(getattr(self, name, None)) for i, name in enumerate(NAMES))
        return x * found * (1 if self.training else 2)


def mutable(held, within=False):
    """All that can be changed in a value; an object in another one is compared by identity."""
    if isinstance(held, Fields):
        inner = [] if within else vars(held).values()
        return [each for x in inner for each in mutable(x, True)] + [held] * (not within)
    if isinstance(held, set | np.ndarray):
        return [held]
    if not isinstance(held, list | tuple | dict | collections.deque):
        return []
    inner = [each for x in (held.values() if isinstance(held, dict) else held) for each in mutable(x, within)]
    return inner if isinstance(held, tuple) else [held, *inner]


def change(draw, model):
    """Change something, or put an equal value in its place."""
    name, how = draw.choice(NAMES), draw.randint(0, 7)
    parts = [part for each in NAMES for part in mutable(getattr(model, each, None))]
    if how == 0:
        setattr(model, name, value(draw))
    elif how == 1:
        setattr(model, name, copy.deepcopy(getattr(model, name, None)))
    elif how == 2:
        model.train(draw.random() < 0.5)
    elif how == 3 and hasattr(model, name):
        delattr(model, name)
    elif parts:
        change_part(draw, draw.choice(parts))


def change_part(draw, held):
    if isinstance(held, np.ndarray):
        held[draw.randrange(len(held))] = draw.randint(0, 9)
    elif isinstance(held, set):
        count = len(held)
        held.clear()
        held.update(draw.sample(range(10), count))
    elif isinstance(held, dict | Fields):
        entries, key = held if isinstance(held, dict) else vars(held), draw.choice(FIELDS)
        before = entries.pop(key, None) if draw.random() < 0.5 else None
        entries[key] = number(draw) if before is None else before  # the same one at the end, or another one
    elif draw.random() < 0.3 or not held:
        held.append(number(draw))
    elif draw.random() < 0.5:
        held[draw.randrange(len(held))] = number(draw)
    else:
        draw.choice([held.pop, held.reverse])()


@pytest.mark.filterwarnings("ignore:.*compiled for the 4th", "ignore:.*have been dropped")
@pytest.mark.parametrize("seed", [*range(8), pytest.param(None, id="fresh")])
def test_random_changes_of_attributes(seed):
    seed = secrets.randbits(32) if seed is None else seed
    draw, model, x = random.Random(seed), Sums(), flow.ones(2)
    for name in NAMES:
        setattr(model, name, value(draw))
    graph = Predict(model)
    for _ in range(20):
        for _ in range(draw.randint(0, 2)):
            change(draw, model)
        np.testing.assert_allclose(graph(x).numpy(), model(x).numpy(), rtol=1e-5, err_msg=f"seed {seed}")
