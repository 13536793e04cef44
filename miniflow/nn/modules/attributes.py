"""Attributes of a module: parameters, buffers and submodules are stored in tables of their own."""

from __future__ import annotations

from typing import Any, NoReturn

from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.nn.parameter import Parameter
from miniflow.tape import modes
from miniflow.tensor import Tensor

KINDS = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}


class AttributeTables:
    """The part of `Module` that knows parameters, buffers and submodules by name."""

    def __init__(self):
        self.__dict__.update(
            _parameters={},
            _buffers={},
            _modules={},
            _not_saved=set(),  # names of buffers that state_dict leaves out
        )

    def _get_name(self) -> str:
        return type(self).__name__

    def __getattr__(self, name: str) -> Any:
        """Called when ordinary lookup fails."""
        own = self.__dict__
        for table in KINDS:
            if table in own and name in own[table]:
                return own[table][name]
        self._raise_unknown(name)

    def _raise_unknown(self, name: str) -> NoReturn:
        message = f"{self._get_name()} has no attribute {name!r}"
        if "_parameters" not in self.__dict__:
            message += f": call super().__init__() first in {self._get_name()}.__init__"
        elif isinstance(getattr(type(self), name, None), property):
            message = f"the property {name!r} of {self._get_name()} failed with an AttributeError of its own"
        raise AttributeError(message)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if not modes.plain and modes.tracer is not None:
            modes.tracer.kept.assigning(self, name)
        table = "_parameters" if isinstance(value, Parameter) else "_modules"
        if isinstance(value, Parameter | AttributeTables):
            for other in (own, *(own.get(other, {}) for other in KINDS if other != table)):
                other.pop(name, None)  # in its own table it keeps its position
            self._add(table, name, value)
            return
        for table in KINDS:
            if name in own.get(table, ()):
                self._store(table, name, value)
                return
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for table in KINDS:
            if name in self.__dict__[table]:
                del self.__dict__[table][name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = [name for table in KINDS for name in self.__dict__.get(table, ())]
        return sorted({*super().__dir__(), *names})

    def _check_name(self, table: str, name: str) -> None:
        kind = KINDS[table]
        if "_parameters" not in self.__dict__:
            raise AttributeError(
                f"cannot assign {kind} {name!r} before Module.__init__ has run: "
                f"call super().__init__() first in {self._get_name()}.__init__"
            )
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{self._get_name()}: got {name!r} as the name of a {kind}; expected a str")
        if name == "" or "." in name:
            raise ArgumentError(f"{self._get_name()}: got {name!r} as the name of a {kind}; expected one without dots")
        own = self.__dict__
        others = [own, *(own[other] for other in KINDS if other != table)]
        if name not in own[table] and (hasattr(type(self), name) or any(name in names for names in others)):
            raise ArgumentError(f"{self._get_name()}: the attribute {name!r} exists already; choose another name")

    def _add(self, table: str, name: str, value: Any) -> None:
        self._check_name(table, name)
        self._store(table, name, value)

    def _store(self, table: str, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, HOLDS[table]):
            kind, wanted = KINDS[table], "Module" if table == "_modules" else HOLDS[table].__name__
            remedy = f"or `del` the {kind} first"
            if table == "_modules" and isinstance(value, type):
                remedy = f"such as {value.__name__}(...), an object of the class"
            elif table == "_modules" and isinstance(value, list | tuple):
                remedy = "or each of them by itself: *layers"
            elif table == "_modules" and callable(value):
                remedy = "such as the layer that calls the function"
            raise ArgumentTypeError(
                f"cannot assign a {type(value).__name__} as {kind} {name!r} of {self._get_name()}; "
                f"expected a {wanted} or None, {remedy}"
            )
        self.__dict__[table][name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None to say that there is none of this name.

        Raises:
            ArgumentTypeError: if `param` is not a Parameter.
            ArgumentError: if the name cannot be used.
        """
        self._add("_parameters", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the module but not a parameter, such as a running mean.

        Args:
            name: the attribute.
            tensor: the values, or None for an absent buffer.
            persistent: whether it is part of the `state_dict`.

        Raises:
            ArgumentTypeError: if `tensor` is not a Tensor.
            ArgumentError: if the name cannot be used.
        """
        self._add("_buffers", name, tensor)
        (self._not_saved.discard if persistent else self._not_saved.add)(name)

    def add_module(self, name: str, module: AttributeTables | None) -> None:
        """Add a submodule under a name that need not be an identifier.

        Raises:
            ArgumentTypeError: if `module` is not a Module.
            ArgumentError: if the name cannot be used.
        """
        self._add("_modules", name, module)

    register_module = add_module


HOLDS = {"_parameters": Parameter, "_buffers": Tensor, "_modules": AttributeTables}
