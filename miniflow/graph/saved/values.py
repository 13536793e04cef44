"""What a saved graph consists of as JSON values and back; nothing that is read is believed.

Numbers, texts, booleans, null and lists stand for themselves; "%5" is the value number 5 of those that keep their
identity, such as slots. Everything else is an object with a single tag, whose content is another value, or an object
with the parts of the value by name; those that are as they are by default are left out:

    {"tuple": [...]}   {"dict": {...}}   {"pairs": [[key, value], ...]}   {"float": "inf"}   {"text": " %5"}
    {"number": [{"dtype": "float32"}, 0.5]}   {"slice": [start, stop, step]}   {"ellipsis": null}   {"op": "Slice"}
    {"dtype": "float32"}   {"device": "cuda:0"}   {"scalar": "draw.0.seed"}   {"placement": ["cpu", [0, 1]]}
    {"sbp": "S(0)"}   {"slot": {"shape": [8, 3], "dtype": "float32", "device": "cpu"}}

`Form` says how the values of one class are written and made again. An error names its place in the document, as in
`program.instructions[0].op`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import EllipsisType
from typing import Any, NoReturn

import numpy as np

from miniflow.backends.memory import load_kernels
from miniflow.device import device
from miniflow.dtype import ALL
from miniflow.errors import DeviceError
from miniflow.graph.ir import Scalar
from miniflow.graph.saved.attributes import Kind, known_ops, require
from miniflow.parallel.partition import GlobalMeta, check_axes
from miniflow.parallel.placement import placement
from miniflow.sbp import B, P, S, Sbp, as_nd_sbp
from miniflow.serialization.states import BY_NAME as DTYPES
from miniflow.serialization.states import FLOATS

NAMES = {t.numpy: t.name for t in ALL}
SPLITS = {"B": B, "P": P, **{f"S({dim})": S(dim) for dim in range(32)}}
MAX_TEXT = 10_000  # characters
FAILURES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError,
            MemoryError)  # fmt: skip


class Refused(Exception):
    """Why a file cannot hold a value, or why what it holds is not accepted.

    Attributes:
        at: the place in the document.
    """

    at = ""

    def __str__(self) -> str:
        return f"{self.at.removeprefix('.') or 'document'}: {super().__str__()}"


def refuse(got: Any, expected: str) -> NoReturn:
    """Raise Refused."""
    raise Refused(f"got {got!r:.300}; expected {expected}")


def each(function: Callable[[Any], Any], parts: list | dict[str, Any]) -> Any:
    """A list or dict of what the function returns for each part; an error is Refused at the place of that part."""
    results: list[Any] = []
    try:
        for part in parts.values() if type(parts) is dict else parts:
            results.append(function(part))
    except (Refused, *FAILURES) as error:
        refused = error if isinstance(error, Refused) else Refused(f"{type(error).__name__}: {error!s:.300}")
        place = f".{list(parts)[len(results)]:.80}" if type(parts) is dict else f"[{len(results)}]"
        refused.at = place + refused.at
        raise refused from error.__cause__ or error
    return dict(zip(parts, results, strict=True)) if type(parts) is dict else results


def is_bearable(text: str) -> bool:
    """Whether a text is short enough, and without control characters: scopes and locations get into generated code."""
    return len(text) <= MAX_TEXT and text.isprintable()


def one_of(names: Mapping[str, Any]) -> Callable[[str], Any]:
    """The function from a name to what bears it."""

    def named(name: Any) -> Any:
        if type(name) is not str or name not in names:
            refuse(name, f"one of {', '.join(list(names)[:8])}{' ...' if len(names) > 8 else ''}")
        return names[name]

    return named


class Form:
    """How the values of a class are written and made again.

    Args:
        type: the class, or several.
        parts: what is written of a value.
        make: the value that is made of its parts; it raises one of FAILURES, or Refused, if they make no sense.
        fields: of a class with named parts, what each may be, in the order in which they are read.
        is_shared: whether a value is written once, and then stands for itself.
    """

    def __init__(
        self,
        type: type | tuple[type, ...],
        parts: Callable[[Any], Any],
        make: Callable[..., Any],
        fields: Mapping[str, Kind] | None = None,
        is_shared: bool = False,
    ):
        self.type, self.parts, self.make, self.fields, self.is_shared = type, parts, make, fields, is_shared
        parameters = inspect.signature(type).parameters if fields and not isinstance(type, tuple) else {}
        defaults = {
            name: p.default for name, p in parameters.items() if isinstance(p.default, str | bool | tuple | None)
        }
        self.defaults = {name: default for name, default in defaults.items() if name in fields}
        self.required = (fields or {}).keys() - self.defaults.keys()

    @classmethod
    def of(cls, type: type, make: Callable[..., Any] | None = None, **fields: Kind) -> Form:
        """The form of a class whose attributes are its parts."""
        return cls(type, lambda x: {name: getattr(x, name) for name in fields}, make or type, fields)

    def read_named(self, read: Callable[[Any], Any], content: Any) -> dict[str, Any]:
        """The named parts of a value."""
        if type(content) is not dict or not self.required <= content.keys() <= self.fields.keys():
            got = f"the keys {sorted(content)[:12]}" if type(content) is dict else type(content).__name__
            refuse(got, f"an object with the keys {', '.join(self.fields)}")
        parts = each(read, {name: content[name] for name in self.fields if name in content})
        for name, part in parts.items():
            if not self.fields[name](part):
                each(lambda part: refuse(part, "another value"), {name: part})
        return self.defaults | parts


class Values:
    """Writes values and reads them again.

    Args:
        map_location: the device that stands for all devices of the file; None for those themselves.

    Attributes:
        forms: by their tags.
        scalars: those that attributes may contain, by name.
    """

    def __init__(self, map_location: Any = None):
        self.target = None if map_location is None else device(map_location)
        self.device = cache(self.read_device)
        self.scalars: dict[str, Scalar] = {}
        self.shared: dict[str, Any] = {}  # values that keep their identity, of those that were read: "%0", "%1" ...
        self.written: dict[Hashable, str] = {}  # and the names of those that were written
        self.tags: dict[type, str | None] = {}  # by the classes of values that were written
        self.forms = {
            "tuple": Form(tuple, list, tuple),
            "pairs": Form(dict, lambda x: [list(item) for item in x.items()], dict),
            "text": Form(str, lambda x: f" {x}", lambda x: x[1:]),  # that begins with %
            "number": Form(np.generic, lambda x: [x.dtype, x.item()], lambda parts: parts[0].type(parts[1])),
            "float": Form(float, repr, one_of(FLOATS)),  # those that JSON has not
            "slice": Form(slice, lambda x: [x.start, x.stop, x.step], lambda parts: slice(*parts)),
            "ellipsis": Form(EllipsisType, lambda _: None, lambda _: ...),
            "dtype": Form(np.dtype, NAMES.__getitem__, one_of(DTYPES)),
            "device": Form(device, str, self.device),
            "op": Form(type, name_of, one_of(known_ops())),
            "scalar": Form(Scalar, lambda x: x.name, one_of(self.scalars)),
            "placement": Form(placement, lambda x: [x.type, x.ranks.tolist()], lambda parts: placement(*parts)),
            "sbp": Form(Sbp, str, one_of(SPLITS)),
        }

    def write(self, value: Any) -> Any:
        """The JSON value.

        Raises:
            Refused: for a value that has no form.
        """
        kind = type(value)
        if value is None or kind in (bool, int) or kind is float and math.isfinite(value):
            return value
        if kind is str and value[:1] != "%":
            return value
        if kind is list:
            return each(self.write, value)
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": each(self.write, value)}
        if kind not in self.tags:
            self.tags[kind] = next((tag for tag, form in self.forms.items() if issubclass(kind, form.type)), None)
        tag = self.tags[kind]
        if tag is None:
            raise Refused(
                f"got a {kind.__module__}.{kind.__qualname__}; expected tensors, numbers, strings and None in lists, "
                "tuples, dicts and dataclasses"
            )
        form = self.forms[tag]
        if form.is_shared and value in self.written:
            return self.written[value]
        parts = form.parts(value)
        if form.fields is not None:
            parts = {name: x for name, x in parts.items() if name not in form.defaults or x != form.defaults[name]}
        content = {tag: self.write(parts) if form.fields is None else each(self.write, parts)}
        if form.is_shared:
            self.written[value] = f"%{len(self.written)}"
        return content

    def read(self, value: Any) -> Any:
        """What a JSON value stands for.

        Raises:
            Refused: for anything that `write` would not have written.
        """
        kind = type(value)
        if kind is str and is_bearable(value):
            return value if value[:1] != "%" else one_of(self.shared)(value)
        if kind is int and -(2**63) <= value < 2**64 or kind in (bool, float) or value is None:
            return value
        if kind is list:
            return each(self.read, value)
        if kind is not dict or len(value) != 1:
            refuse(value, f"a number of 64 bits, at most {MAX_TEXT} printable characters, or an object with one tag")
        ((tag, content),) = value.items()
        if tag == "dict" and type(content) is dict and all(map(is_bearable, content)):
            return each(self.read, content)
        form = one_of(self.forms)(tag)
        if form.fields is None:
            result = form.make(self.read(content))
        else:
            result = form.make(**form.read_named(self.read, content))
        if form.is_shared:
            self.shared[f"%{len(self.shared)}"] = result
        return result

    def read_device(self, name: str) -> device:
        """A device of this machine."""
        try:
            where = device(name) if self.target is None else self.target
        except DeviceError as error:
            raise DeviceError(f"{error}; or give map_location='cpu'") from error
        load_kernels(where)
        return where


def name_of(op: type) -> str:
    """The name of an op, which must be one of this package.

    Raises:
        Refused: for another, of which a program that loads the graph would know nothing.
    """
    if known_ops().get(op.__name__) is not op:
        raise Refused(
            f"got {op.__module__}.{op.__qualname__}, which is not one of miniflow's own operations; expected those "
            "only, since the program that loads the graph may not have its code"
        )
    return op.__name__


def layout_of(where: placement, sbp: Any, shape: tuple[int, ...], dtype: np.dtype) -> GlobalMeta:
    """The layout of a global array of this shape.

    Raises:
        ArgumentError, ArgumentTypeError: if it has none such.
    """
    require(isinstance(where, placement), f"{where} in place of a placement")
    sbp = as_nd_sbp(sbp, len(where.shape), "load")
    check_axes(sbp, len(shape))
    return GlobalMeta.of(where, sbp, shape, dtype)
