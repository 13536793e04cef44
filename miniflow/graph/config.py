"""What an nn.Graph may be told about how to compile: `graph.config`.

The names are OneFlow's. Fusions that OneFlow leaves off until they are allowed are on here; every pass of
`graph/passes` can be switched off by its name with `disable_pass`. Options of OneFlow that have no meaning here are
taken with a warning that names what to use instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from miniflow.backends.runtime_defaults import user_level
from miniflow.dispatch.tape import note_change
from miniflow.dtype import HALF, as_dtype, float16
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError
from miniflow.graph.onnxruntime import PROVIDERS
from miniflow.graph.options import Option, Options, choice, count, switch
from miniflow.graph.passes import PIPELINE
from miniflow.graph.passes.zero import MODES as ZERO_MODES
from miniflow.graph.passes.zero import Zero
from miniflow.graph.schedule import schedule_of

MEMORY_PLANNING = "memory_planning"
PASSES = (*dict.fromkeys(PIPELINE), MEMORY_PLANNING)
STRAIGHTEN = ("Disable", "SpeedFirst", "MemoryFirst", "OverlapCpuGpu", "DelayShortGpu")
AUTO_MEMORY = ("Disable", "SlightMemoryDown", "ModerateMemoryDown", "HeavyMemoryDown", "AdaptiveMemory")


def _half(option: str, value: Any) -> np.dtype | None:
    if value is None:
        return None
    dtype = as_dtype(value)
    if dtype.numpy not in HALF:
        raise DTypeError(f"{option}: got dtype={dtype}; expected flow.float16 or flow.bfloat16")
    return dtype.numpy


def _passes(option: str, names: Iterable[str]) -> frozenset[str]:
    names = frozenset([names] if isinstance(names, str) else names)
    if names - set(PASSES):
        raise ArgumentError(f"{option}: got {sorted(names - set(PASSES))}; expected names among {', '.join(PASSES)}")
    return names


def _names(option: str, value: Iterable[str]) -> frozenset[str]:
    return frozenset(value)


def _schedule(option: str, value: str | Callable) -> str | Callable:
    schedule_of(value)
    return value


def _zero(option: str, value: Zero | None) -> Zero | None:
    if value is not None and not isinstance(value, Zero):
        raise ArgumentTypeError(f"{option}: got {value!r}; expected None, or call config.enable_zero(True, stage=2)")
    return value


def _engine(option: str, value: str | None) -> str | None:
    if value is not None and value not in PROVIDERS:
        raise ArgumentError(f"{option}: got {value!r}; expected None or one of {', '.join(PROVIDERS)}")
    return value


class GraphConfig(Options):
    """The options of one graph.

    Attributes:
        training: whether the graph has an optimizer; `add_optimizer` says so.
        amp_dtype: the half precision of automatic mixed precision, a NumPy dtype; None without it.
        accumulation_steps: into how many micro-batches each call cuts its inputs.
        checkpoint_scopes: the names of modules whose activations are computed again for backward, besides those whose
            own options say so.
        disabled_passes: names of passes that are left out.
        outputs_buffer_size: how many buffers each output takes in turn.
        sparse_parameters: names of the parameters that are updated only where their gradient has rows, besides those
            of optimizers that were added with `is_sparse`.
        pipeline_schedule: in which order pipeline stages compute micro-batches, see `set_pipeline_schedule`.
        zero: how the states of optimizers are shared out among ranks, a `passes.zero.Zero`; None if they are not.
        cuda_graph: whether calls are launched as CUDA graphs where that is possible.
        conv_heuristics: whether shapes tell which method computes a convolution; else the methods are timed.
        engine: what runs calls in place of the replay: "xla_jit", "tensorrt", "openvino"; None for the replay.
        is_static: whether another shape or dtype of an input is an error, as in OneFlow.

    >>> import miniflow as flow
    >>> class Double(flow.nn.Graph):
    ...     def build(self, x):
    ...         return 2 * x
    >>> graph = Double()
    >>> graph.config.disable_pass("cse")
    >>> graph.config
    (CONFIG:config:GraphConfig(training=False, disabled_passes=['cse'], ))

    Source: `oneflow.nn.graph.GraphConfig`.
    """

    amp_dtype = Option(None, _half, lambda numpy_dtype: ("enable_amp", as_dtype(numpy_dtype)))
    accumulation_steps = Option(1, count, lambda steps: ("gradient_accumulation_steps", steps))
    outputs_buffer_size = Option(2, count)
    pipeline_schedule = Option("1F1B", _schedule)
    zero = Option(None, _zero)
    cuda_graph = Option(False, switch)
    conv_heuristics = Option(True, switch)
    engine = Option(None, _engine, lambda engine: (f"enable_{engine}", True))
    is_static = Option(False, switch, lambda is_static: ("static_shapes", is_static), is_compiled=False)
    disabled_passes = Option(frozenset(), _passes, lambda names: ("disabled_passes", sorted(names)))
    checkpoint_scopes = Option(frozenset(), _names, is_shown=False)
    sparse_parameters = Option(frozenset(), _names, is_shown=False)
    training = False

    INSTEAD = {
        "training": "add_optimizer(optimizer) of the graph, which makes its calls training steps",
        "amp": "config.enable_amp({})",
        "gradient_accumulation_steps": "config.set_gradient_accumulation_steps({})",
        "activation_checkpointing": "graph.model.config.activation_checkpointing = {}, of the modules",
        "static_shapes": "config.static_shapes({})",
    }

    def _set_training(self, training: bool) -> None:
        """Take note of whether a graph with these options has an optimizer."""
        self.__dict__["training"] = training
        note_change()

    # what is computed

    def enable_amp(self, mode: bool = True, *, dtype: Any = float16) -> None:
        """Compute in half precision where it is safe; parameters stay float32.

        Args:
            mode: on or off.
            dtype: flow.float16 or flow.bfloat16.

        Raises:
            DTypeError: for another dtype.
        """
        half = _half("enable_amp", as_dtype(dtype))
        self.amp_dtype = half if switch("enable_amp", mode) else None

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Cut every input along its first dimension into `value` micro-batches, and update once with the mean gradient.

        Numbers, tensors of no dims, are passed whole; another input that is no batch, such as a mask for all rows, is
        cut too: keep it in a buffer. Of global tensors a micro-batch has a part of the rows of each rank, and outputs
        come back in the order of the batch. It has no effect in a graph without an optimizer.

        Raises:
            ArgumentError: unless it is an integer of at least 1.
        """
        self.accumulation_steps = count("set_gradient_accumulation_steps", value)

    def static_shapes(self, mode: bool = True) -> None:
        """Make it an error to call the graph with inputs of another shape, dtype or device than in the first call.

        That is OneFlow's behaviour. Without it, a graph compiles a second plan for them.
        """
        self.is_static = switch("static_shapes", mode)

    def set_outputs_buffer_size(self, value: int = 2) -> None:
        """Take `value` buffers in turn for each output. A buffer that somebody still holds is never written to.

        Raises:
            ArgumentError: unless it is an integer of at least 1.
        """
        self.outputs_buffer_size = count("set_outputs_buffer_size", value)

    def enable_cuda_graph(self, mode: bool = True) -> None:
        """On a GPU, launch a whole call at once as a CUDA graph, where the driver can and its numbers do not change.

        Other calls are replayed on the stream; see `graph/capture.py`. A graph that works on the CPU warns at its first
        call that there is nothing to launch.
        """
        self.cuda_graph = switch("enable_cuda_graph", mode)

    def set_pipeline_schedule(self, schedule: str | Callable = "1F1B") -> None:
        """In which order the stages of a pipeline compute the micro-batches of a step.

        Modules on other placements are its stages; `set_gradient_accumulation_steps` says how many micro-batches there
        are. `graph.schedule()` shows the order. Losses and gradients do not depend on it, the memory does.

        Args:
            schedule: "1F1B": one forward and one backward in turns, of stage s at most stages - s micro-batches are
                alive. "GPipe": first all forward, then all backward. Or a function of stage, number of stages and
                number of micro-batches that returns the order of the stage, a list of pairs ("forward", 0).

        Raises:
            ArgumentError: for another name.

        Source: Narayanan et al. 2021; Huang et al. 2019, "GPipe".
        """
        self.pipeline_schedule = schedule

    def enable_zero(
        self, mode: bool = True, *, stage: int = 2, shard_min_size: int = 1024, shard_restore_level: int = 1
    ) -> None:
        """Share out among ranks what the optimizer remembers of global parameters that they all hold whole (B).

        The states of the optimizer become S(0), and stay so after the call. Which bytes are kept and sent stands in
        `graph/passes/zero.py`. The losses do not change.

        Args:
            mode: on or off.
            stage: 1: the states. 2: the gradients too, which matters where there are micro-batches. 3: the parameters
                too, which are put together for forward, and again for backward.
            shard_min_size: a parameter is shared out if the part of each rank has at least so many elements.
            shard_restore_level: of OneFlow, without effect: parameters are always put together for their readers.

        Raises:
            ArgumentError: for another stage, or a size below 1.

        Source: `oneflow.nn.graph.GraphConfig.enable_zero`; Rajbhandari et al. 2020, "ZeRO".
        """
        if stage not in (1, 2, 3) or isinstance(stage, bool):
            raise ArgumentError(f"enable_zero: got stage={stage!r}; expected 1, 2 or 3")
        size = count("enable_zero", shard_min_size)
        self.zero = Zero(int(stage), size) if switch("enable_zero", mode) else None

    def set_zero_redundancy_optimizer_mode(self, mode: str = "distributed_split") -> None:
        """OneFlow 0.6's spelling of `enable_zero`.

        Args:
            mode: "distributed_split", or "non_distributed": the states of each parameter are on one rank.

        Raises:
            ArgumentError: for another mode.
        """
        choice("set_zero_redundancy_optimizer_mode", mode, ZERO_MODES)
        self.zero = replace(self.zero or Zero(), mode=mode)

    def set_zero_redundancy_optimizer_min_size_after_split(self, value: int) -> None:
        """OneFlow 0.7's spelling of `enable_zero(shard_min_size=)`, after `set_zero_redundancy_optimizer_mode`.

        Raises:
            ArgumentError: unless it is an integer of at least 1.
        """
        size = count("set_zero_redundancy_optimizer_min_size_after_split", value)
        self.zero = replace(self.zero or Zero(), min_size=size)

    # passes

    def disable_pass(self, *names: str) -> None:
        """Leave passes out.

        Raises:
            ArgumentError: for a name that no pass has; the message lists them.
        """
        self.disabled_passes |= _passes("disable_pass", names)

    def enable_pass(self, *names: str) -> None:
        """Take passes in again.

        Raises:
            ArgumentError: for a name that no pass has; the message lists them.
        """
        self.disabled_passes -= _passes("enable_pass", names)

    def _allow(self, option: str, mode: bool, name: str) -> None:
        (self.enable_pass if switch(option, mode) else self.disable_pass)(name)

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Fold unscaling, weight decay and clipping into the optimizer's update: the pass "fused_update". On anyway."""
        self._allow("allow_fuse_model_update_ops", mode, "fused_update")

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Let ops add to what they would have been added to: the pass "add_to_output". On anyway."""
        self._allow("allow_fuse_add_to_output", mode, "add_to_output")

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Cast and scale in one step: the pass "cast_scale". On anyway."""
        self._allow("allow_fuse_cast_scale", mode, "cast_scale")

    def enable_fused_model_update_cast(self, mode: bool = True) -> None:
        """Fold the cast of half-precision gradients into the update: part of the pass "fused_update". On anyway."""
        self._allow("enable_fused_model_update_cast", mode, "fused_update")

    def enable_multi_tensor_update(self, mode: bool = True) -> None:
        """Update all parameters of a group at once: the pass "multi_tensor_update". On anyway."""
        self._allow("enable_multi_tensor_update", mode, "multi_tensor_update")

    def enable_compress_memory(self, mode: bool = True) -> None:
        """Let results share memory when they are not needed at the same time: "memory_planning". On anyway."""
        self._allow("enable_compress_memory", mode, MEMORY_PLANNING)

    def enable_choose_best_memory_allocation(self, mode: bool = True) -> None:
        """As `enable_compress_memory`, OneFlow's other name for it."""
        self._allow("enable_choose_best_memory_allocation", mode, MEMORY_PLANNING)

    # how it is computed

    def enable_cudnn_conv_heuristic_search_algo(self, mode: bool = True) -> None:
        """Let shapes tell by which method a convolution is computed on the CPU, or time all methods before the first
        call.

        What was the fastest is taken from then on for convolutions of these shapes, in other graphs and in eager code
        too. Numbers differ by rounding from method to method. It pays for few channels: convolutions of 1 to 6 and of
        8 to 8 channels take 0.3 to 0.7 of the time, those of ResNet-18 mostly as long as before.

        Args:
            mode: False to time them.

        Source: `oneflow.nn.graph.GraphConfig.enable_cudnn_conv_heuristic_search_algo`; cuDNN is not used here.
        """
        self.conv_heuristics = switch("enable_cudnn_conv_heuristic_search_algo", mode)

    def enable_xla_jit(self, value: bool = True) -> None:
        """Let onnxruntime run calls, on its CPU provider; see `graph/onnxruntime.py`. There is no XLA in it.

        A graph with an optimizer, with random numbers, or whose modules train, is replayed as usual, and so is every
        graph where onnxruntime is not installed; a warning at the first call says why. Of several engines, the one that
        was enabled last runs.

        Source: `oneflow.nn.graph.GraphConfig.enable_xla_jit` of OneFlow 0.6.
        """
        self._run_by("xla_jit", value)

    def enable_tensorrt(self, value: bool = True) -> None:
        """Let onnxruntime run calls, on its TensorRT provider, which onnxruntime-gpu has; see `enable_xla_jit`."""
        self._run_by("tensorrt", value)

    def enable_openvino(self, value: bool = True) -> None:
        """Let onnxruntime run calls, on its OpenVINO provider, which onnxruntime-openvino has; see `enable_xla_jit`."""
        self._run_by("openvino", value)

    def _run_by(self, engine: str, mode: bool) -> None:
        if switch(f"enable_{engine}", mode):
            self.engine = engine
        elif self.engine == engine:
            self.engine = None

    # what has no meaning here

    def enable_straighten_algorithm(self, mode: str = "MemoryFirst") -> None:
        """OneFlow's choice of an order of execution; here instructions run in the order of the recording.

        Raises:
            ArgumentError: for a mode that OneFlow has not.
        """
        instead = "to save memory set module.config.activation_checkpointing = True"
        is_on = choice("enable_straighten_algorithm", mode, STRAIGHTEN, "mode=") != "Disable"
        instead = f"instructions run in the order in which build recorded them; {instead}"
        _no_effect("enable_straighten_algorithm", instead, is_on)

    def disable_straighten_algorithm(self, mode: str = "Disable") -> None:
        """Instructions run in the order of the recording: there is nothing to disable."""
        self.enable_straighten_algorithm(mode)

    def enable_auto_parallel(self, mode: bool = True) -> None:
        """OneFlow's search for SBP signatures."""
        _no_effect("enable_auto_parallel", "place parameters and inputs yourself", mode)

    def enable_auto_parallel_ignore_user_sbp_config(self, mode: bool = True) -> None:
        """An option of `enable_auto_parallel`."""
        _no_effect("enable_auto_parallel_ignore_user_sbp_config", "there is no search for SBP signatures", mode)

    def set_auto_parallel_computation_cost_ratio(self, ratio: float) -> None:
        """An option of `enable_auto_parallel`."""
        _no_effect("set_auto_parallel_computation_cost_ratio", "there is no search for SBP signatures")

    def set_auto_parallel_wait_time(self, cost: float) -> None:
        """An option of `enable_auto_parallel`."""
        _no_effect("set_auto_parallel_wait_time", "there is no search for SBP signatures")

    def enable_auto_parallel_trunk_algo(self, mode: bool = True) -> None:
        """An option of `enable_auto_parallel`."""
        _no_effect("enable_auto_parallel_trunk_algo", "there is no search for SBP signatures", mode)

    def enable_auto_parallel_sbp_collector(self, mode: bool = True) -> None:
        """An option of `enable_auto_parallel`."""
        _no_effect("enable_auto_parallel_sbp_collector", "there is no search for SBP signatures", mode)

    def enable_auto_memory(self, mode: str = "AdaptiveMemory") -> None:
        """OneFlow's choice of what to compute again.

        Raises:
            ArgumentError: for a mode that OneFlow has not.
        """
        is_on = choice("enable_auto_memory", mode, AUTO_MEMORY, "mode=") != "Disable"
        _no_effect("enable_auto_memory", "choose the modules: module.config.activation_checkpointing = True", is_on)

    def __repr__(self) -> str:
        options = "".join(f"{name}={value}, " for name, value in self.options().items())
        return f"(CONFIG:config:GraphConfig(training={self.training}, {options}))"


def _no_effect(option: str, instead: str, mode: Any = True) -> None:
    """Warn of an option that is switched on."""
    if switch(option, mode):
        warnings.warn(f"GraphConfig.{option} has no effect: {instead}.", stacklevel=user_level())
