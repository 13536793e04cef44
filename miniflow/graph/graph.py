"""nn.Graph: a step that is recorded once, rewritten, and replayed.

    class Train(nn.Graph):
        def __init__(self, model, loss_function, optimizer):
            super().__init__()
            self.model = model
            self.loss_function = loss_function
            self.add_optimizer(optimizer)

        def build(self, x, y):
            loss = self.loss_function(self.model(x), y)
            loss.backward()
            return loss

    step = Train(model, loss_function, optimizer)
    for x, y in loader:
        loss = step(x, y)

The first call records what `build` does on symbolic tensors, backward, clipping and the update of the parameters
included (`recording`), sends the record through the passes (`passes`), lays out memory (`plan`) and runs it (`replay`).
Further calls only run it. Python in `build` runs while recording and never again: branches, prints and side effects are
those of that time. A call with inputs of another shape, dtype or device, or after a flag, an option or a module has
changed, records again; `debug()` says why. Plans for ten kinds of inputs are kept, in memory that they share; what was
dropped is compiled again, with a warning. Hooks of modules run while recording too: the ops in them become part of the
graph, what else they do happens once.

Of the attributes of modules and of the graph, those count that `build` reads, to the last element of lists, dicts,
sets, arrays, dataclasses and objects without methods, and to the fields of other objects. Global variables, closures,
class attributes, `random`, `numpy.random` and the time are not looked at: they are burned in as they were, see
docs/architecture.md.

What is kept from call to call is in parameters, buffers and states of optimizers. An attribute that `build` reads and
then changes, `self.calls += 1`, is refused, and so is one that would carry a tensor from one call to the next. One that
it sets without reading it, `self.shape = x.shape`, is set by every call. A graph warns of tensors that differ from call
to call, such as activations that `forward` stores: after a call their attributes hold what they held before.

A buffer that `build` assigns, `self.h = h`, gets memory of the graph's modules at the first call, and each call writes
the new value there. So the tensor that was the buffer before stays as it was, but `old = module.h` after a call shows
what later calls write: keep `module.h.clone()`. Results have memory of their own, and inputs are the graph's own
copies: `build` does not change what was passed, and one in memory that `build` writes to before it reads it is refused.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from miniflow.amp.grad_scaler import GradScaler
from miniflow.dispatch.tape import modes, profiled
from miniflow.errors import ArgumentError, ArgumentTypeError, GraphError, GraphTraceError, PickleError
from miniflow.graph import describe, dynamic, picture, serialize
from miniflow.graph.attributes import GraphAttributes
from miniflow.graph.compiled import Compiled
from miniflow.graph.config import GraphConfig
from miniflow.graph.debug import DebugOutput, warn_of_sharing
from miniflow.graph.ir import Program
from miniflow.graph.memory import MemoryReport
from miniflow.graph.nested import Tree, check_arguments, constants, flatten
from miniflow.graph.replay import Arena
from miniflow.graph.saved.graph_file import Parts
from miniflow.graph.schedule import Schedule
from miniflow.graph.state import load_state, module_names, parameter_names, parameters_of, save_state
from miniflow.graph.trace import refuse_nesting
from miniflow.nn.modules.state import IncompatibleKeys
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.lr_scheduler.plateau import ReduceLROnPlateau
from miniflow.optim.optimizer import Optimizer
from miniflow.serialization.states import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLANS_KEPT = 10


@functools.cache
def worker() -> ThreadPoolExecutor:
    """The thread that runs submitted calls, created on first use."""
    return ThreadPoolExecutor(1, "miniflow.nn.Graph")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=worker.cache_clear)  # a forked child does not have the threads of its parent

_counts: defaultdict[str, itertools.count] = defaultdict(itertools.count)


class Graph(GraphAttributes, DebugOutput):
    """A computation that is recorded at its first call and replayed at the others.

    Assign modules to attributes in `__init__`, override `build`, and call the graph. With an optimizer, a call is a
    training step: `build` calls backward, and the update of the parameters belongs to the graph. Parameters share
    their memory with eager code, which sees the new values; their `.grad` is left alone.

    No gradient flows from one call into the one before: what a step leaves in buffers counts as detached. In-place
    operations on inputs change copies of them; two inputs in one memory, of which `build` writes to one, are refused.

    Python in `build` runs while recording only. A call records again when an attribute that `build` read of a module or
    graph has changed. Burned in are global variables, closures, class attributes, `random`, `numpy.random` and the
    time: pass what changes as a tensor, or make it an attribute; draw with `flow.rand`; count in a buffer.

    Args:
        debug_v_level: what is printed, as in `debug`.
        enable_get_runtime_state_dict: of OneFlow; `flow.save` writes any compiled graph.

    Attributes:
        config: options, a `GraphConfig`.
        name: the class's name and a number: "Net_0".

    >>> import miniflow as flow
    >>> class Double(flow.nn.Graph):
    ...     def build(self, x):
    ...         return 2 * x
    >>> Double()(flow.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]

    Source: `oneflow.nn.Graph`.
    """

    def __init__(self, *, debug_v_level: int = -1, enable_get_runtime_state_dict: bool = False):
        name = type(self).__name__
        self.__dict__.update(
            name=f"{name}_{next(_counts[name])}",
            config=GraphConfig(),
            _blocks={},
            _options={},
            _optimizers=[],
            _whole={},  # the layouts of parameters and states before ZeRO shared them out
            _schedulers=[],
            _sparse=[],
            _grad_scaler=None,
            _train_step=0,
            _plans=[],
            _last=None,
            _kinds_kept=PLANS_KEPT,
            _arena=Arena(),
            _dropped=set(),
            _lock=threading.Lock(),
            _warned=set(),
            _parameter_positions={},
            _level=-1,
            _lines_shown=2,
            _forgotten="",
            _compilations=Counter(),
        )
        self.__dict__["_hidden"] = frozenset((*self.__dict__, "_hidden"))
        if debug_v_level >= 0:
            self.debug(debug_v_level)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """What the graph computes; every subclass overrides it."""
        remedy = ": rename its forward to build" if hasattr(type(self), "forward") else "."
        raise NotImplementedError(
            f"nn.Graph.build() method must be overridden when subclassing the nn.Graph, as {type(self).__name__} is"
            f"{remedy}"
        )

    # calling

    @profiled(lambda self: type(self).__name__)
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.tracer is not None or modes.autocast is not None:
            self._heed_modes()
        if kwargs:
            kwargs = self._initialised()._in_order(kwargs)
        with self._initialised()._lock:
            plan = self._last
            arrays = None if plan is None else plan.arrays_of(args, kwargs)
            if arrays is None or not plan.guards.is_same():
                plan, arrays = self._find(args, kwargs)
            return plan.run(arrays)

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Call the graph in a worker thread, so that the program prepares the next inputs meanwhile.

        One thread runs the submitted calls of all graphs, in order. A call that has to compile does so first, here.
        Random numbers are drawn here too, so that they are those of a program that calls the graph itself. Until the
        result is there, leave alone the inputs, and what the call reads and writes: parameters, learning rates. Calls
        that are not submitted may run before one that waits.

        Args:
            args, kwargs: as of a call.

        Returns:
            a future: `result()` waits for what the call returns, and raises what it raises.

        Raises:
            as a call, for inputs that do not fit.

        >>> import miniflow as flow
        >>> class Double(flow.nn.Graph):
        ...     def build(self, x):
        ...         return 2 * x
        >>> double, waiting = Double(), None
        >>> for i in range(3):
        ...     x = flow.full((2,), float(i))  # while the call before runs
        ...     if waiting is not None:
        ...         print(waiting.result().tolist())
        ...     waiting = double.submit(x)
        [0.0, 0.0]
        [2.0, 2.0]
        >>> waiting.result().tolist()
        [4.0, 4.0]

        Source: `concurrent.futures.Executor.submit`.
        """
        if modes.tracer is not None or modes.autocast is not None:
            self._heed_modes()
        if kwargs:
            kwargs = self._initialised()._in_order(kwargs)
        plan, arrays = self._initialised()._fitting(args, kwargs)
        if plan is None:
            with self._lock:
                plan, arrays = self._find(args, kwargs)
        return worker().submit(self._run, plan, arrays, plan.program.draws.drawn())

    def _run(self, plan: Compiled, arrays: list[Any], drawn: list[tuple[int, int]]) -> Any:
        with self._lock:
            self._use(plan)
            return plan.run(arrays, drawn)

    def _compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile for inputs like these without running it."""
        self._heed_modes()
        with self._initialised()._lock:
            self._find(args, self._in_order(kwargs))

    def _in_order(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments in the order of `build`'s parameters: the order in a call makes no other inputs of them."""
        positions = self._parameter_positions
        if not positions:
            positions.update({name: position for position, name in enumerate(inspect.signature(self.build).parameters)})
        return {name: kwargs[name] for name in sorted(kwargs, key=lambda name: positions.get(name, len(positions)))}

    def _find(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Compiled, list[Any]]:
        """The plan for a call, compiled if there is none, and the arrays of its tensors."""
        plan, arrays = self._fitting(args, kwargs)
        if plan is None:
            check_arguments(f"{self.name}.build", self.build, args, kwargs)
            tensors, tree = flatten((args, kwargs))
            for tensor in tensors:
                if getattr(tensor._array, "is_symbolic", False):
                    tensor._array.numpy()  # raises: it was left over from the recording of a graph
            self._warn_of_modes(tensors)
            plan = self._add_plan(tree, [describe.meta(tensor._array) for tensor in tensors])
            for tensor in tensors:
                plan.refuse_updated(tensor)
            arrays = [tensor._array for tensor in tensors]
        self._use(plan)
        return plan, arrays

    def _fitting(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Compiled | None, list[Any]]:
        """The plan for a call, if there is one, and the arrays of its tensors."""
        for plan in reversed(self._plans):
            arrays = plan.arrays_of(args, kwargs)
            if arrays is not None and plan.guards.is_same():
                return plan, arrays
        return None, []

    def _use(self, plan: Compiled) -> None:
        """Note that a plan is the one used last."""
        if plan is not self._last:
            self.__dict__["_last"] = plan
            if plan in self._plans:
                self._plans.remove(plan)
                self._plans.append(plan)

    def _add_plan(self, tree: Tree, metas: Sequence[tuple]) -> Compiled:
        reason = self._explain(tree, metas)
        for name, value in constants(tree, f"{self.name}_input"):
            self._warn_constant(name, value, "another value makes another plan; pass a tensor if it changes often")
        plan = Compiled(self, tree, metas)
        self._count_compilation(plan, reason)
        self._warn_of_options(plan)
        self._report(plan)
        self.__dict__["_plans"] = [old for old in self._plans if not old.guards.is_obsolete()]
        self._plans.append(plan)
        self._drop_plans(plan.kind)
        return plan

    def _drop_plans(self, kind: int) -> None:
        """Keep the plans of those kinds of inputs that were used last, and of the given kind those used last."""
        kinds = list(dict.fromkeys(plan.kind for plan in reversed(self._plans)))
        dropped, same = kinds[self._kinds_kept :], [plan for plan in self._plans if plan.kind == kind][:-PLANS_KEPT]
        self.__dict__["_plans"] = [p for p in self._plans if p.kind not in dropped and p not in same]
        self._dropped.update(dropped)
        if dropped:
            plans = f"plans for {self._kinds_kept} kinds of inputs"
            self._print(0, f"{self._shallow_repr()} keeps {plans}: that used longest ago was dropped.")

    def _full_config(self) -> GraphConfig:
        """The options with what modules and optimizers of this graph add to them: graphs may share one config."""
        config, modules, names = copy.copy(self.config), module_names(self._blocks), parameter_names(self)
        config._set_training(self.training)
        flagged = [module for module, options in self._options.items() if options.activation_checkpointing]
        config.checkpoint_scopes |= {modules[module] for module in flagged if module in modules}
        for optimizer, is_sparse in zip(self._optimizers, self._sparse, strict=True):
            if is_sparse:
                config.sparse_parameters |= {names[p] for p in parameters_of(optimizer)}
        return config

    def _options_key(self) -> tuple:
        """What a plan depends on of the options of the graph and of its modules."""
        of_modules = {module: options.options() for module, options in self._options.items()}
        return self.config.key(), {module: values for module, values in of_modules.items() if values}

    def _heed_modes(self) -> None:
        """Refuse a call while another graph is recorded; warn of autocast."""
        refuse_nesting(self.name)
        self._warn_of_modes(())

    # training

    def add_optimizer(self, optim: Optimizer, *, lr_sch: LRScheduler | None = None, is_sparse: bool = False) -> None:
        """Make every call a training step of this optimizer; several may be added, of different parameters.

        `build` then has to call backward; several calls add their losses, also of losses that share layers, where one
        call of their sum takes less time. Gradients are zeroed, clipped (as the group's "clip_grad_max_norm" says)
        and applied by the graph. All numbers of a group, as its learning rate, momentum and weight decay, are looked up
        at each call: schedules of them, and settings by hand, compile nothing again. Only one that becomes 0, or is 0
        no longer, does so, once: rules leave out what is 0.

        Where a gradient of any optimizer overflows under a grad scaler, all of them are left out in that call.

        A class that overrides `step` or `update` of one of flow.optim is recorded with what it computes. What it reads
        beside its groups is burned in, and one that changes the optimizer itself, such as a counter or a rate, is a
        GraphError at the first call.

        Args:
            optim: the optimizer.
            lr_sch: a schedule of it, stepped after each call.
            is_sparse: update only those rows of embeddings that a call has touched: equal for plain SGD, "lazy" for
                rules with a state.

        Raises:
            ArgumentTypeError: for anything but an optimizer and a scheduler of the library.
            ArgumentError: for an optimizer that was added before, a scheduler of another optimizer, or one that needs
                a metric.
            GraphError: after the first call.
        """
        self._initialised()._require_not_compiled("add_optimizer")
        if not isinstance(optim, Optimizer):
            raise ArgumentTypeError(f"add_optimizer: got a {type(optim).__name__}; expected a flow.optim.Optimizer")
        if optim.rule is None:
            raise ArgumentTypeError(
                f"add_optimizer: {type(optim).__name__} computes its update itself; a graph can record optimizers only "
                "that name the op of their update in `rule`, as those of flow.optim: step it outside of the graph"
            )
        if any(optim is other for other in self._optimizers):
            raise ArgumentError(
                f"add_optimizer: got the same {type(optim).__name__} twice; expected every optimizer once: each call "
                "would update its parameters twice"
            )
        if lr_sch is not None:
            self._check_scheduler(optim, lr_sch)
            self._schedulers.append(lr_sch)
        self._optimizers.append(optim)
        self._sparse.append(bool(is_sparse))
        self.config._set_training(True)

    def _check_scheduler(self, optim: Optimizer, lr_sch: Any) -> None:
        if isinstance(lr_sch, ReduceLROnPlateau):
            raise ArgumentError(
                "add_optimizer: ReduceLROnPlateau needs a metric; leave lr_sch out and call scheduler.step(metric) "
                "after the graph: the learning rate is looked up at each call"
            )
        if not isinstance(lr_sch, LRScheduler):
            raise ArgumentTypeError(
                f"add_optimizer: got a {type(lr_sch).__name__} as lr_sch; expected one of flow.optim.lr_scheduler"
            )
        if lr_sch.optimizer is not optim:
            raise ArgumentError(
                "add_optimizer: lr_sch.optimizer must be the optimizer that is added; it schedules another one"
            )

    def set_grad_scaler(self, grad_scaler: GradScaler | None = None) -> None:
        """Scale the loss before backward and the gradients back after it; see `flow.amp.GradScaler`.

        A call in which a gradient overflows updates nothing, also where only one of several optimizers met it; eager
        code, which calls `step` for each, leaves out that one alone.

        Raises:
            ArgumentTypeError: for anything but a GradScaler or StaticGradScaler.
            ArgumentError: if its backoff factor is not 1 / growth factor.
            GraphError: after the first call.
        """
        self._initialised()._require_not_compiled("set_grad_scaler")
        if grad_scaler is not None:
            if not isinstance(grad_scaler, GradScaler):
                raise ArgumentTypeError(
                    f"set_grad_scaler: got a {type(grad_scaler).__name__}; expected a flow.amp.GradScaler or "
                    "StaticGradScaler"
                )
            grad_scaler.check_for_graph()
        self.__dict__["_grad_scaler"] = grad_scaler

    def _require_not_compiled(self, what: str) -> None:
        if self.is_compiled:
            raise GraphError(f"{self.name}: {what} has to be called before the first call of the graph")

    @property
    def _micro_batches(self) -> int:
        """Into how many parts inputs are cut."""
        cuts = self._optimizers and "accumulation" not in self.config.disabled_passes
        return self.config.accumulation_steps if cuts else 1

    # state

    def state_dict(self) -> dict[str, Any]:
        """The states of modules by attribute, what optimizers remember, and the number of the training step.

        Optimizer states have OneFlow's names: `model.fc.weight-momentum`, `-m`, `-v`, `System-Train-TrainStep`. Tensors
        share their memory with modules and optimizers. `flow.save` writes it.
        """
        return save_state(self._initialised())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Take over what `state_dict` gave; before the first call only.

        Args:
            state_dict: of a graph with the same attributes and optimizers.
            strict: whether missing and unexpected names are errors; wrong shapes always are.

        Raises:
            GraphError: after the first call.
            CheckpointError: if the state does not fit; nothing is then changed.
        """
        return load_state(self._initialised(), state_dict, strict)

    @property
    def training(self) -> bool:
        """Whether an optimizer was added."""
        return bool(self._optimizers)

    @property
    def is_compiled(self) -> bool:
        """Whether a call, or `_compile`, has compiled it."""
        return self._last is not None

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise PickleError(
            f"{self.name}: graphs are not copied or pickled; make another graph over a copy of the module, or write "
            "flow.save(graph, folder)"
        )

    # what OneFlow's graphs have, and is done in another way here

    def runtime_state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        """OneFlow's state of a compiled graph; here `flow.save` writes that to files.

        Raises:
            GraphError: always.
        """
        raise GraphError(
            "runtime_state_dict: use flow.save(graph, folder), which writes the compiled graph with its weights"
        )

    def load_runtime_state_dict(self, *args: Any, **kwargs: Any) -> NoReturn:
        """OneFlow's way to take over a compiled graph; here `nn.Graph.load` reads it from files.

        Raises:
            GraphError: always.
        """
        raise GraphError("load_runtime_state_dict: use nn.Graph.load(folder), which reads what flow.save wrote")

    def share_from(self, shared_graph: Graph) -> None:
        """OneFlow's way to let graphs share weights; here they do so by having the same module."""
        warn_of_sharing("share_from(graph)", "; give both the same module")

    def enable_shared(self, mode: bool = True) -> None:
        """OneFlow's switch for `share_from`."""
        warn_of_sharing("enable_shared()", "")

    # looking at it

    @property
    def ir(self) -> Program:
        """The program that the last call ran, after all passes; `print(graph.ir)`.

        Raises:
            GraphError: before the first call.
        """
        return self._require_plan("ir").program

    @property
    def recorded(self) -> Program:
        """The program as it was recorded, before any pass.

        Raises:
            GraphError: before the first call.
        """
        return self._require_plan("recorded").recording.program

    _compiled_graph_proto = ir
    _full_graph_proto = recorded

    def _require_plan(self, what: str) -> Compiled:
        if self._last is None:
            raise GraphError(f"{self.name}.{what}: graph must be compiled first. Call it once.")
        return self._last

    def __repr__(self) -> str:
        return describe.graph_text(self._initialised())

    def show(self, *, recorded: bool = False, max_boxes: int = 400, figure: Figure | None = None) -> Figure:
        """Draw `ir`: modules as frames, forward, backward and update side by side, fused instructions dark.

        Args:
            recorded: draw the program as it was before all passes.
            max_boxes: refuse to draw more instructions than these.
            figure: a matplotlib figure to draw into; by default a new one from pyplot.

        Raises:
            GraphError: before the first call, or for more instructions.
        """
        plan = self._require_plan("show")
        program = plan.recording.program if recorded else plan.program
        return picture.draw(program, max_boxes=max_boxes, figure=figure)

    def memory(self) -> MemoryReport:
        """How much memory the last call's plan needs: `print(graph.memory())`, `graph.memory().picture()`.

        Raises:
            GraphError: before the first call.
        """
        return MemoryReport(self._require_plan("memory").replay.plan)

    def schedule(self, *args: Any, **kwargs: Any) -> Schedule:
        """When the stages of a pipeline compute which micro-batch: `print(graph.schedule())`.

        Args:
            args, kwargs: with those of a call, one step is made with them, and its tasks are measured. Where one
                process has all stages, they run one after another, and the picture shows when they would at once.

        Raises:
            GraphError: before the first call, if none is made, and for a graph without a pipeline.
        """
        seconds = None
        if not args and not kwargs:
            plan = self._require_plan("schedule")
        else:
            with self._initialised()._lock:
                plan, arrays = self._find(args, self._in_order(kwargs))
                if plan.program.stages > 1:
                    outputs, seconds = plan.replay.timed(plan.config, arrays)
                    plan.finish(outputs)
        if plan.program.stages == 1:
            raise GraphError(
                f"{self.name}.schedule: there is no pipeline; expected modules on several placements, "
                "module.config.set_stage(id, placement), and an optimizer"
            )
        return Schedule(self.config.pipeline_schedule, plan.program.stages, self._micro_batches, seconds)

    # made in other ways

    @contextmanager
    def _to_save(self) -> Iterator[Parts]:
        """What `flow.save` writes: the plan of the last call. Calls of other threads wait until the block is done.

        Raises:
            GraphError: before the first call, or if the plan would no longer be used.
        """
        if modes.tracer is not None:
            raise GraphTraceError(
                f"{self.name}: saved while {modes.tracer.program.name} is being recorded; save it after the call"
            )
        with self._initialised()._lock:
            plan = self._last
            if plan is None:
                raise GraphError(f"{self.name}: graph must be compiled first. Call it once, then save it.")
            if not plan.guards.is_same():
                changed = "; ".join(plan.guards.differences())
                raise GraphError(
                    f"{self.name}: cannot be saved, since something has changed after the last call: {changed:.1000}; "
                    "call the graph once, then save it"
                )
            recording = plan.recording
            skipper = self._grad_scaler if recording.skips else None
            schedules = [(self._optimizers.index(s.optimizer), s) for s in self._schedulers]
            yield Parts(recording.program, plan.config, plan.tree, recording.result, skipper, schedules)

    def save(self, path: str | os.PathLike, *, serve: bool = False, **options: Any) -> None:
        """Write the graph as it is after its last call, as `flow.save(graph, path)` does.

        Args:
            path: of the folder.
            serve: whether the folder becomes a model for `python -m miniflow.serve`, with the graph in `1/model`.
            options: those of `miniflow.serve.prepare`, if it is to be served.

        Raises:
            GraphError, CheckpointError, FileWriteError: see `flow.save`, and `miniflow.serve.prepare`.
        """
        if serve:
            import_module("miniflow.serve.repository").save_model(self, path, **options)
        else:
            save(self, path)

    @staticmethod
    def load(path: str | os.PathLike, map_location: Any = None) -> serialize.LoadedGraph:
        """Read a compiled graph from the folder that `flow.save(graph, folder)` wrote; see `serialize.load_graph`."""
        return serialize.load_graph(path, map_location)

    @staticmethod
    def trace(function: Callable) -> Graph:
        """Decorate a function, or wrap a module, so that it is a graph; see `dynamic.trace`."""
        return dynamic.trace(Graph, function)

    @staticmethod
    def with_dynamic_input_shape(size: int = PLANS_KEPT, *, enable_shared: bool = True) -> Callable:
        """Decorate the `__init__` of a graph to keep up to `size` plans; see `dynamic.with_dynamic_input_shape`."""
        return dynamic.with_dynamic_input_shape(size, enable_shared)
