"""What values the attributes of an instruction from a file may take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.registry import kernel_of, snake_case
from miniflow.device import device
from miniflow.dispatch.dispatcher import Op
from miniflow.dtype import BY_NUMPY
from miniflow.formulas.scalar import is_number
from miniflow.formulas.update_rules import RULES
from miniflow.graph.ir import Scalar
from miniflow.ops.pointwise import Pointwise
from miniflow.ops.pooling import AvgPool2d, AvgPool2dGrad
from miniflow.ops.recurrence import CELLS
from miniflow.parallel.placement import placement
from miniflow.parallel.tensors import Boxing
from miniflow.sbp import Sbp


def require(condition: Any, reason: str) -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError(reason)


# kinds of values


def number(value: Any) -> bool:
    """An int or a float, nan and infinities among them."""
    return isinstance(value, int | float | np.generic) and not isinstance(value, bool)


def integer(least: int | None = None, most: int = 2**62) -> Callable[[Any], bool]:
    """Integers within bounds."""
    low = -(2**62) if least is None else least
    return lambda value: type(value) is int and low <= value <= most


def several(of: Callable[[Any], bool], count: int | None = None) -> Callable[[Any], bool]:
    """Tuples, or lists, of `count` values."""
    return lambda value: isinstance(value, tuple | list) and count in (None, len(value)) and all(map(of, value))


def either(*kinds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Values of any of some kinds."""
    return lambda value: any(kind(value) for kind in kinds)


def among(*values: Any) -> Callable[[Any], bool]:
    """One of these values."""
    return lambda value: any(value is v or type(value) is type(v) and value == v for v in values)


def is_part_of_index(value: Any) -> bool:
    """An int, slice with a positive step, None or Ellipsis."""
    if isinstance(value, slice):
        return value.step is None or value.step > 0
    return value is None or value is ... or type(value) is int


def is_plain(value: Any) -> bool:
    """What updates take: numbers, bools, names, and lists of these."""
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | str | Scalar) or number(value)


def is_steps(value: Any) -> bool:
    """The views that `ViewScatter` takes: pairs of the name of an op that takes a view, and its attributes."""
    return isinstance(value, tuple) and all(
        isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], type) and step[0].view
        and isinstance(step[1], dict) for step in value
    )  # fmt: skip


def is_placement(value: Any) -> bool:
    """Where a global array lies."""
    return isinstance(value, placement)


def is_sbp(value: Any) -> bool:
    """How one dimension of a placement divides it."""
    return isinstance(value, Sbp)


def varying(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Such values, or a `Scalar` that stands for one."""
    return lambda value: isinstance(value, Scalar) or of(value)


DIM = integer(-64, 64)
SIZE, COUNT = integer(0, 2**48), integer(1, 2**48)
FLAG = among(True, False)
PAIR_OF_SIZES = several(SIZE, 2)
WINDOW = several(COUNT, 2)

OF_GLOBAL_TENSORS = "split"  # an attribute that adjoints may have: which dims of the result are split

# by their names, which mean the same in all ops
ATTRIBUTES: dict[str, Callable[[Any], bool]] = {
    "UPLO": among("L", "U"),
    "aligned": FLAG,
    "approximate": among("none", "tanh"),
    "basic": several(is_part_of_index),
    "beta": number,
    "ceil_mode": FLAG,
    "cell": among(*CELLS),
    "correction": number,
    "count": SIZE,
    "count_include_pad": FLAG,
    "descending": FLAG,
    "diagonal": integer(),
    "dilation": WINDOW,
    "dim": either(among(None), DIM, several(DIM)),
    "dim0": DIM,
    "dim1": DIM,
    "dim2": DIM,
    "dims": either(integer(0, 64), several(DIM)),
    **dict.fromkeys(("atol", "rtol"), either(among(None), lambda value: number(value) and value >= 0)),
    "divisor_override": either(among(None), COUNT),
    "dtype": lambda value: isinstance(value, np.dtype) and value in BY_NUMPY,
    "eps": lambda value: number(value) and value >= 0,
    "exponent": number,
    "groups": COUNT,
    "high": number,
    "ignore_index": integer(),
    "image": several(COUNT, 3),
    "index": several(is_part_of_index),
    "keepdim": FLAG,
    "kernel": WINDOW,
    "label_smoothing": lambda value: number(value) and 0 <= value <= 1,
    "low": number,
    "max": either(among(None), number),
    "mean": number,
    "min": either(among(None), number),
    "norm_type": lambda value: number(value) and value > 0,
    "num_classes": integer(-1, 2**48),
    "num_samples": COUNT,
    "offset": varying(integer()),
    "output_size": PAIR_OF_SIZES,
    "p": number,
    "padding": either(PAIR_OF_SIZES, several(PAIR_OF_SIZES, 2)),
    "padding_idx": integer(-1, 2**48),
    "reduction": among("none", "mean", "sum"),
    "replacement": FLAG,
    "full_matrices": FLAG,
    "mode": among("reduced", "complete"),
    "reverse": FLAG,
    "rows": SIZE,
    "sampling_ratio": integer(most=2**31),
    "scale": varying(number),
    "spatial_scale": number,
    "seed": varying(integer(0, 2**64)),
    "shape": several(integer(-1, 2**48)),
    "size": either(SIZE, several(SIZE)),
    "sizes": several(SIZE),
    "placement": is_placement,
    **dict.fromkeys(("sbp", "grad_sbp"), either(among(None), several(is_sbp))),
    "source": lambda value: isinstance(value, device) or isinstance(value, tuple) and len(value) == 2,
    "stable": FLAG,
    "std": lambda value: number(value) and value >= 0,
    "step": COUNT,
    "split": several(integer(0, 64)),
    "steps": is_steps,
    "stride": WINDOW,
    "target": lambda value: isinstance(value, device),
    "threshold": number,
    "training": FLAG,
    "transpose_x": FLAG,
    "transpose_y": FLAG,
    "upper": FLAG,
    "value": either(FLAG, number),
    "widths": several(several(integer(-(2**48), 2**48), 2)),
}

UPDATES: dict[str, Callable[[Any], bool]] = {  # of optimizers
    **dict.fromkeys(
        ("amsgrad", "centered", "decoupled_weight_decay", "do_bias_correction", "maximize", "nesterov"),
        FLAG,
    ),
    **dict.fromkeys(
        (
            "alpha", "beta", "clip_value", "dampening", "initial_accumulator_value", "lambd", "lambda1", "lambda2",
            "lr_decay", "lr_power", "max_norm", "momentum", "momentum_decay", "rho", "t0", "weight_decay",
        ),
        varying(number),
    ),
    **dict.fromkeys(("etas", "step_sizes"), several(varying(number), 2)),
    "eps": varying(lambda value: number(value) and value >= 0),
    "lr": varying(number),
    "betas": several(varying(lambda value: number(value) and 0 <= value < 1), 2),
    "fresh": several(varying(FLAG)),
    "steps": several(varying(integer(1))),
}  # fmt: skip


def check_attributes(op: type[Op], attrs: dict[str, Any]) -> None:
    """Refuse attributes that the op does not have, and values that they cannot take."""
    names = attribute_names(op)
    if OF_GLOBAL_TENSORS in attrs and OF_GLOBAL_TENSORS in inspect.signature(op.sbp).parameters:
        names = names | {OF_GLOBAL_TENSORS}
    require(set(attrs) == names, f"the attributes {sorted(attrs)}; expected {sorted(names)}")
    for name, value in attrs.items():
        require(rule_of(op, name)(value), f"{name}={value!r:.60}")


def rule_of(op: type[Op], name: str) -> Callable[[Any], bool]:
    """Whether a value will do for an attribute."""
    if issubclass(op, Pointwise) and name not in ATTRIBUTES:
        return number if is_number(op.formula.attributes[name]) else is_plain
    return (UPDATES if op.groups else ATTRIBUTES).get(name, is_plain)


def normalised(op: type[Op], name: str, value: Any) -> Any:
    """An attribute as its rule wants it: ops also take integers of NumPy, and 0 and 1 for bools and the reverse."""
    rule, plain = rule_of(op, name), with_leaves(value, as_plain)
    found = [value, plain, with_leaves(plain, as_flag), with_leaves(plain, as_int)]
    return next(filter(rule, found), value)


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value, or the values in nested lists and tuples, changed."""
    if type(value) in (list, tuple):
        return type(value)([with_leaves(part, change) for part in value])
    return change(value)


def as_plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def as_flag(value: Any) -> Any:
    """A bool for 0 and 1."""
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def as_int(value: Any) -> Any:
    """0 or 1 for a bool."""
    return int(value) if isinstance(value, bool) else value


@functools.cache
def attribute_names(op: type[Op]) -> set[str]:
    """The attributes of an op: the keyword arguments of its shape rule and of its kernel."""
    if issubclass(op, Pointwise):
        return set(op.formula.attributes)
    if op is Boxing:
        return {p.name for p in inspect.signature(op.infer).parameters.values() if p.kind is p.KEYWORD_ONLY}
    kernel = kernel_of("cpu", op.__name__)
    parameters = list(inspect.signature(kernel.run).parameters.values())[0 if kernel.returns else 1 :]
    if snake_case(op.__name__) in RULES:
        numbers = inspect.signature(RULES[snake_case(op.__name__)].numbers).parameters
        return {*numbers, "maximize"}
    if op.groups:
        return {p.name for p in parameters[op.groups :] if p.default is p.empty}  # others are for passes
    rule = inspect.signature(op.infer).parameters.values()
    named = {p.name for p in rule if p.kind is p.KEYWORD_ONLY and p.default is p.empty}  # others: of global tensors
    if op is AvgPool2dGrad:
        return named | attribute_names(AvgPool2d)
    if any(p.kind is p.VAR_KEYWORD for p in rule):
        named |= {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    return named
