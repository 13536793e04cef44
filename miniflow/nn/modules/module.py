"""Module: a tree of parameters, buffers and submodules, and the function that they compute."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from miniflow.device import device as Device
from miniflow.dispatch.tape import modes, note_change
from miniflow.dtype import as_dtype, bfloat16, float16, float32, float64
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, DTypeError, PickleError
from miniflow.nn.modules import hooks, state
from miniflow.nn.modules.attributes import KINDS, check_name, raise_unknown, wrong_kind
from miniflow.nn.parameter import Parameter, convert_in_place
from miniflow.ops.promotion import device_and_dtype
from miniflow.tensor import HookHandle, Tensor

Self = TypeVar("Self", bound="Module")


class Table(dict):
    """The parameters, buffers or submodules of a module by name; graphs that were recorded are told of changes."""


def _noted(method: Callable) -> Callable:
    @functools.wraps(method)
    def changed(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        finally:
            note_change()

    return changed


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(Table, _name, _noted(getattr(dict, _name)))


class Module:
    """Base of all layers and networks: assign parameters and other modules to attributes, and define `forward`.

    Attributes:
        training: whether layers such as dropout and batch normalisation act as in training; set by `train` and `eval`.

    >>> import miniflow as flow
    >>> class Scale(flow.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = flow.nn.Parameter(flow.tensor(2.0))
    ...
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> Scale()(flow.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]

    Source: `torch.nn.Module`.
    """

    training: bool
    _other_names: ClassVar[dict[str, str]] = {}  # for names in the state, those that other functions give them

    def __init__(self):
        self.__dict__.update(
            _parameters=Table(), _buffers=Table(), _modules=Table(),
            _derived_tensors={},  # name -> the function of the module that makes a tensor, whenever it is read
            _non_persistent_buffers_set=set(),  # names of buffers that state_dict leaves out
            training=True, _forward_pre_hooks=[], _forward_hooks=[], _backward_pre_hooks=[], _backward_hooks=[],
            _load_state_dict_pre_hooks=[],
        )  # fmt: skip

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass overrides it."""
        raise NotImplementedError(f"{self._get_name()} has no forward: define forward(self, ...) in the class")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if modes.tracer is not None:
                with modes.tracer.scope(self):
                    return modes.tracer.run(self, args, kwargs)
            if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
                return hooks.call_with_hooks(self, args, kwargs)
            return self.forward(*args, **kwargs)
        except AttributeError as error:
            self._explain_non_tensor((*args, *kwargs.values()), error)
            raise

    def _explain_non_tensor(self, values: tuple, error: AttributeError) -> None:
        """Explain an error that comes from an argument which is not a tensor."""
        for value in values:
            if value is error.obj and hasattr(Tensor, error.name) and not isinstance(value, Tensor):
                type_name = type(value).__name__
                message = f"{self._get_name()}: got a {type_name}; expected a Tensor: wrap the values with flow.tensor"
                raise ArgumentTypeError(message) from error

    def _get_name(self) -> str:
        return type(self).__name__

    # attributes: parameters, buffers and submodules are stored in tables of their own

    def __getattr__(self, name: str) -> Any:
        """Called when ordinary lookup fails."""
        attributes = self.__dict__
        for table in KINDS:
            if table in attributes and name in attributes[table]:
                return attributes[table][name]
        if name in attributes.get("_derived_tensors", ()):
            return attributes["_derived_tensors"][name](self)
        raise_unknown(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if modes.tracer is not None:
            modes.tracer.accesses.assigning(self, name)
        if isinstance(value, Parameter | Module):
            table = "_parameters" if isinstance(value, Parameter) else "_modules"
            for other in (attributes, *(attributes.get(other, {}) for other in KINDS if other != table)):
                other.pop(name, None)  # in its own table it keeps its position
            self._add_member(table, name, value)
            return
        for table in KINDS:
            if name in attributes.get(table, ()):
                self._store_member(table, name, value)
                return
        if name in attributes.get("_derived_tensors", ()):
            raise AttributeError(f"{name!r} of {self._get_name()} is computed from other tensors; set one of these")
        object.__setattr__(self, name, value)
        note_change()

    def __delattr__(self, name: str) -> None:
        for table in KINDS:
            if name in self.__dict__[table]:
                del self.__dict__[table][name]
                return
        object.__delattr__(self, name)
        note_change()

    def __dir__(self) -> list[str]:
        names = [name for table in (*KINDS, "_derived_tensors") for name in self.__dict__.get(table, ())]
        return sorted({*super().__dir__(), *names})

    def _add_member(self, table: str, name: str, value: Any) -> None:
        check_name(self, table, name)
        self._store_member(table, name, value)

    def _store_member(self, table: str, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, HOLDS[table]):
            raise wrong_kind(self, table, name, value)
        self.__dict__[table][name] = value

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None to say that there is none of this name.

        Raises:
            ArgumentTypeError: if `param` is not a Parameter.
            ArgumentError: if the name cannot be used.
        """
        self._add_member("_parameters", name, param)

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
        self._add_member("_buffers", name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name that need not be an identifier.

        Raises:
            ArgumentTypeError: if `module` is not a Module.
            ArgumentError: if the name cannot be used.
        """
        self._add_member("_modules", name, module)

    register_module = add_module

    # the tree

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct submodules with their names, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The direct submodules, each once."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module (with the name `prefix`) and all below it, each once unless `remove_duplicate` is False."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        seen = set()
        for path, module in modules:
            for name, member in module.__dict__[table].items():
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names; shared ones once, under their first name.

        >>> import miniflow as flow
        >>> [(name, tuple(p.shape)) for name, p in flow.nn.Linear(3, 2).named_parameters()]
        [('weight', (2, 3)), ('bias', (2,))]
        """
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, shared ones once: what optimizers take."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their dotted names; shared ones once, under their first name."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, shared ones once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The submodule of a dotted name, e.g. "encoder.0"; this module itself for "".

        Raises:
            AttributeError: if there is none.
        """
        module = self
        for name in filter(None, target.split(".")):
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(
                    f"{self._get_name()}: {name!r} in {target!r} is a {type(module).__name__}, not a Module"
                )
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name; AttributeError if there is none."""
        return self._get_member("_parameters", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name; AttributeError if there is none."""
        return self._get_member("_buffers", target)

    def _get_member(self, table: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        member = self.get_submodule(path).__dict__[table].get(name)
        if member is None:
            raise AttributeError(f"{self._get_name()} has no {KINDS[table]} {target!r}")
        return member

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module below and then on this one, for example to initialise; returns the module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    # modes and conversions

    def train(self: Self, mode: bool = True) -> Self:
        """Switch this module and all below it to training (or, with False, to evaluation); returns the module."""
        if not isinstance(mode, bool):
            raise ArgumentError(f"{self._get_name()}.train: got mode={mode!r}; expected True or False")
        self.training = mode
        for module in self.children():  # which may override this, to stay in evaluation
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Switch this module and all below it to evaluation: no dropout, fixed statistics; returns the module."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Set whether gradients of all parameters are computed; returns the module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or (`set_to_none=False`) fill them with zeros."""
        for p in self.parameters():
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = p.grad.detach().zero_()

    def to(
        self: Self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Self:  # fmt: skip
        """Change the device of all parameters and buffers, and the dtype of the floating ones, in place.

        Args:
            args: a device, a floating dtype, both, or a tensor whose device and dtype to take.
            non_blocking, memory_format: accepted as in PyTorch; they have no effect: memory is always row-major, and
                images of `channels_last` are as those of `contiguous_format`.

        Returns:
            the module itself; its parameters stay the same objects.

        Raises:
            DTypeError: for a dtype that is not floating.
            DeviceError: for a device that is not available.
        """
        device, dtype = device_and_dtype(args, device, dtype)
        target = None if device is None else Device(device)
        if dtype is not None and not as_dtype(dtype).is_floating_point:
            raise DTypeError(f"{self._get_name()}.to: got {dtype}; expected a floating dtype such as flow.float32")

        def convert(x: Tensor) -> Tensor:
            return x.to(device=target, dtype=dtype if x.is_floating_point() else None)

        return self._apply(convert)

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert parameters and buffers in place; a subclass may override it, as in PyTorch, for what it has besides.

        Args:
            fn: called on each, shared ones more than once.
            recurse: those of the modules in this one too.
        """
        for module in self.children() if recurse else ():
            module._apply(fn)
        for member in (*self.parameters(recurse=False), *self.buffers(recurse=False)):
            convert_in_place(member, fn)
        return self

    def to_global(self: Self, placement: Any, sbp: Any) -> Self:
        """Make all parameters and buffers global tensors, in place. See `Tensor.to_global`.

        Returns:
            the module itself; its parameters stay the same objects.
        """
        return self._apply(lambda x: x.to_global(placement, sbp))

    def to_consistent(self: Self, placement: Any, sbp: Any) -> Self:
        """The name of `to_global` in OneFlow 0.6."""
        warnings.warn("to_consistent is an older name: use to_global", DeprecationWarning, stacklevel=2)
        return self.to_global(placement, sbp)

    def cpu(self: Self) -> Self:
        """Move to the CPU."""
        return self.to("cpu")

    def cuda(self: Self, device: Any = None) -> Self:
        """Move to a CUDA device, the current one by default."""
        return self.to("cuda" if device is None else Device(device))

    def float(self: Self) -> Self:
        """Convert floating parameters and buffers to float32."""
        return self.to(float32)

    def double(self: Self) -> Self:
        """Convert floating parameters and buffers to float64."""
        return self.to(float64)

    def half(self: Self) -> Self:
        """Convert floating parameters and buffers to float16."""
        return self.to(float16)

    def bfloat16(self: Self) -> Self:
        """Convert floating parameters and buffers to bfloat16."""
        return self.to(bfloat16)

    # state

    def state_dict(
        self, *, destination: OrderedDict[str, Tensor] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Tensor]:
        """All parameters and persistent buffers by their dotted names: what `flow.save` writes.

        What a module's `get_extra_state()` returns, if its class has that, is the entry "_extra_state".

        Args:
            destination: a dict to add the entries to.
            prefix: put before every name.
            keep_vars: return the parameters themselves, not detached tensors that share their memory.
        """
        destination = OrderedDict() if destination is None else destination
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return destination

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Add the entries of this module alone to a state; a subclass may override it, as in PyTorch."""
        for name, member in self._own_members().items():
            destination[prefix + name] = member if keep_vars else member.detach()
        if hasattr(type(self), "get_extra_state"):
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _own_members(self) -> dict[str, Tensor]:
        """The parameters and persistent buffers of this module alone."""
        left_out = self._non_persistent_buffers_set
        members = {**self._parameters, **{name: b for name, b in self._buffers.items() if name not in left_out}}
        return {name: member for name, member in members.items() if member is not None}

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy values into the parameters and buffers, and give extra states to `set_extra_state` of their modules.

        Args:
            state_dict: tensors by dotted names.
            strict: whether missing and unexpected names are errors; wrong shapes always are.
            assign: let the tensors of the state themselves be the parameters and buffers, with their dtypes and
                devices; make optimizers and graphs afterwards. Which parameters are trained does not change.

        Returns:
            the missing and the unexpected names.

        Raises:
            CheckpointError: if the state does not match, listing all differences; the module is then unchanged.
        """
        modules = {path and f"{path}.": module for path, module in self.named_modules(remove_duplicate=False)}
        current = {path + key: value for path, m in modules.items() for key, value in m._own_members().items()}
        if isinstance(state_dict, Mapping):
            state_dict, problems = dict(state_dict), []
            for path, module in modules.items():
                metadata = {AT_THE_END: True}
                if hasattr(module, "_version") and all(key in state_dict for key in current if key.startswith(path)):
                    metadata["version"] = module._version
                module._load_from_state_dict(state_dict, path, metadata, strict, [], [], problems)
            if problems:
                raise CheckpointError(f"{self._get_name()}.load_state_dict: {'; '.join(problems)}")
        owners = {path + key: (m, key) for path, m in modules.items() for key in m._own_members()} if assign else None
        return state.load(self._get_name(), current, state_dict, strict, owners, self._extra_setters())

    def _extra_setters(self) -> dict[str, Callable[[Any], None]]:
        """What takes the extra states of this module and those in it, by their dotted names."""
        modules = self.named_modules(remove_duplicate=False)
        setters = {path: getattr(module, "set_extra_state", None) for path, module in modules}
        return {f"{path}.{EXTRA_STATE}".lstrip("."): setter for path, setter in setters.items() if setter is not None}

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Load the entries of this module alone, as PyTorch's method of this name, which other libraries call.

        A subclass may override it to change entries, or to refuse the state in `error_msgs`. Entries that have names
        of other versions or frameworks (`_other_names`) are renamed. `load_state_dict` lets it do no more than that:
        it copies values at the end, when all modules are content and nothing is missing or unexpected. States carry no
        version: `local_metadata` has the `_version` of a class for those with all of its names, and else none, as
        PyTorch has for files of safetensors.
        """
        for hook in list(self._load_state_dict_pre_hooks):
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        for name, other in self._other_names.items():
            if prefix + other in state_dict:
                state_dict.setdefault(prefix + name, state_dict.pop(prefix + other))
        if AT_THE_END not in local_metadata:
            own = {prefix + name: member for name, member in self._own_members().items()}
            setters = {prefix + EXTRA_STATE: self.set_extra_state} if hasattr(self, "set_extra_state") else {}
            entries = {key: state_dict[key] for key in (*own, *setters) if key in state_dict}
            missing_keys += [key for key in (*own, *setters) if key not in entries and strict]
            is_assigned = local_metadata.get("assign_to_params_buffers")
            owners = {prefix + name: (self, name) for name in self._own_members()} if is_assigned else None
            try:
                state.load(self._get_name(), own, entries, False, owners, setters)
            except CheckpointError as error:
                error_msgs.append(str(error))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PickleError(
            f"{self._get_name()}: modules are not pickled; write flow.save(module.state_dict(), path), "
            "and read with module.load_state_dict(flow.load(path)) into a new module"
        )

    def __copy__(self: Self) -> Self:
        result = type(self).__new__(type(self))
        for name, value in vars(self).items():
            is_table = name.startswith("_") and isinstance(value, dict | set | list)
            result.__dict__[name] = copy.copy(value) if is_table else value
        return result

    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        result = type(self).__new__(type(self))
        memo[id(self)] = result
        result.__dict__.update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        return result

    # hooks

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before `forward`; what it returns, unless None, replaces the arguments.

        Args:
            hook: with `with_kwargs`, it is `hook(module, args, kwargs)` and returns None or a pair (args, kwargs).
            prepend: run it before the hooks that are already there.

        Returns:
            a handle whose `remove()` removes the hook.
        """
        return HookHandle.of(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> HookHandle:
        """Call `hook(module, args, output)` after `forward`; what it returns, unless None, replaces the output.

        Args:
            hook: with `with_kwargs`, it is `hook(module, args, kwargs, output)`.
            prepend: run it before the hooks that are already there.

        Returns:
            a handle whose `remove()` removes the hook.
        """
        return HookHandle.of(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> HookHandle:
        """Call `hook` before `load_state_dict` looks at a state, to rename or change entries of this module.

        Args:
            hook: `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`;
                `state_dict` has the entries of all modules, those of this one begin with `prefix`. A message that it
                appends to `error_msgs` refuses the state.

        Returns:
            a handle whose `remove()` removes the hook.

        Raises:
            ArgumentTypeError: for what is no function.

        Source: `torch.nn.Module.register_load_state_dict_pre_hook`.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> HookHandle:
        """The same by the name that older programs use, whose hooks do not get the module."""
        if not callable(hook):
            raise ArgumentTypeError(f"{self._get_name()}: got the hook {hook!r:.80}; expected a function")
        hook = functools.partial(hook, self) if with_module else hook
        return HookHandle.of(self._load_state_dict_pre_hooks, hook, False)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_output)` before the gradients of the inputs are computed.

        `grad_output` is a tuple with one entry for each output; what the hook returns, unless None, replaces it.
        """
        return HookHandle.of(self._backward_pre_hooks, (hook, False), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs have been computed.

        Both are tuples: `grad_input` has one entry for each positional argument (None for a non-tensor, zeros for
        tensors without a gradient, None everywhere if no argument requires grad), `grad_output` one for each output.
        What the hook returns, unless None, replaces `grad_input`.
        """
        return HookHandle.of(self._backward_hooks, (hook, False), prepend)

    # printing

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses: the arguments of a layer."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().splitlines()
        children = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        return bracketed(self._get_name(), extra, children)


EXTRA_STATE = "_extra_state"
AT_THE_END = "copied_at_the_end"  # of local_metadata: of states that `load_state_dict` loads
HOLDS = {"_parameters": Parameter, "_buffers": Tensor, "_modules": Module}


def indented(text: str) -> str:
    """All lines but the first, moved to the right by two."""
    return text.replace("\n", "\n  ")


def bracketed(name: str, extra: list[str], children: list[str]) -> str:
    """`name(extra)` on one line, or everything on lines of its own."""
    if len(extra) <= 1 and not children:
        return f"{name}({''.join(extra)})"
    return f"{name}(\n  " + "\n  ".join([*extra, *children]) + "\n)"
