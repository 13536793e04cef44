"""Functions of one element, for every target: the language in which pointwise operators are written.

The body of a pointwise operator (see `ops.pointwise`) is a Python function of scalars. It uses arithmetic, comparisons
and the functions of this module, and can be called on

    tensors                    it runs operators, which record themselves on the tape
    `Expr`                     it becomes an expression, which `statements` prints as Python for numba

Printed, it is part of a CPU loop (the functions are those of `backends.cpu.scalars`), of a CUDA kernel (those of
`kernels.scalars`) and of the fused loops of nn.Graph. A number takes the dtype of the operands.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniflow.formulas import gamma

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
HALVES = ("float16", "bfloat16")


@dataclass(eq=False)
class Function:
    """A scalar function that formulas are built from.

    Attributes:
        name: in the text of programs.
        text: Python, with {0}, {1} ... for the operands.
        numpy: what computes it for NumPy arrays and numbers.
        integers, bools: the text for operands of these dtypes, where it differs.
        predicate: whether the result is bool.
        exact: whether the result is one of the operands, up to its sign, so that half precision needs no rounding.
        slow: the dtypes in which NumPy's own loop is faster than a compiled one.
        cost: the time for an element, relative to an addition.
        of_tensors: the operator that computes it for tensors.
    """

    name: str
    text: str
    numpy: Callable
    integers: str = ""
    bools: str = ""
    predicate: bool = False
    exact: bool = False
    slow: frozenset[str] = frozenset()
    cost: int = 1
    of_tensors: Callable | None = None

    def __call__(self, *operands: Any) -> Any:
        if any(isinstance(x, Expr) for x in operands):
            return Expr(self, operands)
        if self.of_tensors is not None and any(hasattr(x, "requires_grad") for x in operands):
            return self.of_tensors(*operands)
        return self.numpy(*operands)


class Expr:
    """A symbolic scalar: an operand, or a function of other scalars. Operators on it create further expressions.

    Attributes:
        function: None for an operand.
        operands: expressions and numbers.
    """

    __slots__ = ("function", "operands")

    def __init__(self, function: Function | None = None, operands: tuple = ()):
        self.function = function
        self.operands = operands

    def __bool__(self) -> bool:
        raise TypeError("a formula cannot branch on the value of an element; use scalar.where(condition, x, y)")

    def nodes(self) -> Iterator[Expr]:
        """All function nodes of the expression, each once, operands first."""
        seen: set[Expr] = set()

        def visit(node: Any) -> Iterator[Expr]:
            if isinstance(node, Expr) and node.function is not None and node not in seen:
                seen.add(node)
                for x in node.operands:
                    yield from visit(x)
                yield node

        yield from visit(self)


DOUBLE = frozenset({"float64"})  # numba calls the C library there
SLOW: dict[str, Any] = {"slow": FLOATS, "cost": 30}  # functions of the C library


def infix(name: str, symbol: str, numpy: Callable, **kwargs: Any) -> Function:
    """An operator of Python."""
    return Function(name, f"({{0}} {symbol} {{1}})", numpy, **kwargs)


def log_gamma(x: float) -> float:
    """`math.lgamma`, but infinite at 0, -1, -2, ... and on overflow, like compiled code."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


add = infix("add", "+", np.add, bools="({0} | {1})")
sub = infix("sub", "-", np.subtract)
mul = infix("mul", "*", np.multiply, bools="({0} & {1})")
div = infix("div", "/", np.true_divide)
neg = Function("neg", "(-{0})", np.negative, exact=True)
eq = infix("eq", "==", np.equal, predicate=True)
ne = infix("ne", "!=", np.not_equal, predicate=True)
lt = infix("lt", "<", np.less, predicate=True)
le = infix("le", "<=", np.less_equal, predicate=True)
gt = infix("gt", ">", np.greater, predicate=True)
ge = infix("ge", ">=", np.greater_equal, predicate=True)
bitwise_and = infix("bitwise_and", "&", np.bitwise_and, exact=True)
bitwise_or = infix("bitwise_or", "|", np.bitwise_or, exact=True)
bitwise_xor = infix("bitwise_xor", "^", np.bitwise_xor, exact=True)
bitwise_not = Function("bitwise_not", "(~{0})", np.invert, bools="(not {0})", exact=True)
logical_not = Function("logical_not", "(not {0})", np.logical_not, predicate=True)
left_shift = Function("left_shift", "left_shift({0}, {1})", np.left_shift)
right_shift = Function("right_shift", "right_shift({0}, {1})", np.right_shift)

where = Function("where", "where({0}, {1}, {2})", np.where, exact=True)
abs = Function("abs", "abs({0})", np.absolute, bools="{0}", exact=True)
sqrt = Function("sqrt", "math.sqrt({0})", np.sqrt, cost=3)
exp = Function("exp", "exp({0})", np.exp, slow=DOUBLE, cost=8)
expm1 = Function("expm1", "expm1({0})", np.expm1, slow=DOUBLE, cost=16)
log = Function("log", "log({0})", np.log, slow=DOUBLE, cost=8)
log1p = Function("log1p", "log1p({0})", np.log1p, slow=DOUBLE, cost=10)
tanh = Function("tanh", "tanh({0})", np.tanh, slow=DOUBLE, cost=8)
erf = Function("erf", "erf({0})", np.vectorize(math.erf, otypes="d"), cost=8)
sin = Function("sin", "math.sin({0})", np.sin, **SLOW)
cos = Function("cos", "math.cos({0})", np.cos, **SLOW)
hypot = Function("hypot", "math.hypot({0}, {1})", np.hypot, **SLOW)
atan2 = Function("atan2", "math.atan2({0}, {1})", np.arctan2, **SLOW)
tan = Function("tan", "math.tan({0})", np.tan, **SLOW)
asin = Function("asin", "math.asin({0})", np.arcsin, **SLOW)
acos = Function("acos", "math.acos({0})", np.arccos, **SLOW)
atan = Function("atan", "math.atan({0})", np.arctan, **SLOW)
sinh = Function("sinh", "math.sinh({0})", np.sinh, **SLOW)
cosh = Function("cosh", "math.cosh({0})", np.cosh, **SLOW)
asinh = Function("asinh", "math.asinh({0})", np.arcsinh, **SLOW)
acosh = Function("acosh", "math.acosh({0})", np.arccosh, **SLOW)
atanh = Function("atanh", "math.atanh({0})", np.arctanh, **SLOW)
log2 = Function("log2", "math.log2({0})", np.log2, **SLOW)
log10 = Function("log10", "math.log10({0})", np.log10, **SLOW)
erfc = Function("erfc", "math.erfc({0})", np.vectorize(math.erfc, otypes="d"), cost=30)
lgamma = Function("lgamma", "math.lgamma({0})", np.vectorize(log_gamma, otypes="d"), cost=30)
digamma = Function("digamma", "digamma({0})", np.vectorize(gamma.digamma, otypes="d"), cost=60)
zeta = Function("zeta", "zeta({0}, {1})", np.vectorize(gamma.zeta, otypes="d"), cost=200)
copysign = Function("copysign", "math.copysign({0}, {1})", np.copysign)
signbit = Function("signbit", "(math.copysign(1.0, {0}) < 0)", np.signbit, "({0} < 0)", "False", predicate=True)
fmod = Function("fmod", "math.fmod({0}, {1})", np.fmod, "({0} - trunc_divide_integers({0}, {1}) * {1})", **SLOW)
power = Function("power", "power({0}, {1})", np.power, "power_integers({0}, {1})", slow=FLOATS, cost=60)
floor = Function("floor", "floor({0})", np.floor, "{0}")
ceil = Function("ceil", "ceil({0})", np.ceil, "{0}")
trunc = Function("trunc", "trunc({0})", np.trunc, "{0}")
rint = Function("round", "rint({0})", np.rint, "{0}")
trunc_divide = Function(
    "trunc_divide", "trunc({0} / {1})", lambda x, y: np.trunc(x / y), "trunc_divide_integers({0}, {1})"
)
remainder = Function("remainder", "remainder({0}, {1})", np.remainder, "remainder_integers({0}, {1})", **SLOW)
floor_divide = Function(
    "floor_divide", "floor_divide({0}, {1})", np.floor_divide, "floor_divide_integers({0}, {1})", **SLOW
)


def _operator(function: Function, flipped: bool = False) -> Callable:
    if flipped:
        return lambda x, y: Expr(function, (y, x))
    return lambda *operands: Expr(function, operands)


for _name, _function in {
    "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floor_divide, "mod": remainder, "pow": power,
    "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor,
}.items():  # fmt: skip
    setattr(Expr, f"__{_name}__", _operator(_function))
    setattr(Expr, f"__r{_name}__", _operator(_function, flipped=True))
for _name, _function in {
    "eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge, "neg": neg, "abs": abs,
}.items():  # fmt: skip
    setattr(Expr, f"__{_name}__", _operator(_function))
Expr.__invert__ = lambda x: Expr(logical_not if is_predicate(x) else bitwise_not, (x,))
Expr.__hash__ = object.__hash__


# formulas


@dataclass(eq=False)
class Formula:
    """A pointwise operator as a function of scalars.

    Attributes:
        name: of the operator, in snake case.
        function: the body.
        operands: the names of its parameters that stand for elements of arrays, or for numbers.
        bools: those of them that hold bools whatever the dtype of the others.
        attributes: the names of its other parameters, with their defaults: numbers, or None, bools and strings, by
            which the body may branch.
    """

    name: str
    function: Callable
    operands: tuple[str, ...]
    bools: frozenset[str]
    attributes: dict[str, Any]

    @classmethod
    def of(cls, function: Callable, name: str = "") -> Formula:
        """The formula of a function; parameters without default are operands, those annotated `bool` hold bools."""
        parameters = inspect.signature(function, eval_str=False).parameters.values()
        operands = tuple(p.name for p in parameters if p.default is p.empty)
        bools = frozenset(p.name for p in parameters if p.annotation in (bool, "bool") and p.default is p.empty)
        return cls(
            name or function.__name__, function, operands, bools,
            {p.name: p.default for p in parameters if p.default is not p.empty},
        )  # fmt: skip


FORMULAS: dict[str, Formula] = {}  # of all pointwise operators, by name


@dataclass(eq=False)
class Expression:
    """The expression of a formula, with some of its parameters fixed.

    Attributes:
        result: the expression, or a number.
        operands: what stands for the operands, in order, and then for the attributes that are numbers.
        bools: the positions of operands that hold bools whatever the dtype of the others.
    """

    result: Any
    operands: list[Expr]
    bools: frozenset[int]

    def __post_init__(self) -> None:
        nodes = list(self.result.nodes()) if isinstance(self.result, Expr) else []
        functions = [node.function for node in nodes]
        self.size = len(nodes)
        self.cost = sum(f.cost for f in functions)
        self.slow = frozenset().union(*(f.slow for f in functions))
        self.exact = all(f.exact or f.predicate for f in functions)
        self.predicate = is_predicate(self.result)
        is_plain = len(nodes) == 1 and list(map(id, nodes[0].operands)) == list(map(id, self.operands))
        self.only = functions[0] if is_plain else None  # set if the expression is a single function of all operands


def is_predicate(x: Any) -> bool:
    """Whether an expression is bool for all operands: a comparison, or `&`, `|`, `^` or `~` of such expressions."""
    if not isinstance(x, Expr) or x.function is None:
        return False
    return x.function.predicate or x.function.name.startswith("bitwise") and all(map(is_predicate, x.operands))


def is_number(x: Any) -> bool:
    """Whether an argument is a number, but not a bool."""
    return isinstance(x, (int, float, np.number)) and not isinstance(x, bool)  # noqa: UP038  (a union takes time)


def key_of(name: str, arguments: dict[str, Any]) -> str:
    """The name of an operator with those of its arguments that are not numbers or operands: `gelu:approximate=tanh`."""
    return ":".join([name, *[f"{k}={v}" for k, v in arguments.items()]])


def arguments(key: str) -> tuple[Formula, dict[str, Any]]:
    """The formula and the arguments of a key that `key_of` made; KeyError for an unknown operator."""
    name, *fixed = key.split(":")
    values = dict(part.split("=", 1) for part in fixed)
    return FORMULAS[name], {k: FIXED.get(v, v) for k, v in values.items()}


FIXED = {"None": None, "True": True, "False": False}


@functools.cache
def expression(key: str) -> Expression:
    """The expression for a key that `key_of` made.

    Raises:
        KeyError: for an unknown operator.
    """
    formula, values = arguments(key)
    free = {k: Expr() for k in (*formula.operands, *formula.attributes) if k not in values}
    bools = frozenset(i for i, k in enumerate(free) if k in formula.bools)
    return Expression(formula.function(**{**free, **values}), list(free.values()), bools)


def statements(formula: Expression, operands: list[str], dtype: str, target: str) -> list[str]:
    """Python statements that assign the value of an expression to the variable `target`.

    Args:
        operands: the names of the variables that hold the operands.
        dtype: in which numbers stand, and by which the functions are chosen.
    """
    names: dict[Any, str] = dict(zip(formula.operands, operands, strict=True))
    nodes = list(formula.result.nodes()) if isinstance(formula.result, Expr) else []
    uses = [x for node in nodes for x in node.operands if isinstance(x, Expr)]
    lines = []
    for node in nodes:
        text = text_of(node.function, dtype).format(*[operand_text(x, names, dtype) for x in node.operands])
        if node is not formula.result and sum(x is node for x in uses) > 1:
            name = f"{target}_{len(lines)}"
            lines.append(f"{name} = {text}")
            text = name
        names[node] = text
    lines.append(f"{target} = {operand_text(formula.result, names, dtype)}")
    return [ast.unparse(ast.parse(line)) for line in lines]  # without parentheses that are not needed


def text_of(function: Function, dtype: str) -> str:
    """The text of a function for operands of a dtype."""
    if dtype == "bool":
        return function.bools or function.text
    return function.text if dtype in FLOATS else function.integers or function.text


def operand_text(x: Any, names: dict[Any, str], dtype: str) -> str:
    """The text of an operand; a number is converted to the dtype."""
    if isinstance(x, Expr):
        return names[x]
    if dtype == "bool":
        return str(bool(x))
    value = float(x) if dtype in FLOATS else int(x)
    text = repr(value) if math.isfinite(value) else {"inf": "math.inf", "-inf": "-math.inf"}.get(str(value), "math.nan")
    return f"np.{dtype if dtype in FLOATS else 'int64'}({text})"


# Linearity: f is linear in a set of operands if it maps the sum of two choices of them to the sum of the two results,
# with all other operands fixed. Linear are sums of linear terms, products with one linear factor, quotients with a
# linear numerator, and `where` of linear terms under a condition that does not depend on the set.

CONSTANT, LINEAR, ZERO = "constant", "linear", "zero"


@functools.cache
def linear_sets(key: str) -> tuple[tuple[int, ...], ...]:
    """The largest sets of operands, by position, in which the formula of `expression(key)` is linear."""
    formula = expression(key)
    positions = [i for i in range(len(formula.operands)) if i not in formula.bools]
    sets: list[tuple[int, ...]] = []
    for size in range(len(positions), 0, -1):
        for subset in itertools.combinations(positions, size):
            if not any(set(subset) <= set(s) for s in sets) and is_linear(formula, subset):
                sets.append(subset)
    return tuple(sets)


def is_linear(formula: Expression, positions: tuple[int, ...]) -> bool:
    """Whether an expression is linear in these operands together."""
    dependences: dict[int, str | None] = {
        id(x): LINEAR if i in positions else CONSTANT for i, x in enumerate(formula.operands)
    }
    for node in formula.result.nodes() if isinstance(formula.result, Expr) else ():
        dependences[id(node)] = result_dependence(node.function, [dependence(x, dependences) for x in node.operands])
    return dependence(formula.result, dependences) == LINEAR


def dependence(x: Any, dependences: dict[int, str | None]) -> str | None:
    """How an operand of a node depends on the chosen operands; None if not linearly."""
    return dependences[id(x)] if isinstance(x, Expr) else ZERO if x == 0 else CONSTANT


def result_dependence(function: Function, operands: list[str | None]) -> str | None:
    """How the result of a function depends on the chosen operands, given how its operands do."""
    if None in operands:
        return None
    if LINEAR not in operands:
        return CONSTANT
    if function in (add, sub, neg):
        return LINEAR if CONSTANT not in operands else None
    if function is mul:
        return LINEAR if operands.count(LINEAR) == 1 else None
    if function is div:
        return LINEAR if operands[1] == CONSTANT else None
    if function is where:
        return LINEAR if operands[0] == CONSTANT and CONSTANT not in operands[1:] else None
    return None
