"""What a reader asks of a function, `inspect.signature` and `inspect.getsource`, has true answers."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from samples import ROWS

import miniflow as flow
from miniflow.ops.creation import Options
from miniflow.ops.pointwise import OPERATORS

PLACES = {
    "flow": flow, "flow.nn.functional": flow.nn.functional, "flow.linalg": flow.linalg, "flow.special": flow.special,
    "flow.Tensor": flow.Tensor,
}  # fmt: skip


def functions(place: str) -> Iterator[tuple[str, Callable]]:
    """The public functions of a module, or the methods of a class."""
    for name in dir(PLACES[place]):
        value = getattr(PLACES[place], name)
        if not name.startswith("_") and inspect.isroutine(value):
            yield name, value


def definition(function: Callable) -> ast.FunctionDef:
    """What `inspect.getsource` shows, parsed; OSError if it finds none."""
    return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]


def lacks_source(function: Callable) -> str:
    """What is wrong with the source of a function; "" if it is the definition of that name, with a body."""
    try:
        node = definition(function)
    except (OSError, SyntaxError) as error:
        return f"has no source: {error}"
    if not isinstance(node, ast.FunctionDef) or "<locals>" in inspect.unwrap(function).__qualname__:
        return f"is made within another function: {ast.unparse(node)[:80]}"
    if node.name.strip("_") != function.__name__.strip("_"):
        return f"has the source of {node.name}"
    is_empty = len(node.body) == 1 and isinstance(node.body[0], ast.Expr) and ast.get_docstring(node) is not None
    return "has a docstring for a body" if is_empty else ""


@pytest.mark.parametrize("place", PLACES)
def test_the_source_of_a_function_is_the_text_that_computes_it(place):
    found = {name: lacks_source(function) for name, function in functions(place)}
    assert len(found) > 20 and {name: reason for name, reason in found.items() if reason} == {}


def test_the_source_of_pointwise_operators_is_the_formula():
    formulas = [f for f in OPERATORS.values() if inspect.unwrap(f) is f.op.formula.function]
    assert len(formulas) > 100 and {f.op.formula.name for f in OPERATORS.values() if f not in formulas} == {
        "add", "sub", "div", "pow", "round", "heaviside", "nan_to_num", "clamp", "where", "prelu", "zeta",
    }  # fmt: skip


def names_of(function: Callable) -> list[str]:
    """The names by which parameters can be given, as the signature says: `Options` are several."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    options = [p.annotation for p in parameters if p.kind is p.VAR_KEYWORD]
    assert options in ([], ["Unpack[Options]"]), "a signature names all that is taken"
    return names + [name for name in Options.__annotations__ if options]


def called_by_name(function: Callable) -> str:
    """What Python says where all parameters of the signature are given by name; "" if it does not refuse any."""
    try:
        function(**{name: object() for name in names_of(function)})
    except Exception as error:
        wrong = "signature names|unexpected keyword|required positional|multiple values for|positional arguments but"
        return str(error) if re.search(wrong, str(error)) else ""
    return ""


@pytest.mark.parametrize("place", PLACES)
def test_the_parameters_of_a_signature_can_be_given_by_name(place):
    decorated = {name: f for name, f in functions(place) if hasattr(f, "__wrapped__") or hasattr(f, "__signature__")}
    refused = {name: called_by_name(function) for name, function in decorated.items()}
    assert decorated and {name: error for name, error in refused.items() if error} == {}


@pytest.mark.parametrize("place", PLACES)
def test_a_signature_names_all_that_is_taken(place):
    assert {name: names_of(function) for name, function in functions(place)}


@pytest.mark.few(20)
@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_arguments_mean_by_name_what_they_mean_by_position(row):
    sample = row.samples()[0]
    args, kwargs = as_tensors(sample.args), {name: as_tensors(x) for name, x in sample.kwargs.items()}
    signature = inspect.signature(row.function)
    by_name = signature.bind(*args, **kwargs).arguments
    for name in [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]:
        by_name[name] = by_name[name][0] if isinstance(by_name[name][0], tuple) else by_name[name]
    results = row.function(*args, **kwargs), row.function(**by_name)
    for by_position, other in zip(*map(flat, results), strict=True):
        np.testing.assert_array_equal(by_position, other, strict=True)


def flat(result: Any) -> list[np.ndarray]:
    """The arrays of a result, which is a tensor or several."""
    return [x for part in result for x in flat(part)] if isinstance(result, list | tuple) else [np.asarray(result)]


def as_tensors(x: Any) -> Any:
    """Arrays as tensors, those in lists and tuples too."""
    if isinstance(x, list | tuple):
        return type(x)(map(as_tensors, x))
    return flow.tensor(x) if isinstance(x, np.ndarray) else x
