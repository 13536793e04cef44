"""What values the attributes of an instruction from a file may take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import NoneType
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


@functools.cache
def known_ops() -> dict[str, type[Op]]:
    """The ops that may stand in a file, by name: those with a kernel that recordings consist of.

    Left out are those that only passes make, and those whose shape depends on values.
    """
    return {
        name: op
        for name, op in Op.by_name.items()
        if (kernel_of("cpu", name) is not None or op is Boxing)
        and not op.made_by_passes
        and not op.shape_depends_on_values
    }


# kinds of values

Kind = Callable[[Any], bool]


def number(value: Any, least: float | None = None, most: float | None = None) -> bool:
    """An int, a float or a bool, nan and infinities among them."""
    if not isinstance(value, int | float | np.generic):
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def bounded(least: float, most: float | None = None) -> Kind:
    """Numbers within bounds."""
    return lambda value: number(value, least, most)


def integer(least: int = -(2**62), most: int = 2**62) -> Kind:
    """Integers within bounds."""
    return lambda value: isinstance(value, int | np.integer) and least <= value <= most


def several(of: Kind, count: int | None = None) -> Kind:
    """Tuples, or lists, of `count` values."""
    return lambda value: isinstance(value, tuple | list) and count in (None, len(value)) and all(map(of, value))


def either(*kinds: Kind) -> Kind:
    """Values of any of some kinds."""
    return lambda value: any(kind(value) for kind in kinds)


def among(*values: Any) -> Kind:
    """One of these values."""
    accepted = {(type(value), value) for value in values}
    return lambda value: (type(value), value) in accepted


def instance(*kinds: type) -> Kind:
    """Values of some classes."""
    return lambda value: isinstance(value, kinds)


def is_part_of_index(value: Any) -> bool:
    """An int, slice with a positive step, None or Ellipsis."""
    if isinstance(value, slice):
        is_place = either(NONE, integer())
        return is_place(value.start) and is_place(value.stop) and either(NONE, COUNT)(value.step)
    return value is None or value is ... or integer()(value)


def is_plain(value: Any) -> bool:
    """Numbers, bools, names, None, and lists of these."""
    return value is None or isinstance(value, str) or number(value) or several(is_plain)(value)


def is_view(value: Any) -> bool:
    """A view that `ViewScatter` takes: an op, and its attributes."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], type)
    return is_pair and value[0].view and isinstance(value[1], dict)


DIM = integer(-64, 64)
SIZE, COUNT = integer(0, 2**48), integer(1, 2**48)
TEXT, DTYPE, DRAWN = instance(str), lambda value: isinstance(value, np.dtype) and value in BY_NUMPY, instance(Scalar)
FLAG = among(True, False, 0, 1, np.True_, np.False_)
PAIR_OF_SIZES = several(SIZE, 2)
WINDOW = several(COUNT, 2)
NONE = instance(NoneType)
OF_GLOBAL_TENSORS = "split"  # an attribute that adjoints may have: which dims of the result are split


def by_name(kinds: dict[Kind, str]) -> dict[str, Kind]:
    """The kind of each name."""
    return {name: kind for kind, names in kinds.items() for name in names.split()}


# by their names, which mean the same in all ops
ATTRIBUTES = by_name(
    {
        FLAG: "aligned ceil_mode count_include_pad descending full_matrices keepdim replacement reverse stable training"
        " transpose_x transpose_y upper",
        number: "beta correction exponent high low mean p scale spatial_scale threshold value",
        either(NONE, number): "max min",
        bounded(0): "eps std norm_type",
        bounded(0, 1): "label_smoothing",
        either(NONE, bounded(0)): "atol rtol",
        integer(): "diagonal ignore_index",
        integer(most=2**31): "sampling_ratio",
        integer(-1, 2**48): "num_classes padding_idx",
        either(DRAWN, integer(0, 2**64)): "seed",
        either(DRAWN, integer()): "offset",
        SIZE: "count rows",
        COUNT: "groups num_samples step",
        either(NONE, COUNT): "divisor_override",
        DIM: "dim0 dim1 dim2",
        either(NONE, DIM, several(DIM)): "dim",
        either(integer(0, 64), several(DIM)): "dims",
        either(SIZE, several(SIZE)): "size",
        several(SIZE): "sizes",
        several(integer(-1, 2**48)): "shape",
        several(integer(0, 64)): "split",
        several(COUNT, 3): "image",
        several(several(integer(-(2**48), 2**48), 2)): "widths",
        PAIR_OF_SIZES: "output_size",
        either(PAIR_OF_SIZES, several(PAIR_OF_SIZES, 2)): "padding",
        WINDOW: "dilation kernel stride",
        several(is_part_of_index): "basic index",
        several(is_view): "steps",
        among("L", "U"): "UPLO",
        among("none", "tanh"): "approximate",
        among("none", "mean", "sum"): "reduction",
        among("reduced", "complete"): "mode",
        among(*CELLS): "cell",
        DTYPE: "dtype",
        instance(device): "target",
        instance(placement): "placement",
        either(NONE, several(instance(Sbp))): "sbp grad_sbp",
        either(instance(device), lambda value: isinstance(value, tuple) and len(value) == 2): "source",
    }
)
UPDATES = by_name(  # of optimizers
    {
        FLAG: "amsgrad centered decoupled_weight_decay do_bias_correction maximize nesterov",
        number: "alpha beta clip_value dampening initial_accumulator_value lambd lambda1 lambda2 lr lr_decay"
        " lr_power max_norm momentum momentum_decay rho t0 weight_decay",
        bounded(0): "eps",
        several(number, 2): "etas step_sizes",
        several(lambda value: number(value, 0) and value < 1, 2): "betas",
        several(FLAG): "fresh",
        several(integer(1)): "steps",
    }
)


def check_attributes(op: type[Op], attrs: dict[str, Any]) -> None:
    """Refuse attributes that the op does not have, and values that they cannot take.

    Args:
        attrs: with the numbers of a call in place of `Scalar`s, but for those of draws.
    """
    names = attribute_names(op)
    if OF_GLOBAL_TENSORS in attrs and OF_GLOBAL_TENSORS in inspect.signature(op.sbp).parameters:
        names = names | {OF_GLOBAL_TENSORS}
    require(set(attrs) == names, f"the attributes {sorted(attrs)}; expected {sorted(names)}")
    for name, value in attrs.items():
        require(rule_of(op, name)(value), f"{name}={value!r:.60}")


def rule_of(op: type[Op], name: str) -> Kind:
    """What an attribute of an op may be."""
    if issubclass(op, Pointwise) and name not in ATTRIBUTES:
        return number if is_number(op.formula.attributes[name]) else is_plain
    return (UPDATES if op.groups else ATTRIBUTES).get(name, is_plain)


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
