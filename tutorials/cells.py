"""The text of a lesson's cells in the notebook, and how a cell becomes part of the student's file.

A function of the cell takes the place of the function of that name; a class gives its methods to the class of that
name; what the file does not have yet, such as an import, is put before the cell's first definition that it has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TODO = "raise Todo("


@dataclass(frozen=True)
class Part:
    """A statement of a module or of a class, with the comments that belong to it.

    Attributes:
        path: its name, after that of its class; other statements are named by their text.
        first, last: its lines, from 1.
        node: what was parsed.
    """

    path: tuple[str, ...]
    first: int
    last: int
    node: ast.stmt

    def text(self, lines: Sequence[str]) -> str:
        """Its lines."""
        return "\n".join(lines[self.first - 1 : self.last])


def parts(source: str) -> list[Part]:
    """The statements of a module, but for its docstring."""
    return list(parts_of(ast.parse(source).body, source.splitlines(), ()))


def members(part: Part, lines: Sequence[str]) -> list[Part]:
    """The statements of a class, but for its docstring."""
    return list(parts_of(part.node.body, lines, part.path))


def parts_of(body: list[ast.stmt], lines: Sequence[str], within: tuple[str, ...]) -> Iterator[Part]:
    """The statements of a body; a comment belongs to the statement below, a deeper one to that above."""
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        while first > 1 and lines[first - 2].startswith(" " * node.col_offset + "#"):
            first -= 1
        last = node.end_lineno
        while last < len(lines) and lines[last].lstrip().startswith("#") and indent(lines[last]) > node.col_offset:
            last += 1
        yield Part((*within, name_of(node)), first, last, node)


def indent(line: str) -> int:
    """The spaces before a line."""
    return len(line) - len(line.lstrip())


def name_of(node: ast.stmt) -> str:
    """The name that a statement defines, or its text."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ast.unparse(node)


def cell_of(stub: str, task: str) -> str:
    """What a student writes for a task: functions as the stub has them, of classes the methods that are asked for."""
    lines, found = stub.splitlines(), []
    for part in parts(stub):
        if f'{TODO}"lesson {task}:' not in part.text(lines):
            continue
        if isinstance(part.node, ast.ClassDef):
            inside = members(part, lines)
            docstring = isinstance(part.node.body[0], ast.Expr)
            header = lines[part.first - 1 : part.node.body[0].end_lineno if docstring else inside[0].first - 1]
            own = [one.text(lines) for one in inside if f'{TODO}"lesson {task}:' in one.text(lines)]
            found.append("\n\n".join(["\n".join(header).rstrip(), *own]))
        else:
            found.append(part.text(lines))
    return "\n\n\n".join(found)


def given(stub: str) -> str:
    """What of the stub students do not write: whole definitions and constants, without the imports of `Todo`."""
    lines = stub.splitlines()
    kept = [p for p in parts(stub) if TODO not in p.text(lines) and not p.text(lines).startswith("from tutorials")]
    texts = [(p, p.text(lines)) for p in kept]
    return "".join(("\n\n" if isinstance(p.node, ast.FunctionDef | ast.ClassDef) else "") + t + "\n" for p, t in texts)


def put(source: str, cell: str) -> str:
    """The student's file with a cell in it; what the cell leaves open, that raises `Todo`, the file keeps.

    Raises:
        SyntaxError: if one of them cannot be parsed.
    """
    lines, known = cell.splitlines(), {part.path: type(part.node) for part in parts(source)}
    leaves = []
    for part in parts(cell):
        both = isinstance(part.node, ast.ClassDef) and known.get(part.path) is ast.ClassDef
        leaves += members(part, lines) if both else [part]
    anchor = next((leaf.path[:1] for leaf in leaves if leaf.path[:1] in known), None)
    for leaf in leaves:
        if TODO not in leaf.text(lines):
            source = with_part(source, leaf.path, leaf.text(lines), anchor)
    ast.parse(source)
    return source


def with_part(source: str, path: tuple[str, ...], text: str, anchor: tuple[str, ...] | None) -> str:
    """A file with one statement replaced, or added: to the end of its class, or before `anchor`."""
    lines = source.splitlines()
    top = {part.path: part for part in parts(source)}
    inside = {part.path: part for part in members(top[path[:1]], lines)} if len(path) > 1 else top
    if old := inside.get(path):
        lines[old.first - 1 : old.last] = text.splitlines()
    elif len(path) > 1:
        end = top[path[:1]].last
        lines[end:end] = ["", *text.splitlines()]
    else:
        at = top[anchor].first - 1 if anchor else len(lines)
        lines[at:at] = [*text.splitlines(), "", ""]
    return "\n".join(lines) + "\n"
