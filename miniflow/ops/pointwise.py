"""Pointwise operators: each is one function of scalars, and one for each gradient.

    @pointwise(amp="gray", nn="SiLU")
    def silu(x):
        return x * sigmoid(x)

    @silu.gradient
    def silu_grad(dy, x):
        s = sigmoid(x)
        return dy * s * (1 + x * (1 - s))

The body uses arithmetic, comparisons, functions of `formulas.scalar` and other pointwise operators. It is compiled to
the loops of the CPU, of CUDA devices and of the fused regions of nn.Graph. Parameters without default are operands:
tensors, which are broadcast, or numbers. The others are attributes. An operand annotated `bool` is a mask.

A gradient takes the cotangent, and by name the operands, attributes and the result (called `out`) that it needs: only
those are saved. A short one is a lambda, `exp.gradient(lambda dy, out: dy * out)`. If it has more than one function it
runs as one compiled loop; if it is to be differentiated itself, it is called on tensors, and so records itself.
"""

from __future__ import annotations

import functools
import inspect
from collections import namedtuple
from collections.abc import Callable, Sequence
from itertools import compress
from operator import is_not
from typing import Any

import numpy as np

from miniflow.backends.registry import KERNELS, Kernel
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import modes
from miniflow.dtype import BY_NUMPY
from miniflow.errors import ArgumentTypeError, DTypeError
from miniflow.formulas.scalar import FORMULAS, Formula, expression, is_number, key_of, linear_sets
from miniflow.ops.promotion import (
    Number,
    are_of_one_float,
    as_float,
    as_operand,
    binary,
    broadcast_shape,
    floating_binary,
    result_type,
)
from miniflow.sbp import aligned, signatures
from miniflow.tensor import Tensor, constant_like

EXPECTED = {  # the kinds of dtypes that an operator accepts: floats, integers, bools
    "f": "a floating dtype: use x.float()",
    "fi": "numbers: cast first, e.g. x.int(), or use ~, &, |, ^ and masks",
    "ib": "integers or bools: compare or cast first",
    "i": "integers: cast first, e.g. x.int()",
}
OPERATORS: dict[str, Callable] = {}  # the public functions by name, synonyms among them


class Pointwise(Op):
    """An op that computes each element by a formula.

    Attributes:
        formula: of scalars.
        accepts: which kinds of dtypes it takes: "f" floats, "i" integers, "b" bools, or several of them.
        gradients: operand -> its `Gradient`.
    """

    formula: Formula
    accepts = "fib"
    check: Callable | None = None
    gradients: dict[str, Gradient]

    results: dict[tuple, np.dtype]  # the dtypes of operands, None for a number -> that of the result

    @classmethod
    def infer(cls, *operands, **attrs):
        dtypes, shape, equal = [], None, True
        for x in operands:
            dtype = getattr(x, "dtype", None)
            dtypes.append(dtype)
            if dtype is not None:
                equal = equal and (shape is None or x.shape == shape)
                shape = x.shape
        dtypes = tuple(dtypes)
        result = cls.results.get(dtypes)
        if result is None:
            result = cls.results[dtypes] = cls.result_of(dtypes)
        if cls.check is not None:
            cls.check(*operands)
        if not equal:
            shape = broadcast_shape(cls.function_name, *[x.shape for x in operands if hasattr(x, "shape")])
        return shape, result

    @classmethod
    def sbp(cls, *operands, ranks, **attrs):
        names = (*cls.formula.operands, *attrs)
        arrays = {name: x for name, x in zip(names, operands, strict=False) if has_shape(x)}
        arguments = dict(zip(names, (*operands, *attrs.values()), strict=True))
        fixed = {name: x for name, x in arguments.items() if name not in arrays and not is_number(x)}
        free = [name for name in names if name not in fixed]
        linear = [[free[i] for i in positions] for positions in linear_sets(key_of(cls.formula.name, fixed))]
        shape = broadcast_shape("", *[x.shape for x in arrays.values()])
        return signatures(
            [aligned(x.shape, len(shape)) if has_shape(x) else None for x in operands],
            [aligned(shape, len(shape))],
            linear=[[names.index(name) for name in group] for group in linear if arrays.keys() >= set(group)],
        )

    @classmethod
    def result_of(cls, dtypes: tuple) -> np.dtype:
        """The dtype of the result for operands of these dtypes, which are checked."""
        pairs = [(name, dtype) for name, dtype in zip(cls.formula.operands, dtypes, strict=True) if dtype is not None]
        for name, dtype in pairs:
            if name in cls.formula.bools and dtype != np.bool_:
                got = f"a {name} of {dtype}"
                raise DTypeError(f"{cls.function_name}: got {got}; expected bool: compare first, as x > 0")
        dtype = next((dtype for name, dtype in pairs if name not in cls.formula.bools), None)
        if dtype is None:
            raise DTypeError(f"{cls.function_name}: got numbers alone beside a mask; expected a tensor of them")
        letter = {"b": "b", "i": "i", "u": "i"}.get(dtype.kind, "f")
        if letter not in cls.accepts:
            raise DTypeError(f"{cls.function_name}: got {BY_NUMPY[dtype].name}; expected {EXPECTED[cls.accepts]}")
        return np.dtype(np.bool_) if cls.predicate else dtype


class Gradient:
    """The gradient of one operand.

    Attributes:
        function: the formula's body.
        saved: the names of the operands and of the result that it needs.
        attributes: the names of the attributes that it needs.
        op: the op that computes it in one loop; None if the ops that its body calls compute it as well.
    """

    def __init__(self, op: type[Pointwise], function: Callable, name: str):
        names = list(inspect.signature(function).parameters)[1:]
        unknown = {*names} - {*op.formula.operands, "out", *op.formula.attributes}
        if unknown:
            raise TypeError(f"{function.__name__}: {op.__name__} has no operands or attributes {unknown}")
        self.function = function
        self.attributes = [n for n in names if n in op.formula.attributes]
        self.saved = names[: len(names) - len(self.attributes)]  # the attributes come last
        self.positions: list[int] = []  # of `saved` among all that the op saves
        defaults = {n: op.formula.attributes[n] for n in self.attributes}
        formula = Formula(name, function, ("dy", *self.saved), op.formula.bools, defaults)
        FORMULAS[name] = formula
        body = expression(default_key(formula))
        is_loop = body.size > 1 and "float32" not in body.slow
        self.compute = (lambda dy, saved, attrs: dy) if body.result is body.operands[0] else self.__call__
        self.op = make_op(formula, op.amp) if is_loop else None
        if not is_loop:
            del FORMULAS[name]

    def __call__(self, dy: Tensor, saved: tuple, attrs: dict[str, Any]) -> Tensor:
        values = map(saved.__getitem__, self.positions)
        attrs = {name: attrs[name] for name in self.attributes} if self.attributes else {}
        if self.op is not None and not modes.enabled:
            return call(self.op, dy, *values, **attrs)
        result = self.function(dy, *values, **attrs)
        return result if isinstance(result, Tensor) else constant_like(dy, np.full(dy.shape, result, dy._array.dtype))


def has_shape(x: Any) -> bool:
    """Whether an operand is an array."""
    return hasattr(x, "shape") and not isinstance(x, np.generic)


def make_op(formula: Formula, amp: str | None = None, **members: Any) -> type[Pointwise]:
    """The op class of a formula."""
    FORMULAS[formula.name] = formula
    members |= {"formula": formula, "amp": amp, "gradients": {}, "results": {}, "__doc__": formula.function.__doc__}
    count = len(formula.operands)
    members["parameters"] = ("input", "other")[:count] if count < 3 else formula.operands
    members["broadcasts"] = len(formula.operands) > 1
    members["promotes"] = amp is not None and len(formula.operands) - len(formula.bools) > 1
    members |= {"predicate": expression(default_key(formula)).predicate, "__module__": __name__}
    name = "".join(word.capitalize() for word in formula.name.split("_"))
    return type(name, (Pointwise,), members)


def backward(op: type[Pointwise]) -> Callable:
    """The `backward` of an op, from the gradients of its operands."""
    gradients = [op.gradients[name].compute if name in op.gradients else None for name in op.formula.operands]
    if len(gradients) == 1:
        (gradient_of_x,) = gradients
        return lambda ctx, dy: gradient_of_x(dy, ctx.saved if op.saves else (), ctx.attrs)

    def run(ctx: Any, dy: Tensor) -> tuple:
        saved, attrs = ctx.saved if op.saves else (), ctx.attrs
        results = []
        for gradient, needed in zip(gradients, ctx.needs):  # noqa: B905  (strict costs more than a gradient of add)
            results.append(gradient(dy, saved, attrs) if needed and gradient is not None else None)
        return tuple(results)

    return run


def add_gradient(op: type[Pointwise], *operands: str | Callable) -> Callable:
    """Decorate the gradient of operands, by default of the first: `@relu.gradient`, `@mul.gradient("x")`."""
    if callable(operands[0]):
        return add_gradient(op, op.formula.operands[0])(operands[0])

    def decorate(function: Callable) -> Callable:
        for operand in operands:
            name = f"{op.formula.name}_grad" + (f"_{operand}" if len(op.formula.operands) > 1 else "")
            op.gradients[operand] = Gradient(op, function, name)
        readers = {n: [o for o, g in op.gradients.items() if n in g.saved] for n in (*op.formula.operands, "out")}
        op.saves = tuple(n for n, names in readers.items() if names)
        for gradient in op.gradients.values():
            gradient.positions = [op.saves.index(n) for n in gradient.saved]
        position = {n: i for i, n in enumerate(op.formula.operands)}
        op.saved_inputs = tuple(
            (position[n], position[readers[n][0]] if len(readers[n]) == 1 and len(position) > 1 else None)
            for n in op.saves if n != "out"
        )  # fmt: skip
        op.saved_outputs = (0,) if "out" in op.saves else ()
        op.backward = staticmethod(backward(op))
        return function

    return decorate


def pointwise(
    *,
    accepts: str = "fib",
    integers: str = "",
    cpu: Callable | None = None,
    amp: str | None = None,
    nn: str | None = None,
    operator: str = "",
    in_place: bool | None = None,
    piecewise_constant: bool = False,
    synonyms: tuple[str, ...] = (),
    check: Callable | None = None,
) -> Callable[[Callable], Callable]:
    """Decorate the body of a pointwise operator; see the head of this file. The result is the public function.

    Args:
        accepts: which kinds of dtypes it takes: "f" floats, "i" integers, "b" bools, or several of them.
        integers: "float": integers and bools are computed in the default floating dtype.
        cpu: a NumPy ufunc that computes it on the CPU, or a function `(*operands, out=array)`, in place of a loop.
        amp: the class of mixed precision: "white", "gray", "clear", "black"; None for float32 (see `amp`).
        nn: the name of its layer in `nn`.
        operator: the name of Python's operator for it: "add" for `__add__`, `__radd__` and `__iadd__`.
        in_place: whether it has a form with a trailing underscore; by default if its results are not bools.
        piecewise_constant: its gradients are zero.
        synonyms: other names of the function.
        check: called with the operands' arrays before the op runs; it refuses some integers.
    """

    def decorate(function: Callable) -> Callable:
        formula = Formula.of(function)
        op = make_op(formula, amp, accepts=accepts, check=check and staticmethod(check))
        op.checks_values = "integers" if check else ""
        if cpu is not None:
            KERNELS["cpu"][op.__name__] = numpy_kernel(op, cpu, integers == "float")
        op.nn, op.operator, op.synonyms = nn, operator, synonyms
        op.in_place = not op.predicate if in_place is None else in_place
        if piecewise_constant:
            add_gradient(op, *formula.operands)(lambda dy: 0)
        if (only := expression(default_key(formula)).only) is not None:
            only.of_tensors = lambda *operands: OPERATORS[formula.name](*operands)
        return publish(op, generated(op, integers == "float"))

    return decorate


def publish(op: type[Pointwise], function: Callable) -> Callable:
    """Register `function` as the one that users call for `op`."""
    function.op, function.gradient = op, lambda *operands: add_gradient(op, *operands)
    OPERATORS.update(dict.fromkeys((op.formula.name, *op.synonyms), function))
    return function


def public_function_of(generated: Callable) -> Callable[[Callable], Callable]:
    """Decorate the function that users call for an op, with more parameters than the generated one."""
    return lambda function: publish(generated.op, function)


def default_key(formula: Formula) -> str:
    """The key of the formula with the default values of its attributes."""
    return key_of(formula.name, {k: v for k, v in formula.attributes.items() if not is_number(v)})


def numpy_kernel(op: type[Pointwise], compute: Callable, to_float: bool) -> Kernel:
    """The kernel that NumPy computes."""
    checked = op.check is not None or not to_float and "b" not in op.accepts and takes_bools(compute)
    if not checked and isinstance(compute, np.ufunc):
        return Kernel(lambda out, *operands: compute(*operands, out=out), "all", ufunc=compute)
    return Kernel(lambda out, *operands, **attrs: compute(*operands, out=out, **attrs))


def takes_bools(ufunc: Callable) -> bool:
    """Whether a NumPy ufunc accepts bools, which it would compute as small integers."""
    try:
        return isinstance(ufunc, np.ufunc) and ufunc(*[np.ones(1, bool)] * ufunc.nin) is not None
    except TypeError:
        return False


# the functions that users call


def generated(op: type[Pointwise], to_float: bool) -> Callable:
    """The function for an op. It promotes operands; with a layer it takes `inplace`. Its source is the formula."""
    convert = floating_binary if to_float else binary

    def unary(input: Tensor) -> Tensor:
        return call(op, as_float(input) if to_float else input)

    def layer(input: Tensor, inplace: bool = False) -> Tensor:
        return getattr(input, f"{op.formula.name}_")() if inplace else unary(input)

    def of_two(input: Tensor | Number, other: Tensor | Number) -> Tensor:
        return convert(op, input, other)

    if op.formula.attributes or len(op.formula.operands) > 2:
        function = general(op, to_float)
    else:
        function = of_two if len(op.formula.operands) == 2 else layer if op.nn else unary
    function.__signature__ = inspect.signature(function)
    return functools.update_wrapper(function, op.formula.function)


def general(op: type[Pointwise], to_float: bool) -> Callable:
    """The function of an op with attributes or with more than two operands; a named tuple binds its arguments."""
    attributes, names = op.formula.attributes, ["input", *op.formula.operands[1:]]
    count, defaults = len(names), {**attributes, "inplace": False} if op.nn else attributes
    Arguments = namedtuple(op.formula.name, [*names, *defaults], defaults=defaults.values())
    Arguments.__new__.__qualname__ = op.formula.name  # in errors
    types = list(map(type, attributes.values()))

    def function(*operands: Any, **options: Any) -> Tensor:
        attrs, inplace = attributes, False
        if options or len(operands) != count:
            arguments = Arguments(*operands, **options)
            operands, inplace = arguments[:count], op.nn and arguments.inplace
            if any(map(is_not, arguments[count:], attributes.values())):  # `!=` could compare tensors
                attrs = dict(zip(attributes, arguments[count:]))  # noqa: B905  (strict takes time)
                if types != list(map(type, attrs.values())) or str in types:
                    check_attributes(op, attrs)
        if count > 1:
            operands = promoted(op, operands)
        if inplace:
            return getattr(operands[0], f"{op.formula.name}_")(*operands[1:], **attrs)
        if to_float:
            operands = [as_float(x) for x in operands]
        return call(op, *operands, **attrs)

    function.__signature__ = inspect.signature(Arguments)
    return function


def check_attributes(op: type[Pointwise], attrs: dict[str, Any]) -> None:
    """Refuse attributes of another type than their defaults, and strings that the body does not know.

    Raises:
        ArgumentTypeError: naming the attribute and its type.
        ArgumentError: from the body.
    """
    for name, default in op.formula.attributes.items():
        value, expected = attrs[name], "a string" if isinstance(default, str) else "a number"
        if not (isinstance(value, str) if expected == "a string" else is_number(value) or value is default):
            message = f"got {name}={value!r}; expected {expected}, by default {default!r}"
            raise ArgumentTypeError(f"{op.function_name}: {message}")
    expression(key_of(op.formula.name, {k: v for k, v in attrs.items() if not is_number(v)}))


def promoted(op: type[Pointwise], operands: Sequence[Any]) -> Sequence[Any]:
    """The operands in one dtype, except masks and None."""
    if are_of_one_float(operands):
        return operands
    is_promoted = [
        x is not None and name not in op.formula.bools for x, name in zip(operands, op.formula.operands, strict=True)
    ]
    if not all(isinstance(x, Tensor | bool | int | float | np.generic) for x in compress(operands, is_promoted)):
        return operands  # `call` refuses them
    target = result_type(*compress(operands, is_promoted))
    return [
        as_operand(x, target, op.function_name) if promotes else x
        for x, promotes in zip(operands, is_promoted, strict=True)
    ]
