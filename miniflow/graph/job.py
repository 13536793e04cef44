"""Job functions, as OneFlow had them before nn.Graph: a decorated function is compiled, and its variables are global.

    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((100, 784)), labels: tp.Numpy.Placeholder((100,), dtype=flow.int64)
    ) -> tp.Numpy:
        weight = flow.get_variable("weight", (10, 784), initializer=flow.random_normal_initializer(stddev=0.1))
        loss = F.cross_entropy(images @ weight.T, labels)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.9).minimize(loss)
        return loss

    loss = train_job(images, labels)

It is a thin layer over nn.Graph. At the first call the function runs twice on symbolic tensors: once to find out which
variables it gets and how they are to be optimized, and once more, as `build` of a graph that has them. Variables of one
name are one variable in all jobs, so that a job of type "predict" sees what one of type "train" has learnt.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from miniflow.device import get_default_device
from miniflow.dispatch.tape import enable_grad, modes, no_grad
from miniflow.dtype import as_dtype, dtype, float16, float32
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, DTypeError, GraphError, ShapeError
from miniflow.graph.config import GraphConfig
from miniflow.graph.graph import Graph
from miniflow.graph.nested import check_arguments, flatten, unflatten
from miniflow.graph.options import Option
from miniflow.graph.saved.graph_file import Parts
from miniflow.graph.trace import record
from miniflow.nn import init
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.ops.creation import as_tensor, empty
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.optimizer import Optimizer
from miniflow.tensor import Tensor
from miniflow.typing import Numpy, Placeholder

TYPES = ("train", "predict")
Initializer = Callable[[Tensor], Any]
Factory = Callable[[list[Tensor]], tuple[Optimizer, LRScheduler | None]]

_variables: dict[str, Parameter] = {}
_variables_lock = threading.RLock()  # an initializer may get variables too


class FunctionConfig(GraphConfig):
    """Options of a job function: those of a graph, and the dtype of its variables.

    Source: `oneflow.function_config`.
    """

    variable_dtype = Option(float32, lambda option, value: as_dtype(value), is_shown=False, is_compiled=False)

    def default_data_type(self, value: dtype) -> None:
        """The dtype of variables that do not say otherwise."""
        self.variable_dtype = value

    def enable_auto_mixed_precision(self, value: bool = True) -> None:
        """Compute in float16 where it is safe; see `enable_amp`."""
        self.enable_amp(value, dtype=float16)


@dataclass
class Job:
    """The run of a job function that is going on in this thread.

    Attributes:
        type: "train" or "predict".
        config: its options.
        variables: those that it has asked for, by name.
        factory: makes its optimizer, of what `minimize` was called on.
        graph: None while the variables are being found.
    """

    type: str
    config: FunctionConfig
    variables: dict[str, Parameter] = field(default_factory=dict)
    factory: Factory | None = None
    graph: Graph | None = None

    def minimize(self, loss: Tensor, factory: Factory) -> None:
        """Make the job a training step that lowers the mean of `loss`."""
        if self.type != "train":
            raise GraphError('minimize: called in a job function of type "predict"; use global_function(type="train")')
        if self.graph is None and self.factory is not None:
            raise GraphError("minimize: called twice in one job function; expected one loss: add them")
        self.factory = factory
        if self.graph is not None:
            (loss if loss.numel() == 1 else loss.mean()).backward()


_running: ContextVar[Job | None] = ContextVar("running", default=None)


def current_job(what: str) -> Job:
    """The job function that is running.

    Raises:
        GraphError: outside of one.
    """
    job = _running.get()
    if job is None:
        raise GraphError(f"{what}: called outside of a job function; decorate a function with flow.global_function()")
    return job


def global_function(type: str = "predict", function_config: FunctionConfig | None = None) -> Callable:
    """Decorate a function so that it is compiled at its first call.

    Args:
        type: "train" for one that calls `minimize` of an optimizer on a loss, "predict" for others.
        function_config: options, from `flow.function_config()`.

    Returns:
        a decorator. Every parameter of the function has a `Placeholder` as its annotation; if the function is
        annotated to return `typing.Numpy` (or a tuple of these), its tensors are returned as NumPy arrays.

    Raises:
        ArgumentError: for an unknown type, or a parameter without a placeholder.

    >>> import miniflow as flow
    >>> import miniflow.typing as tp
    >>> @flow.global_function(type="predict")
    ... def double(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
    ...     return 2 * x
    >>> double(np.array([1.0, 2.0], np.float32)).tolist()
    [2.0, 4.0]

    Source: `oneflow.global_function`.
    """
    if type not in TYPES:
        raise ArgumentError(
            f"global_function: got type={type!r}; expected 'train' or 'predict', as in "
            '@flow.global_function(type="train")'
        )
    if function_config is not None and not isinstance(function_config, FunctionConfig):
        raise ArgumentTypeError(
            f"global_function: got a {function_config.__class__.__name__} as function_config; expected what "
            "flow.function_config() returns"
        )
    return lambda function: JobFunction(function, type, function_config or FunctionConfig())


class JobFunction:
    """A function that was decorated with `global_function`.

    Attributes:
        graph: what it was compiled to; None before the first call.
    """

    def __init__(self, function: Callable, type: str, config: FunctionConfig):
        functools.update_wrapper(self, function)
        self.function, self.type, self.config = function, type, config
        self.graph: Graph | None = None
        self.placeholders = placeholders_of(function)
        self._returns_numpy = mentions_numpy(inspect.signature(function, eval_str=True).return_annotation)
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the job on NumPy arrays, or tensors, of the shapes and dtypes of its placeholders.

        Raises:
            ShapeError, DTypeError: for an argument that is not as its placeholder says.
            ArgumentTypeError: for arguments that the function does not take.
        """
        bound = check_arguments(self.__name__, self.function, args, kwargs)
        tensors = [self._as_input(name, value) for name, value in bound.items()]
        with self._lock:
            if self.graph is None:
                self.graph = self._compiled()
        result = self.graph(*tensors)
        if not self._returns_numpy:
            return result
        outputs, tree = flatten(result)
        return unflatten(tree, [tensor.numpy() for tensor in outputs])

    def __repr__(self) -> str:
        return f"<job function {self.__name__} of type {self.type!r}>"

    def _as_input(self, name: str, value: Any) -> Tensor:
        placeholder, which = self.placeholders[name], f"{self.__name__}: argument {name!r}"
        if not isinstance(value, np.ndarray | Tensor):
            raise ArgumentTypeError(f"{which} is a {value.__class__.__name__}; expected a NumPy array or a Tensor")
        if tuple(value.shape) != placeholder.shape:
            raise ShapeError(f"{which} has shape {tuple(value.shape)}; expected {placeholder.shape} as its placeholder")
        tensor = value if isinstance(value, Tensor) else as_tensor(value)
        if tensor.dtype != placeholder.dtype:
            expected = placeholder.dtype
            raise DTypeError(
                f"{which} has {tensor.dtype}; expected {expected} as its placeholder: use .astype({expected.name!r})"
            )
        return tensor.to(get_default_device())

    def _compiled(self) -> Graph:
        """The graph of the job, with the variables that a first run of the function asks for."""
        job = Job(self.type, self.config)
        metas = [(p.shape, p.dtype.numpy, get_default_device()) for p in self.placeholders.values()]
        with running(job), enable_grad():
            record(lambda *inputs: flatten(self.function(*inputs))[0], metas, name=self.__name__)
        if self.type == "train" and job.factory is None:
            raise GraphError(
                f"{self.__name__}: a job function of type 'train' calls minimize of an optimizer, "
                "flow.optimizer.SGD(lr_scheduler).minimize(loss); it did not"
            )
        return JobGraph(self, job)

    def _to_save(self) -> AbstractContextManager[Parts]:
        if self.graph is None:
            raise GraphError(f"{self.__name__}: graph must be compiled first. Call it once, then save it.")
        return self.graph._to_save()


def mentions_numpy(annotation: Any) -> bool:
    """Whether an annotation is `typing.Numpy`, or made of it, such as `tuple[Numpy, Numpy]`."""
    return annotation is Numpy or any(map(mentions_numpy, get_args(annotation)))


class Variables(Module):
    """The variables of a job under their names."""

    def __init__(self, variables: dict[str, Parameter]):
        super().__init__()
        self._parameters.update(variables)


class JobGraph(Graph):
    """The graph of a job function."""

    def __init__(self, function: JobFunction, job: Job):
        super().__init__()
        self.function, self.job = function.function, job
        self.__dict__.update(name=function.__name__, config=copy.copy(job.config))
        self.variables = Variables(job.variables)
        job.graph = self
        if job.factory is not None:
            trainable = [p for p in job.variables.values() if p.requires_grad]
            if not trainable:
                raise GraphError(f"{self.name}: no trainable variable; make one with flow.get_variable in the function")
            optimizer, scheduler = job.factory(trainable)
            self.add_optimizer(optimizer, lr_sch=scheduler)

    def build(self, *inputs: Tensor) -> Any:
        """The function."""
        with running(self.job):
            return self.function(*inputs)


@contextmanager
def running(job: Job) -> Iterator[None]:
    """Let `get_variable` and `minimize` belong to this job."""
    token = _running.set(job)
    try:
        yield
    finally:
        _running.reset(token)


def placeholders_of(function: Callable) -> dict[str, Placeholder]:
    """The placeholders of a function's parameters, by name.

    Raises:
        ArgumentError: for a parameter without one.
    """
    placeholders = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if not isinstance(parameter.annotation, Placeholder):
            raise ArgumentError(
                f"global_function: the parameter {name!r} of {function.__name__} has no placeholder; annotate it: "
                f"{name}: flow.typing.Numpy.Placeholder(shape, dtype=flow.float32)"
            )
        placeholders[name] = parameter.annotation
    return placeholders


# variables


def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    initializer: Initializer | None = None,
    trainable: bool | None = None,
) -> Tensor:
    """The variable of that name, made at the first time; to be called in a job function.

    Args:
        name: one name is one variable, in all jobs.
        shape: the sizes of all dimensions; may be left out for a variable that exists.
        dtype: by default that of the job's config.
        initializer: fills a tensor in place: one of those below, or a function such as `nn.init.kaiming_normal_`. By
            default zeros.
        trainable: whether optimizers change it; by default they do.

    Raises:
        GraphError: outside of a job function.
        ArgumentError: for a name that is not a string, or a variable that exists with another `trainable`.
        ArgumentTypeError: for an initializer that is not a function.
        ShapeError, DTypeError: for a variable that exists with another shape or dtype, or a new one without a shape.

    Source: `oneflow.get_variable`.
    """
    job = current_job("get_variable")
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"get_variable: got the name {name!r}; expected a string")
    if initializer is not None and not callable(initializer):
        raise ArgumentTypeError(
            f"get_variable: got initializer={initializer!r}; expected a function that fills a tensor, e.g. "
            "flow.constant_initializer(value)"
        )
    with _variables_lock:
        of_job = {} if job.graph is None else job.graph.variables._parameters  # also what was forgotten since
        variable = of_job.get(name, _variables.get(name))
        if variable is None:
            if shape is None:
                raise ShapeError(f"get_variable: there is no variable {name!r} yet, and no shape to make it of")
            data_type = job.config.variable_dtype if dtype is None else as_dtype(dtype)
            variable = new_variable(tuple(shape), data_type, initializer or zeros_initializer(), trainable is not False)
            _variables[name] = variable
    if shape is not None and tuple(shape) != tuple(variable.shape):
        raise ShapeError(f"get_variable: {name!r} has shape {tuple(variable.shape)}; asked for {tuple(shape)}")
    if dtype is not None and as_dtype(dtype) != variable.dtype:
        raise DTypeError(f"get_variable: {name!r} has {variable.dtype}; asked for {as_dtype(dtype)}")
    if trainable is not None and bool(trainable) != variable.requires_grad:
        raise ArgumentError(
            f"get_variable: {name!r} has trainable={variable.requires_grad}; asked for {bool(trainable)}: one variable "
            "is trainable in all jobs or in none"
        )
    job.variables[name] = variable
    return variable


def new_variable(shape: tuple[int, ...], variable_dtype: dtype, initializer: Initializer, trainable: bool) -> Parameter:
    """A parameter with its first values, which are computed now, also while a graph is being recorded."""
    tracer, modes.tracer = modes.tracer, None
    try:
        with no_grad():
            values = empty(shape, dtype=variable_dtype)
            initializer(values)
            return Parameter(values, requires_grad=trainable)
    finally:
        modes.tracer = tracer


def get_all_variables() -> dict[str, Parameter]:
    """All variables by name, for example to `flow.save` them."""
    return dict(_variables)


def load_variables(values: Mapping[str, Any]) -> None:
    """Set variables that exist to these values, tensors or arrays by name.

    Raises:
        ArgumentTypeError: for anything but a dict.
        CheckpointError: for a name or a shape that does not fit; nothing is then changed.
    """
    if not isinstance(values, Mapping):
        raise ArgumentTypeError(f"load_variables: got a {type(values).__name__}; expected a dict of values by name")
    tensors = {name: as_tensor(value) for name, value in values.items()}
    for name, value in tensors.items():
        if name not in _variables or value.shape != _variables[name].shape:
            known = {key: tuple(p.shape) for key, p in list(_variables.items())[:8]}
            raise CheckpointError(
                f"load_variables: got {name!r} of shape {tuple(value.shape)}; expected some of {known}"
            )
    with no_grad():
        for name, value in tensors.items():
            _variables[name].copy_(value.to(_variables[name].device))


def clear_default_session() -> None:
    """Forget all variables. Jobs that were compiled keep theirs."""
    _variables.clear()


# initializers


def constant_initializer(value: float = 0.0) -> Initializer:
    """Fill variables with a number."""
    return lambda tensor: init.constant_(tensor, value)


def zeros_initializer() -> Initializer:
    """Fill variables with 0."""
    return init.zeros_


def ones_initializer() -> Initializer:
    """Fill variables with 1."""
    return init.ones_


def random_uniform_initializer(minval: float = 0.0, maxval: float = 1.0) -> Initializer:
    """Fill variables with numbers uniform between two bounds."""
    return lambda tensor: init.uniform_(tensor, minval, maxval)


def random_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> Initializer:
    """Fill variables with normal numbers."""
    return lambda tensor: init.normal_(tensor, mean, stddev)


def truncated_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> Initializer:
    """Fill variables with normal numbers that are at most two standard deviations from the mean."""
    return lambda tensor: init.trunc_normal_(tensor, mean, stddev, mean - 2 * stddev, mean + 2 * stddev)
