"""The base of all optimizers: parameter groups, state, and the loop of `step`.

An optimizer is a rule for one update of the parameters of a group. The rule itself is an op whose kernel on the device
of the parameters (`backends/cpu/optim.py`) takes all parameters of the group at once.

The numbers of a group (the learning rate, momentum, weight decay ...) and how many steps a parameter has seen stay in
Python: a graph that recorded a step reads them at each replay, see `live`, and calls `count_step` after it.
"""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from miniflow.device import by_device
from miniflow.dispatch.dispatcher import update
from miniflow.dispatch.tape import enable_grad, modes, profiled
from miniflow.dtype import bfloat16, float16, float32
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, ShapeError
from miniflow.formulas.scalar import is_number
from miniflow.nn.arguments import AT_LEAST_0, ExplainsArguments, check_pair, check_range
from miniflow.nn.modules.state import place_problem
from miniflow.nn.utils.clip_grad import check_bound, clip_to_norm
from miniflow.ops.creation import full
from miniflow.ops.promotion import to_device
from miniflow.optim.update import Update
from miniflow.sbp import B
from miniflow.tensor import Tensor

ParameterGroups = Iterable[Tensor] | Iterable[dict[str, Any]]

# allowed in every group
EXTRA_KEYS = ("params", "initial_lr", "lr_scale", "clip_grad_max_norm", "clip_grad_norm_type")
NOT_OF_PYTORCH = ("do_bias_correction",)  # options of OneFlow
OF_THE_STEP = ("eta", "mu", "mu_product")  # functions of "step", which ASGD and NAdam of PyTorch keep


def arguments_of(variables: dict[str, Any]) -> dict[str, Any]:
    """The options of an optimizer: the arguments of its constructor, whose `locals()` these are, without `params`."""
    return {name: value for name, value in variables.items() if name not in ("self", "params", "__class__")}


class Optimizer(ExplainsArguments):
    """Holds parameters in groups, each with its own options, and updates them from their gradients in `step`.

    A subclass has its options in its constructor, checks them in `check_options`, and names the op of its rule in
    `rule`; or it computes one update in `update`.

    Args:
        params: tensors, or groups: dicts with a "params" entry and options that differ from `defaults`.
        defaults: the default options of a group.

    Attributes:
        param_groups: list of dicts, "params" and the options, which may be changed between steps.
        state: for each parameter, the state that the rule keeps for it.
        rule: the op of one update; its groups are parameters, gradients, then the states of `state_names`.
        counts_steps: whether the state of a parameter has a "step".

    A group may have "lr_scale", by which a graph multiplies the learning rate, and only a graph, as in OneFlow.

    Raises:
        ArgumentTypeError: for parameters that are not tensors.
        ArgumentError: for an empty list, a duplicate, a tensor that is not a leaf, an unknown or invalid option.

    Source: `torch.optim.Optimizer`.
    """

    ignored = ("foreach", "fused", "capturable", "differentiable")  # how PyTorch is to compute it
    rule: type[Update] | None = None
    counts_steps = True

    def __init__(self, params: ParameterGroups, defaults: dict[str, Any]):
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self._untouched: set[Tensor] = set()  # parameters with a new state that no step has changed yet
        self._on_devices = False  # whether parameters were ever seen elsewhere than on the CPU
        if isinstance(params, Tensor | dict):
            raise ArgumentTypeError(
                f"{self._name}: got a single {type(params).__name__}; expected a list: pass [x] or model.parameters()"
            )
        if not hasattr(params, "__iter__") and not hasattr(params, "__getitem__"):
            raise ArgumentTypeError(
                f"{self._name}: got a {type(params).__name__}; expected a list of parameters: call model.parameters()"
            )
        groups = list(params)
        if not groups:
            raise ArgumentError(
                f"{self._name}: got an empty list of parameters; a generator can be read only once: "
                "pass a list; layers in a plain list are not found: use nn.ModuleList"
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ArgumentError for options of a group that no rule allows; subclasses check those of their own."""
        if self.rule is not None:
            names = [name for name in ("lr", "eps", "weight_decay") if name in self.defaults]
            check_range(self, AT_LEAST_0, **{name: options[name] for name in names})
            if "betas" in self.defaults:
                check_pair(self, (0, 1), betas=options["betas"])

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        """The names of the state tensors that `rule` takes, in its order; None for one that the options leave out."""
        states = {} if self.rule is None else self.rule.states
        return tuple([name if option is None or group[option] else None for name, option in states.items()])

    def first_value(self, group: dict[str, Any]) -> float:
        """The initial value of a new state."""
        return 0.0

    def attributes(self, group: dict[str, Any]) -> dict[str, Any]:
        """The attributes of `rule`, except those in `rule.per_parameter`."""
        return {name: group[name] for name in self.defaults}

    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Change `params`, those parameters of `group` that have a gradient."""
        if self.rule is None:
            raise NotImplementedError(f"{self._name}: an optimizer must override update(group, params)")
        update(
            self.rule,
            params,
            *self._gradients_and_states(group, params),
            **self.attributes_of_step(group, params),
        )

    def _gradients_and_states(self, group: dict[str, Any], params: list[Tensor]) -> list[list[Tensor | None]]:
        """The gradients of `params`, then for each of `state_names` the states, made where there are none.

        Raises:
            ShapeError: for one from before a parameter got another shape: a kernel would leave its memory.
        """
        names, rows = self.state_names(group), []
        for p in params:
            state = self.state[p] if self.counts_steps or any(names) else {}
            if self.counts_steps and state.get("step") is None:
                state["step"] = 0
            row = [p._grad]
            for name in names:
                if name is not None and state.get(name) is None:
                    state[name] = new_state(p, self.first_value(group))
                    self._untouched.add(p)
                row.append(None if name is None else state[name])
            for x in row:
                if x is not None and x._array.shape != p._array.shape:
                    raise ShapeError(
                        f"{self._name}.step: got a gradient or state of shape {tuple(x.shape)} for a parameter of "
                        f"shape {tuple(p.shape)}; make a new optimizer after a parameter got another shape"
                    )
            rows.append(row)
        return list(map(list, zip(*rows, strict=True)))

    @profiled(lambda self: f"Optimizer.step#{self._name}.step")
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: computes the gradients again and returns the loss; called once, with gradients enabled.

        Returns:
            what `closure` returned, or None.

        Raises:
            GraphError: within the build of a graph, which steps its optimizers itself.
        """
        if modes.tracer is not None:
            modes.tracer.before_step(
                f"{self._name}.step", "the graph steps its optimizers itself: use add_optimizer in __init__"
            )
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params in self._by_device([p for p in group["params"] if p._grad is not None]):
                self.update(group, params)
                if self.rule is None:
                    for p in params:
                        p._written()
                elif modes.tracer is None:
                    self.count_step(params)
        return loss

    # what changes from step to step

    def next_values(self, name: str, params: list[Tensor]) -> list[Any]:
        """The attribute `name` of `rule` at the next step of `params`.

        "steps": how many updates each will have seen, that one included. "fresh": whether it is the first.
        """
        if name == "steps":
            return [self.state[p]["step"] + 1 for p in params]
        return [p in self._untouched for p in params]

    def changing(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Which of `rule.per_parameter` have to be looked up at every step of a graph."""
        return self.rule.per_parameter

    def attributes_of_step(self, group: dict[str, Any], params: list[Tensor]) -> dict[str, Any]:
        """All attributes of `rule` for the next update of `params`; while a graph is recorded, see `live`."""
        attributes = self.attributes(group)
        per_parameter = {name: self.next_values(name, params) for name in self.rule.per_parameter}
        if modes.tracer is not None:
            index = next(i for i, other in enumerate(self.param_groups) if other is group)
            position = {p: i for i, p in enumerate(group["params"])}
            for name, value in attributes.items():
                if name == "lr" or value is group.get(name):  # not what a subclass computes of it
                    attributes[name] = self.live(index, name)
            for name in self.changing(group):
                sources = {
                    f"{index}.{name}.{position[p]}": functools.partial(self._next_value, name, p) for p in params
                }
                per_parameter[name] = [modes.tracer.scalar(key, source) for key, source in sources.items()]
        return attributes | per_parameter

    def live(self, index: int, name: str) -> Any:
        """An option of a group. While a graph is recorded, each of its numbers is a `Scalar`, which replays look up.

        They stay right when `load_state_dict` replaces the groups. Whether a number is above, at or below 0 is part of
        the recording, since updates leave out what is 0.
        """
        value = self.param_groups[index][name]
        if modes.tracer is None or name in flags(type(self)):
            return value
        if is_number(value):
            return modes.tracer.scalar(f"{index}.{name}", functools.partial(self._number, index, name))
        if isinstance(value, tuple | list) and all(map(is_number, value)):
            sources = [lambda i=i: self.param_groups[index][name][i] for i in range(len(value))]
            return tuple([modes.tracer.scalar(f"{index}.{name}.{i}", source) for i, source in enumerate(sources)])
        return value

    def _number(self, index: int, name: str) -> float:
        group = self.param_groups[index]
        return group["lr"] * group["lr_scale"] if name == "lr" and "lr_scale" in group else group[name]

    def _next_value(self, name: str, p: Tensor) -> Any:
        return self.next_values(name, [p])[0]

    def count_step(self, params: Iterable[Tensor]) -> None:
        """Note that `params` have been updated once more; `step` does so itself, except while a graph records it."""
        if self.counts_steps:
            state = self.state
            for p in params:
                state[p]["step"] += 1
        if self._untouched:
            self._untouched.difference_update(params)

    def create_state(self) -> None:
        """Make the state tensors of all parameters that require grad, as the first step would."""
        for group in self.param_groups:
            for params in self._by_device([p for p in group["params"] if p.requires_grad]):
                self._gradients_and_states(group, params)

    def _by_device(self, params: list[Tensor]) -> list[list[Tensor]]:
        """The parameters grouped by device; their states are moved there."""
        groups = by_device(params)
        self._on_devices |= len(groups) > 1 or bool(groups) and type(groups[0][0]._array) is not np.ndarray
        if self._on_devices:
            for p in params:
                for name, value in self.state[p].items() if p in self.state else ():
                    if isinstance(value, Tensor):
                        self.state[p][name] = _on_device_of(value, p)
        return groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set all gradients to None, or (`set_to_none=False`) fill them with zeros."""
        tracer = modes.tracer
        for group in self.param_groups:
            for p in group["params"]:
                if tracer is not None:
                    tracer.keep_gradient(p)
                if set_to_none:
                    p._grad = None
                elif p._grad is not None:
                    p._grad = p._grad.detach().zero_()

    def clip_grad(self, error_if_nonfinite: bool = False) -> None:
        """Clip the gradients of each group that has "clip_grad_max_norm" by the norm over that group, as OneFlow does.

        The kind of norm is the group's "clip_grad_norm_type", 2.0 if absent. See `nn.utils.clip_grad_norm_`.
        """
        for index, group in enumerate(self.param_groups):
            if "clip_grad_max_norm" in group:
                check_bound("clip_grad_norm_", group["clip_grad_max_norm"])
                max_norm, norm_type = self.live(index, "clip_grad_max_norm"), group.get("clip_grad_norm_type", 2.0)
                clip_to_norm(group["params"], max_norm, norm_type, error_if_nonfinite)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, for example when frozen layers are to be trained too.

        Keys that are not options are kept for the user, unless they look like a misspelt option.

        Raises:
            TypeError, ArgumentError: as the constructor.
        """
        group = param_group
        if not isinstance(group, dict) or "params" not in group:
            raise ArgumentTypeError(
                f"{self._name}: got a parameter group {group!r:.80}; expected a dict with the key 'params'"
            )
        for key in group.keys() - {*self.defaults, *EXTRA_KEYS}:
            if close := difflib.get_close_matches(key, self.defaults, cutoff=0.8):
                raise ArgumentError(f"{self._name}: a parameter group has {key!r}; did you mean {close[0]!r}?")
        params = self._check_params(group["params"])
        group = {"params": params, **copy.copy(self.defaults), **{k: v for k, v in group.items() if k != "params"}}
        self.check_options(group)
        self.param_groups.append(group)

    def _check_params(self, params: Any) -> list[Tensor]:
        params = [params] if isinstance(params, Tensor) else list(params)
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        for position, p in enumerate(params):
            name = f"{self._name}: parameter {position} of group {len(self.param_groups)}"
            if not isinstance(p, Tensor):
                raise ArgumentTypeError(f"{name} is a {type(p).__name__}; expected a Tensor: pass model.parameters()")
            if not p.is_leaf:
                raise ArgumentError(
                    f"{name} was computed by {p.grad_fn.name}, it is not a leaf; pass what it was computed from"
                )
            if not p.is_floating_point():
                raise ArgumentError(f"{name} has {p.dtype}; expected a floating dtype")
            if id(p) in seen:
                raise ArgumentError(
                    f"{name} appears twice; every parameter belongs to one group, once: shared ones too"
                )
            seen.add(id(p))
        return params

    def state_dict(self) -> dict[str, Any]:
        """The state and the options, with parameters replaced by their numbers: what `flow.save` can write.

        Returns:
            `{"state": {number: {name: value}}, "param_groups": [{"params": [number, ...], option: value, ...}]}`;
            tensors share memory with the optimizer.
        """
        number = {p: i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        groups = [{**group, "params": [number[p] for p in group["params"]]} for group in self.param_groups]
        state = {number[p]: dict(values) for p, values in self.state.items() if not self._is_new(p, values)}
        return {"state": state, "param_groups": groups}

    def _is_new(self, p: Tensor, values: dict[str, Any]) -> bool:
        """Whether no step has used this state so far."""
        return p in self._untouched and not values.get("step")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load state and options, matching parameters by order; tensors are copied.

        Groups that PyTorch wrote, which say how it is to compute, may leave out options that it does not have.

        Raises:
            CheckpointError: if groups, parameters or shapes do not match; the optimizer is then unchanged.
        """
        state_dict = self._of_pytorch(state_dict)
        for problem in self._problems(state_dict):
            raise CheckpointError(f"{self._name}.load_state_dict: {problem}")
        pairs = list(zip(self.param_groups, copy.deepcopy(state_dict["param_groups"]), strict=True))
        param_of = {i: p for group, saved in pairs for i, p in zip(saved["params"], group["params"], strict=True)}
        state = {param_of[i]: _loaded(param_of[i], values) for i, values in state_dict["state"].items()}
        self.param_groups = [{**saved, "params": group["params"]} for group, saved in pairs]
        self.state = defaultdict(dict, state)
        self._untouched.clear()

    def _of_pytorch(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A state with groups as they are here, if PyTorch wrote it."""
        try:
            pairs, state = list(zip(state_dict["param_groups"], self.param_groups, strict=True)), state_dict["state"]
            if not all(saved.keys() & set(self.ignored) for saved, _ in pairs):
                return state_dict
        except (AttributeError, LookupError, TypeError, ValueError):
            return state_dict  # and _problems says why
        own = [{k: group[k] for k in NOT_OF_PYTORCH if k in group} for _, group in pairs]
        given = [{k: v for k, v in saved.items() if k not in self.ignored} for saved, _ in pairs]
        groups = [{**mine, **theirs} for mine, theirs in zip(own, given, strict=True)]
        kept = {
            number: {name: value for name, value in values.items() if name not in OF_THE_STEP}
            for number, values in state.items()
        }
        return {"state": kept, "param_groups": groups}

    def _problems(self, state_dict: dict[str, Any]) -> Iterator[str]:
        """Why a state does not fit."""
        try:
            groups, state = state_dict["param_groups"], state_dict["state"]
            got, expected = ([len(group["params"]) for group in of] for of in (groups, self.param_groups))
        except (LookupError, TypeError):
            yield "expected a dict with 'state' and 'param_groups' as from state_dict()"
            return
        if got != expected:
            yield (
                f"got groups of {got} parameters; expected {expected}: "
                "build the optimizer from the same parameters as when it was saved"
            )
        param_of = {}
        for saved, group in zip(groups, self.param_groups, strict=True):
            if saved.keys() - set(EXTRA_KEYS) != group.keys() - set(EXTRA_KEYS):
                yield (
                    f"got a group with the options {list(saved)}; expected {list(group)}: "
                    "was it saved by another kind of optimizer?"
                )
            param_of |= zip(saved["params"], group["params"], strict=True)
        if state.keys() - param_of.keys():
            yield f"got state for {list(state)}; expected {list(param_of)} only"
        for number, values in state.items():
            p = param_of[number]
            if self.rule is not None and self.counts_steps and values and values.get("step") is None:
                yield f"got {list(values)} for parameter {number}; expected its 'step' too"
            for name, value in values.items():
                if name == "step" or not isinstance(value, Tensor):
                    continue
                if value.shape != p.shape:
                    yield f"{name} of parameter {number} has shape {tuple(value.shape)}; expected {tuple(p.shape)}"
                elif problem := place_problem(value, p):
                    yield f"{name} of parameter {number} is {problem}"

    def __repr__(self) -> str:
        lines = [f"{self._name} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


@functools.cache
def flags(optimizer: type[Optimizer]) -> set[str]:
    """The options that are switches, for which users may give 0 or 1."""
    parameters = inspect.signature(optimizer.__init__).parameters.values()
    return {parameter.name for parameter in parameters if isinstance(parameter.default, bool)}


def _loaded(p: Tensor, values: dict[str, Any]) -> dict[str, Any]:
    """A copy of the state of a parameter, where that is."""
    state = {name: value for name, value in values.items() if value is not None}
    for name, value in state.items():
        if name == "step":
            state[name] = int(value)
        elif isinstance(value, Tensor):
            state[name] = _on_device_of(value.detach(), p).to(dtype=_state_dtype(p), copy=True)
    return state


def _state_dtype(p: Tensor) -> Any:
    return float32 if p.dtype in (float16, bfloat16) else p.dtype


def new_state(p: Tensor, value: float = 0.0) -> Tensor:
    """A state tensor of the shape of `p`, in float32 for half precision, whose range squares would leave."""
    return full(p.shape, value, dtype=_state_dtype(p), device=p._device_and_sbp)


def _on_device_of(value: Tensor, p: Tensor) -> Tensor:
    """A state on the device of its parameter; on another number of dimensions of ranks, in its layout."""
    if value.is_global and p.is_global and len(value.sbp) != len(p.sbp):
        return value.to_global(p.placement, p.sbp if value.shape == p.shape else (B,) * len(p.sbp))
    return to_device(value, p._device)
