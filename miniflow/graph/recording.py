"""One run of `build` under the tracer: what the step of a graph is, and what else has to be known to replay it.

A step is `build`; with optimizers, then, as in OneFlow, unscaling and clipping of gradients, and their updates. The
learning rate schedules are stepped after each replay, since they are Python.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from miniflow.amp.autocast import autocast
from miniflow.dispatch.tape import enable_grad
from miniflow.errors import GraphError, GraphTraceError
from miniflow.graph.accesses import reads_noted
from miniflow.graph.attributes import GraphAttributes
from miniflow.graph.describe import io_lines, meta, module_head, parameter_lines
from miniflow.graph.ir import INPUT, UPDATE, Program, Scalar, Slot
from miniflow.graph.nested import TENSOR, Tree, constants, flatten, named_leaves, unflatten
from miniflow.graph.schedule import stages_of
from miniflow.graph.snapshot import Snapshot
from miniflow.graph.state import module_names, parameter_names, parameters_of, tensors_of
from miniflow.graph.trace import Tracer
from miniflow.graph.uses import Uses
from miniflow.nn.modules.hooks import call_with_hooks
from miniflow.nn.modules.module import Module
from miniflow.optim.optimizer import Optimizer
from miniflow.parallel.nest import each_tensor
from miniflow.parallel.partition import GlobalMeta, local_shape
from miniflow.parallel.placement import placement
from miniflow.sbp import B
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.graph import Graph


class Recording(Tracer):
    """The recording of a graph's step for inputs of one kind.

    Args:
        graph: to be recorded.
        tree: of its arguments, `(args, kwargs)`.
        metas: shape, dtype and device of the tensors among them.
        checkpoint_scopes: the names of modules whose activations are checkpointed.

    Attributes:
        result: the tree of what `build` returned.
        updated: the optimizers, each with the parameters that it updates.
        skips: whether the last output says that the update was left out.
        calls: module -> the lines of inputs and outputs of its first call.
        input_lines, output_lines: of the graph.
    """

    def __init__(self, graph: Graph, tree: Tree, metas: Sequence[tuple], checkpoint_scopes: Collection[str]):
        super().__init__(graph.name, {**module_names(graph._blocks), graph: graph.name})
        self.graph = graph
        self.checkpoint_scopes = checkpoint_scopes
        self.tree = tree
        self.result: Tree | None = None
        self.updated: list[tuple[Optimizer, list[Tensor]]] = []
        self.skips = False
        self.calls: dict[Module, tuple[list[str], list[str]]] = {}
        self.input_lines = io_lines("INPUT", f"{graph.name}_input", tree, metas)
        self.output_lines: list[str] = []
        self._has_gradients = False
        # module, name and old tensor of buffers that build assigned, and the state in whose memory the new value lies
        self._assigned: list[tuple[Module, str, Tensor, Slot | None]] = []
        self._scale = Scalar("grad_scaler.scale", graph._grad_scaler.get_scale) if graph._grad_scaler else None
        self.program = self._record(metas)

    @property
    def modules(self) -> dict[Module, str]:
        """All that belong to the graph or were called, with their names."""
        return {module: name for module, name in self.names.items() if module is not self.graph}

    def _record(self, metas: Sequence[tuple]) -> Program:
        leaves = named_leaves(self.tree, f"{self.graph.name}_input")
        names = [name.removeprefix("_") for name, leaf in leaves if leaf.kind == TENSOR]
        steps = self.graph._micro_batches
        inputs = [(name, *micro(tensor_meta, steps, name)) for tensor_meta, name in zip(metas, names, strict=True)]
        no_cpu, no_cuda = (autocast(device_type, enabled=False) for device_type in ("cpu", "cuda"))
        with enable_grad(), no_cpu, no_cuda, reads_noted((Module, GraphAttributes)):
            program = self.record(self._step, inputs, list(tensors_of(self.graph)))
        if program.is_global:
            self._check_stages(program)
        return self._give_own_memory(program)

    # the step

    def _step(self, *tensors: Tensor) -> list[Tensor]:
        graph = self.graph
        args, kwargs = unflatten(self.tree, tensors)
        self._forget_gradients(parameter_names(graph))
        graph._print(1, "\n".join(self.input_lines))
        returned = graph.build(*args, **kwargs)
        self._warn_of_written_inputs()
        self._check_attributes()
        self._write_assigned_buffers()
        outputs, self.result = flatten(returned)
        metas = [meta(tensor._array) for tensor in outputs]
        self.output_lines = io_lines("OUTPUT", f"{graph.name}_output", _as_arguments(self.result), metas)
        graph._print(1, "\n".join(self.output_lines))
        for name, value in constants(_as_arguments(self.result), f"{graph.name}_output"):
            graph._warn_constant(name, value, "every call returns it as it was in the first")
        skip = self._update() if graph._optimizers else None
        self.skips = skip is not None
        return outputs if skip is None else [*outputs, skip]

    def _forget_gradients(self, parameters: Iterable[Tensor | None]) -> None:
        """Let the step begin without gradients: what eager code left in `.grad` is not part of it."""
        if self.graph._optimizers:
            for p in parameters:
                if p is not None:
                    self.keep_gradient(p)

    def _update(self) -> Tensor | None:
        """Unscaling, clipping and the steps of the optimizers; returns whether they are to be left out."""
        graph = self.graph
        if not self._has_gradients:
            raise GraphError(
                f"{graph.name}: build did not call backward, but the graph has an optimizer; "
                "call loss.backward() in build, or add no optimizer to a graph that only predicts"
            )
        for optimizer in graph._optimizers:
            params = [p for p in parameters_of(optimizer) if p._grad is not None]
            if not params:
                raise GraphError(self._unreached(optimizer))
            self.updated.append((optimizer, params))
        skip = None
        if graph._grad_scaler is not None:
            with self.updating("grad_scaler"):
                everything = [p for _, params in self.updated for p in params]
                skip = graph._grad_scaler.unscale_in_graph(everything, self._scale)
        for number, optimizer in enumerate(graph._optimizers):
            with self.updating(f"optimizer.{number}", unless=skip):
                optimizer.clip_grad()
                self._step_of(optimizer)
        return skip

    def _step_of(self, optimizer: Optimizer) -> None:
        """The step of an optimizer; a class of the user's may override `step` and `update` with what can be recorded.

        Raises:
            GraphError: if it changes the optimizer itself, which calls would not do again.
        """
        if type(optimizer).__module__.startswith("miniflow.") and "step" not in vars(optimizer):
            optimizer.step()
            return
        entries = {p: dict(entry) for p, entry in optimizer.state.items()}
        before = {name: Snapshot(value) for name, value in kept_by(optimizer).items()}
        optimizer.step()
        now = kept_by(optimizer)
        changed = [name for name in {**before, **now} if name not in before or not before[name].is_like(now.get(name))]
        if not changed:
            return
        for name in set(changed) - {"state"}:
            vars(optimizer).pop(name, None)
            if name in before:
                before[name].restore(lambda tensor: True)
                vars(optimizer)[name] = before[name].value
        for p, entry in list(optimizer.state.items()):
            entry.clear()
            entry.update(entries.get(p, {}))
        raise GraphError(
            f"{self.graph.name}: {type(optimizer).__name__}.step changes {', '.join(changed)} of the optimizer, which "
            "calls would not do again: a graph records it once; expected a step that only computes with tensors: let a "
            "schedule change numbers, and let others step outside of graphs"
        )

    def _unreached(self, optimizer: Optimizer) -> str:
        """Why an optimizer got no gradient."""
        of_modules = {p for module in self.modules for p in module._parameters.values() if p is not None}
        reached = f"{self.graph.name}: backward reached no parameter of {type(optimizer).__name__}"
        if of_modules.isdisjoint(parameters_of(optimizer)):
            return (
                f"{reached}: they belong to no module of the graph; expected an optimizer of its parameters, e.g. "
                f"flow.optim.{type(optimizer).__name__}(graph.{next(iter(self.graph._blocks), 'model')}.parameters())"
            )
        return f"{reached}; do they require grad, and was the loss computed from them in build?"

    # what happens meanwhile

    def run(self, module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run a module that is called within build, and take note of its inputs and outputs."""
        self._forget_gradients(module._parameters.values())
        name, graph = self.names[module], self.graph
        args, kwargs = self._in_stage(module, (args, kwargs))
        inputs = _lines("INPUT", f"{name}_input", (args, kwargs))
        if graph._prints(1):
            graph._print(1, "\n".join([module_head(module, name), *inputs, *parameter_lines(module, name)]))
        result = call_with_hooks(module, args, kwargs)
        outputs = _lines("OUTPUT", f"{name}_output", ((result,), {}))
        graph._print(1, "\n".join(outputs))
        self.calls.setdefault(module, (inputs, outputs))
        return result

    def _in_stage(self, module: Module, arguments: Any) -> Any:
        """The arguments of a module, on the placement of its stage."""
        options = self.graph._options.get(module)
        where = None if options is None else options.stage_placement
        if not isinstance(where, placement):
            return arguments

        def move(x: Tensor) -> Tensor:
            if not x.is_global or x.placement == where:
                return x
            entries = x._array.placement_and_sbp.sbp
            return x.to_global(placement=where, sbp=entries if len(entries) == len(where.shape) else B)

        return each_tensor(arguments, move)

    def _check_stages(self, program: Program) -> None:
        """See to it that stages are numbered in the order of the data.

        Raises:
            GraphError: if they are not.
        """
        stages = [(o.stage_id, module, o) for module, o in self.graph._options.items() if o.stage_id is not None]
        numbers: dict[tuple[int, ...], int] = {}
        for number, module, options in sorted(stages, key=lambda stage: stage[0]):
            where = options.stage_placement
            is_told = isinstance(where, placement)
            for location in [where] if is_told else [p.placement for p in module.parameters() if p.is_global]:
                if numbers.setdefault(location.flat, number) != number and is_told:
                    raise GraphError(
                        f"{self.graph.name}: the stages {numbers[location.flat]} and {number} are both on {location}; "
                        "expected a placement for each, or one number for both: module.config.set_stage(id, placement)"
                    )
        order = [numbers[ranks] for ranks in stages_of(program) if ranks in numbers]
        if order != list(range(len(order))):
            raise GraphError(
                f"{self.graph.name}: the data pass through the stages {order}; expected stages that are numbered "
                "from 0 in the order of the data: module.config.set_stage(id, placement)"
            )

    def before_backward(self, tensors: tuple[Tensor, ...], gradients: Any) -> tuple[Tensor, ...]:
        """Check a call of backward within build, and scale the loss if there is a scaler.

        Raises:
            GraphError: if there is no optimizer, or if the loss is no scalar.
        """
        name = self.graph.name
        if not self.graph._optimizers:
            raise GraphError(
                f"{name}: backward was called in build, but the graph has no optimizer, and it leaves the .grad of "
                "parameters alone; call add_optimizer in __init__, or return flow.autograd.grad(loss, tensors)"
            )
        for tensor in tensors:
            if not tensor.requires_grad:
                raise GraphError(
                    f"{name}: backward was called on a tensor that needs no gradient; expected a loss computed from "
                    "parameters that require grad: without flow.no_grad() and detach(), and not from inputs alone"
                )
            if gradients is None and tensor.numel() != 1:
                raise GraphError(
                    f"{name}: Grad can be implicitly created only for scalar outputs, and the loss has shape "
                    f"{tuple(tensor.shape)}; reduce it: loss.mean().backward()"
                )
        self._has_gradients = True
        if self._scale is None:
            return tensors
        return tuple(self.graph._grad_scaler.scale_in_graph(tensor, self._scale) for tensor in tensors)

    def before_step(self, what: str, remedy: str) -> None:
        """Refuse what the graph does itself after `build`.

        Raises:
            GraphError: unless the graph calls it.
        """
        if self.phase != UPDATE:
            raise GraphError(f"{self.graph.name}: {what} was called in build; {remedy}")

    def before_clipping(self, what: str) -> None:
        """Refuse to clip gradients that are not yet those of the update: scaled ones, or those of a micro-batch.

        Raises:
            GraphError: unless the graph calls it.
        """
        graph = self.graph
        scaled = graph._grad_scaler is not None and graph._grad_scaler.is_enabled()
        if self.phase != UPDATE and (scaled or graph._micro_batches > 1):
            still = "are still multiplied by the scale" if scaled else "are those of one micro-batch"
            raise GraphError(
                f"{graph.name}: {what} was called in build, where gradients {still}; give the optimizer's groups "
                "'clip_grad_max_norm', by which the graph clips before the update"
            )

    def before_forward(self, module: Module) -> None:
        """Refuse direct calls of `forward` of modules whose activations are checkpointed: their scope would be lost.

        Raises:
            GraphTraceError: if it is not the module that is being called.
        """
        name = self.names.get(module)
        if name in self.checkpoint_scopes and self._scopes[-1:] != [name]:
            raise GraphTraceError(
                f"{self.graph.name}: {name}.forward was called directly, but the module has activation_checkpointing: "
                f"call the module itself, {name}(...)"
            )

    def _check_attributes(self) -> None:
        """Refuse attributes, other than buffers, that keep state, and warn of others that were given tensors.

        Raises:
            GraphTraceError: naming the attribute.
        """
        updated = {p for optimizer in self.graph._optimizers for p in parameters_of(optimizer)}
        parameters = [slot for slot, tensor in self.program.tensors.items() if tensor in updated]
        left = self.accesses.check([*self.first_writes(), *parameters])
        if left:
            self.graph._warn(
                "left behind",
                f"build left tensors in {', '.join(left)}; after a call these attributes hold what they held before "
                "it: return a tensor from build to see its values, and register_buffer what goes on from call to call",
            )

    def _write_assigned_buffers(self) -> None:
        """A buffer that `forward` reassigned, `self.mean = ...`, is one that every call writes to.

        Raises:
            GraphTraceError: if its new value does not fit into the old one.
        """
        accesses = self.accesses
        values = []
        for module, key, buffer in accesses.buffers():
            new, name = module._buffers.get(key), f"{self.graph.name}: build assigned"
            if new is None or (new.shape, new.dtype) != (buffer.shape, buffer.dtype):
                got = "None" if new is None else f"a tensor of shape {tuple(new.shape)} and {new.dtype}"
                raise GraphTraceError(
                    f"{name} {got} to the buffer {self.names[module]}.{key} of shape "
                    f"{tuple(buffer.shape)} and {buffer.dtype}; expected the same shape and dtype, so that calls can "
                    "go on from it"
                )
            if accesses.is_shared(buffer):
                raise GraphTraceError(
                    f"{name} the buffer {self.names[module]}.{key}, which is registered under another name too; "
                    "expected a tensor of its own: register buffer.clone()"
                )
            symbol = self.symbol_of(new._array, new)
            self._assigned.append((module, key, buffer, self.state_in(symbol.cell)))
            values.append((buffer, Tensor._wrap(symbol.copy())))
        for buffer, value in values:
            self.write(buffer, value)

    def _warn_of_written_inputs(self) -> None:
        for slot in self.first_writes():
            if slot.kind == INPUT:
                self.graph._warn(
                    f"writes {slot.name}",
                    f"build writes to its input {slot.name} in place, which changes the graph's own copy: the tensor "
                    "that was passed keeps its values; return the new ones from build",
                )

    def finish(self, outputs: Sequence[Any]) -> Program:
        """The program, with its `late_reads`."""
        program = super().finish(outputs)
        program.late_reads = list(self._late_reads(program))
        return program

    def _late_reads(self, program: Program) -> Iterator[tuple[int, Slot | int]]:
        """Positions of inputs, each with a state or another input of which `build` writes to one before it reads the
        other."""
        uses, starts = Uses(program), self.first_writes()
        positions = {slot: i for i, slot in enumerate(program.inputs)}
        for slot, i in positions.items():
            if slot in starts:
                yield from ((i, state) for state in program.states)
                yield from ((i, j) for other, j in positions.items() if other in starts and j < i)
                continue
            last = uses.last_read(slot)
            if last >= 0 and self.graph._micro_batches > 1:
                last = len(program.instructions)  # by a later micro-batch
            yield from ((i, positions.get(other, other)) for other, start in starts.items() if last >= start)

    def _give_own_memory(self, program: Program) -> Program:
        """Let each assigned buffer lie in memory that nobody else has: eager code, too, leaves the old tensor alone.

        Raises:
            GraphTraceError: for a buffer whose memory, or that of its new value, is that of another state.
        """
        slots = {id(tensor): slot for slot, tensor in program.tensors.items()}
        shared = [first._array for _, first in program.aliases]
        assigned = {slots.get(id(buffer)) for _, _, buffer, _ in self._assigned}
        for module, key, buffer, source in self._assigned:
            name = f"{self.graph.name}: build assigned the buffer {self.names.get(module, type(module).__name__)}.{key}"
            if any(buffer._array is array for array in shared):
                raise GraphTraceError(
                    f"{name}, whose memory another tensor of the step shares; expected memory of its own: register "
                    "tensor.clone()"
                )
            if source in program.writes and source not in assigned:
                raise GraphTraceError(
                    f"{name} the memory of {source.name}, which the step writes to; expected a value of its own: "
                    "tensor.detach().clone()"
                )
            if id(buffer) in slots and not buffer.__dict__.get("belongs_to_graphs"):
                fresh = Tensor._wrap(buffer._array.copy())
                fresh.__dict__["belongs_to_graphs"] = True
                fresh.requires_grad_(buffer.requires_grad)
                module._buffers[key] = program.tensors[slots[id(buffer)]] = fresh
        return program


def micro(value: tuple, steps: int, name: str) -> tuple:
    """Shape, dtype and device of a micro-batch; what has no dimensions is given to all of them.

    Raises:
        GraphError: if the first dimension cannot be cut into `steps` equal parts.
    """
    shape, dtype, device = value
    if steps == 1 or not shape:
        return value
    if shape[0] % steps:
        raise GraphError(
            f"set_gradient_accumulation_steps({steps}): {name} has shape {tuple(shape)}, whose first dimension cannot "
            f"be cut into {steps} equal micro-batches; use a batch size that {steps} divides"
        )
    cut = (shape[0] // steps, *shape[1:])
    if device.is_global:
        where, sbp = device.placement, device.sbp
        shards = [[local_shape(x, where, sbp, r)[0] for r in where.flat] for x in (shape, cut)]
        if shards[0] != [steps * n for n in shards[1]]:
            raise GraphError(
                f"set_gradient_accumulation_steps({steps}): {name} has shape {tuple(shape)}, of which ranks hold "
                f"{shards[0]} along the first dimension; expected shards that can be cut into {steps} equal parts"
            )
        device = GlobalMeta.of(where, sbp, cut, dtype)
    return cut, dtype, device


def _as_arguments(tree: Tree) -> Tree:
    """The tree of the result as OneFlow counts it: like that of arguments, `((result,), {})`."""
    parts = tree if tree.kind == "sequence" else Tree("sequence", tuple, children=(tree,))
    return Tree("sequence", tuple, children=(parts, Tree("dict", dict)))


def _lines(kind: str, prefix: str, values: Any) -> list[str]:
    tensors, tree = flatten(values, tell=False)
    return io_lines(kind, prefix, tree, [meta(tensor._array) for tensor in tensors], is_lazy=True)


def kept_by(optimizer: Optimizer) -> dict[str, Any]:
    """What an optimizer has from step to step: attributes of the user, groups, and states but for counts of steps."""
    attributes = {name: value for name, value in vars(optimizer).items() if not name.startswith("_")}
    states = [{name: x for name, x in entry.items() if name != "step"} for entry in optimizer.state.values()]
    return {**attributes, "state": states}
