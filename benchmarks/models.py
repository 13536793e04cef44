"""Inference with models of torchvision and timm, whose source is unmodified, and of miniflow.vision; batch 1.

"vision/resnet50" is miniflow.vision's model on miniflow, and torchvision's on torch.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import numpy as np

from benchmarks.harness import in_turns, require_equal, seconds_per_call, table

MODELS = (
    "torchvision/resnet18 torchvision/resnet50 torchvision/mobilenet_v2 torchvision/mobilenet_v3_small "
    "torchvision/efficientnet_b0 torchvision/densenet121 torchvision/squeezenet1_1 torchvision/shufflenet_v2_x1_0 "
    "torchvision/vgg11 torchvision/vit_b_16 torchvision/swin_t torchvision/convnext_tiny timm/vit_tiny_patch16_224 "
    "timm/vit_small_patch16_224 timm/deit_tiny_patch16_224 timm/swin_tiny_patch4_window7_224 timm/pvt_v2_b0 "
    "timm/mixer_s32_224 timm/resmlp_12_224 timm/gmlp_ti16_224 timm/convnext_atto timm/efficientnet_b0 timm/regnety_002 "
    "timm/mobilevit_xxs timm/xcit_nano_12_p16_224 timm/ghostnet_100 vision/resnet50 vision/mobilenet_v2 vision/vit_b_16"
).split()
TOLERANCE = 1e-3
# of torchvision's compiled part, which is loaded by the release of torch that it was built for only
OPERATORS = (
    "nms qnms roi_align qroi_align ps_roi_align roi_pool ps_roi_pool deform_conv2d _roi_align_backward "
    "_ps_roi_align_backward _roi_pool_backward _ps_roi_pool_backward _deform_conv2d_backward"
).split()
libraries: list[Any] = []  # which have to live


def declare_operators(torch: Any) -> None:
    """Let torchvision be imported where its compiled part cannot be loaded: its operators get a name, and no body."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        libraries.append(torch.library.Library("torchvision", "DEF"))
        for name in OPERATORS:
            libraries[0].define(f"{name}(Tensor x) -> Tensor")


def numbers(name: str, shape: tuple[int, ...], draw: np.random.Generator) -> np.ndarray:
    """Values for a parameter or a buffer, with which a deep model neither explodes nor vanishes."""
    if len(shape) > 1:
        return draw.standard_normal(shape, np.float32) / np.float32(math.sqrt(math.prod(shape[1:])))
    center = 1.0 if name.endswith(("weight", "running_var")) else 0.0
    return (center + 0.1 * draw.uniform(-1, 1, shape)).astype(np.float32)


def time_model(framework: str, threads: int, model: str) -> dict:
    """The time of a call in ms, nan if the model cannot be traced or compiled, and what it computes.

    Args:
        framework: "miniflow", "miniflow.graph", "torch" or "torch.compile".
        model: "torchvision/NAME", "timm/NAME" or "vision/NAME".
    """
    flow = importlib.import_module(framework.partition(".")[0])
    if flow.__name__ == "torch":
        flow.set_num_threads(threads)
        declare_operators(flow)
    else:
        flow.mock_torch.enable()
    library, _, name = model.partition("/")
    if library == "timm":
        make = importlib.import_module("timm").create_model
    elif library == "vision" and flow.__name__ == "miniflow":
        make = flow.vision.models.create_model
    else:
        make = importlib.import_module("torchvision").models.get_model
    network = make(name).eval()
    draw = np.random.default_rng(0)
    values = {
        name: flow.tensor(numbers(name, tuple(value.shape), draw)) if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    network.load_state_dict(values)
    size = network.default_cfg["input_size"][-1] if library == "timm" else 224
    images = flow.tensor(draw.standard_normal((1, 3, size, size), np.float32))
    with flow.no_grad():
        result = network(images).flatten().tolist()
        try:
            call = faster(flow, framework, network)
            found = call(images).flatten().tolist()
        except Exception as error:  # whatever the compiler of the framework does not know
            print(f"{framework} {model}: {error!r}"[:500], file=sys.stderr)
            return {"ms": math.nan, "outputs": result}
        return {"ms": 1e3 * seconds_per_call(lambda: call(images), threads), "outputs": found}


def faster(flow: Any, framework: str, network: Any) -> Any:
    """The network as this framework runs it."""
    if framework == "torch.compile":
        return flow.compile(network)
    if framework != "miniflow.graph":
        return network

    class Inference(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def build(self, images: Any) -> Any:
            return self.network(images)

    return Inference()


def report(threads: int, peers: list[str], names: list[str] = MODELS) -> str:
    """The table for this number of threads."""
    rows = []
    for model in names:
        found = in_turns("models.time_model", ["miniflow", "miniflow.graph", *peers], threads, model=model)
        for framework in found:
            require_equal(f"{model} {framework}", found[framework]["outputs"], found["torch"]["outputs"], TOLERANCE)
        times = {framework: report["ms"] for framework, report in found.items()}
        best = min(times[peer] for peer in peers if not math.isnan(times[peer]))
        ratios = [times[framework] / best for framework in ("miniflow", "miniflow.graph")]
        rows.append([model, *(f"{ms:.1f}" for ms in times.values()), *(f"{ratio:.2f}" for ratio in ratios)])
    header = ["inference", *(f"{framework} ms" for framework in times), "ratio", "ratio of the graph"]
    clock = "CPU time" if threads == 1 else "wall time"
    return table(f"Models of torchvision and timm, batch 1; {threads} thread(s), {clock}", header, rows)
