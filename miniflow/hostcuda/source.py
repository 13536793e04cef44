"""Reading a kernel: its syntax tree with true line numbers, and what its free names stand for."""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from tokenize import TokenError
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from miniflow.hostcuda.errors import UnsupportedKernelError
from miniflow.hostcuda.intrinsic import Intrinsic

UNKNOWN = object()


@dataclass
class Source:
    """A function as written.

    Attributes:
        name: of the function.
        filename: where it stands.
        tree: the definition, without decorators; line numbers are those of the file.
        namespace: the value of every free name, from the closure, the globals or the builtins.
    """

    name: str
    filename: str
    tree: ast.FunctionDef
    namespace: dict[str, Any]


def read(function: Callable) -> Source:
    """The source of a plain Python function.

    Raises:
        UnsupportedKernelError: if there is none.
    """
    filename = function.__code__.co_filename
    lines, first = source_lines(function)
    definition = definition_in(lines, first, function)
    ast.increment_lineno(definition, max(first, 1) - 1)
    return Source(definition.name, filename, definition, free_names(function))


def definition_in(lines: list[str], first: int, function: Callable) -> ast.FunctionDef:
    """The definition of a function, without decorators, in some lines."""
    filename = function.__code__.co_filename
    is_lambda = function.__name__ == "<lambda>"
    tree = parse_lines(textwrap.dedent("".join(lines)))
    if tree is None and is_lambda:
        raise UnsupportedKernelError(f"{filename}:{first}: this lambda cannot be read: give it a line of its own")
    (definition,) = tree.body if tree is not None and len(tree.body) == 1 else (None,)
    if is_lambda:
        definition = lambda_as_definition(tree, function)
    if isinstance(definition, ast.AsyncFunctionDef):
        raise UnsupportedKernelError(f"{filename}:{first}: a kernel is a function or a lambda, not async def")
    if isinstance(definition, ast.FunctionDef):
        definition.decorator_list = []
    if not isinstance(definition, ast.FunctionDef) or not matches(definition, function):
        raise UnsupportedKernelError(
            f"{filename}:{first}: what stands there is not {function.__name__} as it was imported: "
            "the file has changed since; import it again"
        )
    return definition


def parse_lines(text: str) -> ast.Module | None:
    """The tree of some lines; a lambda may stand in a line that is no statement by itself, as within a call."""
    for attempt in (text, f"({text.strip()})", f"({text.strip().rstrip(',')})", text.strip().removeprefix("return ")):
        try:
            return ast.parse(attempt)
        except SyntaxError:
            continue
    return None


def lambda_as_definition(tree: ast.Module, function: Callable) -> ast.FunctionDef | None:
    """A lambda that stands in some statements, as a definition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            body = ast.copy_location(ast.Return(node.body), node.body)
            definition = ast.FunctionDef("function", node.args, [body], [])
            definition = ast.fix_missing_locations(ast.copy_location(definition, node))
            if matches(definition, function):
                return definition
    return None


def matches(definition: ast.FunctionDef, function: Callable) -> bool:
    """Whether a definition has the name, parameters, variables and constants of a function."""
    code = function.__code__
    compiled_again = code_of(definition, code)
    docstrings = {repr(function.__doc__), repr(ast.get_docstring(definition, clean=False))}  # lines lost their indents

    def names(c: CodeType) -> set[str]:
        inner = [names(k) for k in c.co_consts if isinstance(k, CodeType)]
        return {*c.co_names, *c.co_freevars}.union(*inner).difference(c.co_cellvars)

    def traits(c: CodeType) -> tuple:
        constants = set(constants_of(c)) - docstrings
        name = "" if "<lambda>" in (c.co_name, code.co_name) else c.co_name
        return name, c.co_argcount, c.co_varnames, names(c), c.co_cellvars, constants

    return traits(compiled_again) == traits(code)


def code_of(definition: ast.FunctionDef, code: CodeType) -> CodeType:
    """The code of a definition that stands where a function with some code does: in one with its free variables."""
    frame = ast.parse(f"def outer({', '.join(code.co_freevars)}): global {definition.name}")
    if definition.name in code.co_freevars:
        frame.body[0].body = []
    frame.body[0].body.append(definition)
    flags = code.co_flags & __future__.annotations.compiler_flag
    module = compile(ast.fix_missing_locations(frame), "", "exec", flags, dont_inherit=True)
    return nested_codes(module)[2]  # in `outer`, which is in the module


def nested_codes(code: CodeType) -> list[CodeType]:
    """A function's code and that of the functions in it."""
    return [code, *(inner for c in code.co_consts if isinstance(c, CodeType) for inner in nested_codes(c))]


def source_lines(function: Callable) -> tuple[list[str], int]:
    """The lines of a function and the number of the first."""
    try:
        return inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        code = function.__code__
        if lines := linecache.getlines(code.co_filename):  # doctest answers this question only
            return inspect.getblock(lines[code.co_firstlineno - 1 :]), code.co_firstlineno
        if lines_at_prompt := typed_at_prompt(function):
            return lines_at_prompt
        raise UnsupportedKernelError(
            f"{function.__name__}: its source cannot be read ({error}); define kernels in a file that is run or "
            "imported, in a notebook cell, or at the prompt of a terminal"
        ) from None


def typed_at_prompt(function: Callable) -> tuple[list[str], int] | None:
    """The lines of a function typed at Python's prompt: before version 3.13, only the history of readline has it."""
    readline, code = sys.modules.get("readline"), function.__code__
    count = readline.get_current_history_length() if readline else 0
    history = [f"{readline.get_history_item(i + 1)}\n" for i in range(count)]
    sign = "lambda" if function.__name__ == "<lambda>" else f"def {function.__name__}("
    for start in reversed([i for i, line in enumerate(history) if sign in line]):
        with suppress(UnsupportedKernelError, SyntaxError, TokenError):
            lines = inspect.getblock(history[start:])
            compiled_again = code_of(definition_in(lines, 1, function), code)
            if [behaviour_of(c) for c in nested_codes(compiled_again)] == [behaviour_of(c) for c in nested_codes(code)]:
                return lines, 1 + last_line(code) - last_line(compiled_again)
    return None


def constants_of(code: CodeType) -> list[str]:
    """What a function's constants print, without functions in it and, before Python 3.11, their qualified names."""
    inner = tuple(f"<locals>.{c.co_name}" for c in code.co_consts if isinstance(c, CodeType))
    constants = [c for c in code.co_consts if not isinstance(c, CodeType)]
    return [repr(c) for c in constants if not (isinstance(c, str) and c.endswith(inner))]


def behaviour_of(code: CodeType) -> tuple:
    """All of a function's code but where it stands."""
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants_of(code)


def last_line(code: CodeType) -> int:
    """The number of the last line that is run."""
    return max(line for *_, line in code.co_lines() if line)


@contextmanager
def compiling(function: Callable) -> Iterator[None]:
    """Errors that neither this compiler nor numba expects are reported for the kernel, not for their code.

    Raises:
        UnsupportedKernelError: in place of any error that is not of this package, nor of the system.
    """
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if type(error).__module__.startswith("miniflow."):
            raise
        code, remedy = function.__code__, "write it with simpler statements"
        if isinstance(error, RecursionError):
            remedy = "split its long or deeply nested expressions and blocks"
        raise UnsupportedKernelError(
            f"{code.co_filename}:{code.co_firstlineno}: {function.__name__}: cannot be compiled "
            f"({type(error).__name__}: {error}): {remedy}"
        ) from error


def free_names(function: Callable) -> dict[str, Any]:
    """The values of the names that a function does not define itself."""
    values = dict(vars(builtins))
    values.update(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet, as the name of a function inside its own body
            values.pop(name, None)
    return values


def resolve(node: ast.AST, namespace: dict[str, Any], local: frozenset[str] | set[str] = frozenset()) -> Any:
    """The object that a name or dotted name stands for, or UNKNOWN if it depends on the kernel's own variables."""
    if isinstance(node, ast.Name):
        return UNKNOWN if node.id in local else namespace.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value, namespace, local)
        if isinstance(owner, ModuleType | SimpleNamespace | Intrinsic | type):
            return getattr(owner, node.attr, UNKNOWN)
    return UNKNOWN


def is_own(function: Callable) -> bool:
    """Whether a function is one of this package's."""
    return (function.__module__ or "").startswith("miniflow.")
