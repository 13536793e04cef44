"""Writes the pages of the functions and layers: names for Sphinx's autodoc, which reads the docstrings.

A function has one entry, with all of its names, on the page of the file that defines it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from typing import Any

import miniflow as flow

SPACES = {
    "miniflow": flow,
    "miniflow.nn.functional": flow.nn.functional,
    "miniflow.linalg": flow.linalg,
    "miniflow.special": flow.special,
    "miniflow.Tensor": flow.Tensor,
    "miniflow.nn": flow.nn,
}
NAMES: dict[Any, list[str]] = defaultdict(list)  # of a function, class or property
PAGES: dict[str, list[str]] = defaultdict(list)  # page -> the names that have their entries there


def page_of(space: str, value: Any) -> str:
    """The page of what a namespace shows; "" for what the pages in docs/reference list."""
    folder, _, file = getattr(value, "__module__", "").rpartition(".")
    if space == "miniflow.Tensor" or value is flow.Tensor:
        return "tensor"
    if folder == "miniflow.nn.modules" and value is not flow.nn.Module:
        return f"layers/{file}"
    return f"functions/{file}" if folder == "miniflow.ops" or file in ("linalg", "special") else ""


def collect() -> None:
    """Fill `NAMES` and `PAGES`; `relu_` is another name of `relu`."""
    for space, owner in SPACES.items():
        names = getattr(owner, "__all__", dir(owner))
        found = {name: inspect.getattr_static(owner, name, None) for name in names if name[0] != "_"}
        for name, value in found.items():
            if inspect.isroutine(value) or isinstance(value, type | property):
                known = NAMES[found.get(name[:-1], value) if name[-1] == "_" else value]
                is_new = not any(page_of(other.rpartition(".")[0], value) for other in known)
                known.append(f"{space}.{name}")
                if is_new and page_of(space, value):
                    PAGES[page_of(space, value)].append(known[-1])


def find(name: str) -> Any:
    """What has this name."""
    space, _, last = name.rpartition(".")
    return inspect.getattr_static(SPACES[space], last)


def entry(name: str) -> str:
    """The directive that documents a name."""
    kind = "property" if isinstance(find(name), property) else "method" if ".Tensor." in name else "function"
    if inspect.isclass(find(name)):
        return f".. autoclass:: {name}" + "\n   :members:" * (find(name) is flow.Generator)
    return f".. auto{kind}:: {name}"


def escaped(text: str) -> str:
    """A docstring as reStructuredText: an indented paragraph is a formula, and only backticks are markup."""
    text = re.sub(r"(?m)^(?!>>>)(\S.*)\n\n(?=    \S)", r"\1\n\n::\n\n", text)
    code = r"(^ *>>> .*?(?=\n *\n|\Z)|^::\n\n(?:    [^\n]*\n?|\n)*)|`+([^`]+)`+|([*|\\]|_(?!\w))"
    return re.sub(code, lambda m: m[1] or (f"``{m[2]}``" if m[2] else f"\\{m[3]}"), text, flags=re.M | re.S)


def summary(name: str) -> str:
    """The first sentence of what is said of a name."""
    text = re.split(r"\n\n|\n(?=>>>)", inspect.getdoc(find(name)))[0].replace("\n", " ")
    return re.split(r"(?<=[^ .][.;:]) (?![^(]*\))", text)[0].rstrip(".;:")  # not between parentheses


def table(space: str, entries: list[str]) -> str:
    """Those of these names that a namespace has, with a link to the entry of each and the first sentence there."""
    rows = {}
    for first in entries:
        for above, _, last in [name.rpartition(".") for name in NAMES[find(first)]]:
            if above == space and (last[-1] != "_" or first.endswith(f".{last}")):
                rows[last] = f"   * - :py:obj:`{last} <{first}>`\n     - {escaped(summary(first))}"
    head = [".. list-table::", "   :widths: 35 65\n"]
    return "\n".join([*head, *(rows[name] for name in sorted(rows))]) if rows else ""


def section_of(path: str) -> str:
    """The title of a page: that of the file, as words."""
    return path.rpartition("/")[2].replace("_", " ").capitalize()


def overview(space: str) -> str:
    """The tables of a namespace, one for each page, under its title."""
    parts = {section_of(path): table(space, entries) for path, entries in PAGES.items() if path != "tensor"}
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n\n{parts[title]}" for title in sorted(parts) if parts[title])


def page(title: str, *parts: str) -> str:
    """A page in reStructuredText."""
    return "\n\n".join([f"{title}\n{'=' * len(title)}", *parts]) + "\n"


def pages() -> dict[str, str]:
    """All pages by their paths."""
    collect()
    found = {"tensor": page("Tensor", *map(entry, PAGES["tensor"]), table("miniflow.Tensor", sum(PAGES.values(), [])))}
    for path, names in [item for item in PAGES.items() if item[0] != "tensor"]:
        module = sys.modules[find(names[0]).__module__]
        about = escaped(inspect.getdoc(module).partition("\n\n")[0])
        file = f"File: ``{module.__name__.replace('.', '/')}.py``"
        found[path] = page(section_of(path), about, file, *map(entry, names))
    contents = ".. toctree::\n   :glob:\n   :hidden:\n\n   {}/*"
    found["functions"] = page("Tensor functions", contents.format("functions"), overview("miniflow"))
    found["layers"] = page("nn: layers", contents.format("layers"), overview("miniflow.nn"))
    found["functional"] = page("nn.functional", overview("miniflow.nn.functional"))
    return found
