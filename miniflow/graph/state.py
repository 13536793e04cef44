"""The state of a graph: modules, what optimizers remember, and the number of the training step, under OneFlow's names.

model                     the state_dict of the module in that attribute: {"fc.weight": ..., ...}
model.fc.weight-m         what the optimizer remembers about a parameter
System-Train-TrainStep    how many steps were done, those left out for an overflow not counted
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from miniflow.errors import CheckpointError, GraphError
from miniflow.graph.block import unwrap
from miniflow.graph.ir import BUFFER, OPTIMIZER, PARAMETER
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.state import IncompatibleKeys, load
from miniflow.ops.creation import tensor
from miniflow.parallel.placement import placement
from miniflow.sbp import broadcast
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph
    from miniflow.optim.optimizer import Optimizer

LABELS = {  # miniflow's and PyTorch's names of optimizer states -> OneFlow's
    "momentum_buffer": "-momentum",
    "exp_avg": "-m",
    "exp_avg_sq": "-v",
    "max_exp_avg_sq": "-max_v",
    "square_avg": "-mean_square",
    "grad_avg": "-mean_gradient",
    "sum": "-sum",
}
TRAIN_STEP = "System-Train-TrainStep"
LOSS_SCALE = "System-Train-LossScale"
GOOD_STEPS = "System-Train-GoodStepCounter"
STEP = "-step"  # of a parameter that was updated less or more often than the graph was called


def module_names(blocks: Mapping[str, Module]) -> dict[Module, str]:
    """All modules of a graph with their dotted names; shared ones under their first name."""
    names: dict[Module, str] = {}
    for attribute, block in blocks.items():
        for path, module in block.named_modules(prefix=attribute):
            names.setdefault(unwrap(module), path)
    return names


def tensors_of(graph: Graph) -> Iterator[tuple[str, str, Tensor]]:
    """Name, kind and tensor of everything that lives on from call to call; what is shared comes under each name."""
    names: dict[Tensor, str] = {}
    for module, path in module_names(graph._blocks).items():
        for kind, table in ((PARAMETER, module._parameters), (BUFFER, module._buffers)):
            for key, value in table.items():
                if value is not None:
                    names.setdefault(value, f"{path}.{key}")
                    yield f"{path}.{key}", kind, value
    for number, optimizer in enumerate(graph._optimizers):
        for i, p in enumerate(parameters_of(optimizer)):
            name = names.setdefault(p, f"optimizer.{number}.param.{i}")
            yield name, PARAMETER, p
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, Tensor):
                    yield f"{name}{LABELS.get(key, f'-{key}')}", OPTIMIZER, value


def parameter_names(graph: Graph) -> dict[Tensor, str]:
    """All parameters of modules and optimizers with their names; shared ones under their first name."""
    names: dict[Tensor, str] = {}
    for name, kind, value in tensors_of(graph):
        if kind == PARAMETER:
            names.setdefault(value, name)
    return names


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of all groups of an optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def save_state(graph: Graph) -> OrderedDict[str, Any]:
    """The work of `Graph.state_dict`."""
    state: OrderedDict[str, Any] = OrderedDict()
    for name, block in graph._blocks.items():
        state[name] = block.state_dict()
    if graph.training:
        state.update(_training_state(graph))
        for name, (p, optimizer) in _steps(graph).items():
            count = _count(graph, p, optimizer)
            if count != graph._train_step:
                state[name] = tensor([count])
    return state


def _training_state(graph: Graph) -> dict[str, Tensor]:
    """Tensors of optimizers, which share their memory, and copies of the numbers."""
    for optimizer in graph._optimizers:
        optimizer.create_state()
    state = {name: value.detach() for name, kind, value in tensors_of(graph) if kind == OPTIMIZER}
    state[TRAIN_STEP] = tensor([graph._train_step])
    scaler = graph._grad_scaler.state_dict() if graph._grad_scaler is not None else {}
    if scaler:
        state[LOSS_SCALE] = tensor([scaler["scale"]])
        state[GOOD_STEPS] = tensor([scaler["_growth_tracker"]])
    return state


def _steps(graph: Graph) -> dict[str, tuple[Tensor, Any]]:
    """The parameters of which an optimizer remembers something, by the names of the counts of their steps."""
    names = parameter_names(graph)
    return {
        f"{names[p]}{STEP}": (p, optimizer)
        for optimizer in graph._optimizers
        for p in parameters_of(optimizer)
        if optimizer.state.get(p)
    }


def _count(graph: Graph, p: Tensor, optimizer: Any) -> int:
    """How many steps a parameter has seen; where the optimizer knows only whether it has, as many as all others."""
    if "step" in optimizer.state[p]:
        return optimizer.state[p]["step"]
    return 0 if p in optimizer._untouched else max(graph._train_step, 1)


def load_state(graph: Graph, state_dict: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
    """The work of `Graph.load_state_dict`: compare everything first, then copy."""
    if graph.is_compiled:
        raise GraphError("nn.Graph's state dict can only be loaded before the first call of a graph.")
    if not isinstance(state_dict, Mapping):
        raise CheckpointError(
            f"{graph.name}.load_state_dict: got a {type(state_dict).__name__}; expected a dict from state_dict()"
        )
    values = _flat(state_dict)
    present = _flat({name: block.state_dict(keep_vars=True) for name, block in graph._blocks.items()})
    tensors = {name: value for name, value in present.items() if isinstance(value, Tensor)}
    setters = {
        f"{name}.{key}": setter
        for name, block in graph._blocks.items()
        for key, setter in unwrap(block)._extra_setters().items()
    }
    numbers: dict[str, Tensor] = {}
    if graph.training:
        training = _training_state(graph)
        counts = _steps(graph)
        numbers = {name: value for name, value in training.items() if name.startswith("System-Train-")}
        numbers |= {name: tensor([0]) for name in values if name in counts}
        tensors |= {**training, **numbers}
        values |= {name: _local(values[name]) for name in numbers if name in values}
    keys = load(type(graph).__name__, tensors, values, strict, None, setters)
    if numbers:
        _load_numbers(graph, {name: value for name, value in numbers.items() if name in values})
    return keys


def _local(number: Any) -> Any:
    """A number of a graph that was loaded as a global tensor, on every rank."""
    if isinstance(number, Tensor) and number.is_global:
        return number.to_global(placement.all("cpu"), broadcast).to_local()
    return number


def _flat(state: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            flat[name] = value
    return flat


def _load_numbers(graph: Graph, numbers: dict[str, Tensor]) -> None:
    if TRAIN_STEP in numbers:
        graph._train_step = int(numbers[TRAIN_STEP].item())
        for scheduler in graph._schedulers:
            scheduler.move_to(graph._train_step)
    for name, (p, optimizer) in _steps(graph).items():
        if name in numbers or TRAIN_STEP in numbers:
            _set_count(p, optimizer, int(numbers[name].item()) if name in numbers else graph._train_step)
    if LOSS_SCALE in numbers:
        scale, good = numbers[LOSS_SCALE].item(), int(numbers[GOOD_STEPS].item()) if GOOD_STEPS in numbers else 0
        scaler = graph._grad_scaler
        scaler.load_state_dict({**scaler.state_dict(), "scale": float(scale), "_growth_tracker": good})


def _set_count(p: Tensor, optimizer: Any, count: int) -> None:
    if "step" in optimizer.state[p]:
        optimizer.state[p]["step"] = count
    (optimizer._untouched.discard if count else optimizer._untouched.add)(p)
