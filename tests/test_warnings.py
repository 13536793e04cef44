"""Every warning of the package is seen by a program that is started from a shell, without any filter."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from tools.count_lines import sources

PACKAGE = Path(__file__).resolve().parent.parent / "miniflow"
HEAD = """
import os, tempfile
import numpy as np
import miniflow as flow
from miniflow import nn
from miniflow.hostcuda import cuda

class Run(nn.Graph):
    def __init__(self, function, *modules, optimizer=None):
        super().__init__()
        self.function = function
        self.m = nn.ModuleList(modules)
        if optimizer:
            self.add_optimizer(optimizer, is_sparse=True)

    def build(self, *args):
        return self.function(*args)

class Calls(nn.Module):
    def __init__(self, function, **values):
        super().__init__()
        self.function = function
        vars(self).update(values)

    def forward(self, x):
        return self.function(self, x)

def keep(m, x):
    m.last = x + 1
    return m.last * 1

x = flow.ones(3)
"""
TABLE = """
table = nn.Embedding(5, 2, dtype=flow.float32)
optimizer = flow.optim.SGD(table.parameters(), lr=0.1, weight_decay=0.5)
def step(i):
    loss = table(i).sum()
    loss.backward()
    return loss
"""
KERNEL = """
@cuda.jit{0}
def kernel(out):
    if cuda.grid(1) < 2:
        out[cuda.grid(1)] = 3
"""
SEEN = {  # where it is warned -> (a program, the words); `#` marks the line that the warning shows
    "ops/losses.py": ("nn.functional.mse_loss(x, flow.ones(2, 3))  #", "UserWarning: mse_loss: got input (3,) and"),
    "tensor.py": ("np.exp(x.clone().requires_grad_())  #", "that requires grad: no gradient flows through what it"),
    "nn/modules/module.py": (
        "nn.Linear(1, 1).to_consistent(flow.placement.all('cpu'), flow.sbp.broadcast)  #",
        "DeprecationWarning: to_consistent is an older name",
    ),
    "parallel/tensors.py to_consistent": (
        "x.to_consistent(flow.placement.all('cpu'), flow.sbp.broadcast)  #",
        "DeprecationWarning: to_consistent is an older name",
    ),
    "parallel/tensors.py is_consistent": ("x.is_consistent  #", "DeprecationWarning: is_consistent is an older name"),
    "parallel/group.py": (
        "flow.parallel.simulate(2)\nflow.comm.all_reduce(x, group=flow.distributed.new_group([1]))  #\n"
        "flow.parallel.simulate(1)",
        "rank 0 is not in the group [1] and does nothing",
    ),
    "parallel/world.py": ("", "UserWarning: WORLD_SIZE is 2, but this process is alone"),
    "graph/debug.py py_stack": (
        "Run(abs).debug(0, op_repr_with_py_stack=True)  #",
        "UserWarning: Run_0: op_repr_with_py_stack=True and only",
    ),
    "graph/debug.py constant": ("Run(flow.add)(x, 2)  #", "is of type int, not Tensor, and becomes a constant"),
    "graph/debug.py autocast": (
        "with flow.autocast('cpu'):\n    Run(abs)(x)  #",
        "a graph does not see the autocast around its call",
    ),
    "graph/debug.py inputs": ("Run(abs)(x.clone().requires_grad_())  #", "an input requires grad, but no gradient"),
    "graph/debug.py compilations": (
        "m = Calls(lambda m, x: x * m.p, p=0.0)\ng = Run(m, m)\nfor m.p in (1.0, 2.0, 3.0, 4.0):\n    g(x)  #",
        "compiled for the 4th time",
    ),
    "graph/recording.py left": (
        "m = Calls(keep, last=flow.zeros(3))\nRun(m, m)(x)  #",
        "build left tensors in function.last",
    ),
    "graph/recording.py writes": ("Run(lambda x: x.add_(1))(x)  #", "build writes to its input"),
    "graph/config.py": ("Run(abs).config.enable_auto_memory()  #", "GraphConfig.enable_auto_memory has no effect"),
    "graph/dynamic.py": (
        "nn.Graph.with_dynamic_input_shape(size=3, enable_shared=False)  #",
        "enable_shared=False has no effect",
    ),
    "graph/onnxruntime.py": (
        "g = Run(lambda x: x + flow.rand(3))\ng.config.enable_xla_jit()\ng(x)  #",
        "enable_xla_jit has no effect, the graph is replayed as usual: it draws random numbers",
    ),
    "graph/passes/__init__.py": (
        "os.environ['MINIFLOW_DEBUG_PASS'] = 'csee'\nRun(abs)(x)  #\ndel os.environ['MINIFLOW_DEBUG_PASS']",
        "MINIFLOW_DEBUG_PASS='csee' shows nothing",
    ),
    "graph/passes/sparse_update.py": (
        f"{TABLE}Run(step, table, optimizer=optimizer)(flow.tensor([1, 2]))  #",
        "is_sparse=True: m.0.weight is updated as a whole",
    ),
    "graph/debug.py nhwc": (
        "os.environ['MINIFLOW_ENABLE_NHWC'] = '1'\nRun(abs)(x)  #\ndel os.environ['MINIFLOW_ENABLE_NHWC']",
        "MINIFLOW_ENABLE_NHWC has no effect: images stay channels first",
    ),
    "graph/debug.py cuda_graph": (
        "g = Run(abs)\ng.config.enable_cuda_graph()\ng(x)  #",
        "enable_cuda_graph has no effect: the graph works on the CPU",
    ),
    "graph/debug.py zero": (
        "g = Run(abs)\ng.config.enable_zero()\ng(x)  #",
        "enable_zero has no effect: tensors of the graph are local",
    ),
    "graph/debug.py": ("Run(abs).enable_shared()  #", "nn.Graph: enable_shared() has no effect"),
    "mock_torch.py": (
        "import miniflow.mock_torch as mock_torch\nwith mock_torch.enable():\n    import torch\n"
        "    torch.autograd.set_detect_anomaly(True)  #",
        "UserWarning: torch.autograd: anomalies in backward are not detected",
    ),
    "vision/models/registry.py": (
        "folder = tempfile.mkdtemp()\nmodels = flow.vision.models\n"
        "flow.save(models.squeezenet1_1(num_classes=2).state_dict(), folder + '/w.safetensors')\n"
        "models.create_model('squeezenet1_1', checkpoint=folder + '/w.safetensors', num_classes=3)  #",
        "w.safetensors is for other classes: not loaded are classifier.1.weight, classifier.1.bias",
    ),
    "vision/models/detection/backbones.py": (
        "flow.vision.models.detection.ssdlite320_mobilenet_v3_large(num_classes=2, trainable_backbone_layers=1)  #",
        "trainable_backbone_layers needs trained weights: all layers are trained",
    ),
    "onnx/exporter/api.py": ("flow.onnx.export(nn.Linear(3, 2), (x,))  #", "export: the model is in training mode"),
    "hostcuda/arguments.py": (
        KERNEL.format("") + "kernel[1, 2](np.zeros(2))  #",
        "ImplicitCopyWarning: argument 1 is a NumPy array",
    ),
    "hostcuda/memory.py": (
        KERNEL.format("(check=True)") + "out = cuda.device_array(3)\nkernel[1, 2](out)\nout.copy_to_host()  #",
        "UnwrittenWarning: 1 of 3 elements of `out` were never written",
    ),
    "hostcuda/cache.py": ("", "CacheWarning: compiled kernels are not kept (others may replace"),
    "hostcuda/choice.py": ("", "Kernels run on the CPU; MINIFLOW_CUDA=host says so silently"),
}


def warnings_of(program: str, folder: Path, **environment: str) -> list[str]:
    """What a program writes to stderr, line by line."""
    path = folder / "program.py"
    path.write_text(HEAD + program)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    environment = {**inherited, "MINIFLOW_CUDA": "host", **environment}
    ran = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.splitlines()


def test_each_is_seen_at_the_line_of_the_user(tmp_path):
    shown = [case for case, (code, _) in SEEN.items() if code and code.endswith(("#", "]"))]
    program = "\n".join(
        f"def case_{i}():\n    " + SEEN[c][0].strip().replace("\n", "\n    ") for i, c in enumerate(shown)
    )
    told = warnings_of(program + "".join(f"\ncase_{i}()" for i in range(len(shown))), tmp_path)
    lines = (HEAD + program).splitlines()
    marked = iter([number for number, line in enumerate(lines, 1) if line.endswith("#")])
    missing = []
    for case in shown:
        here = f"program.py:{next(marked)}: "
        if not any(here in line and SEEN[case][1] in line for line in told):
            missing.append(f"{here}{case}")
    assert not missing, "\n".join(missing + told)


def test_of_an_unsafe_cache(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    code = KERNEL.format("") + "kernel[1, 2](cuda.device_array(2))"
    told = warnings_of(code, tmp_path, MINIFLOW_CACHE_DIR=str(folder / "mine"))
    assert [SEEN["hostcuda/cache.py"][1] in line for line in told if "Warning" in line] == [True], told


def test_of_a_lonely_rank_and_a_gpu_that_cannot_be_used(tmp_path):
    told = warnings_of("", tmp_path, WORLD_SIZE="2")
    assert any(SEEN["parallel/world.py"][1] in line for line in told), told
    broken = "import miniflow.hostcuda.choice as c\nc.gpu_count = lambda: 1\n"
    broken += "def real(): raise c.CudaDeviceError('numba-cuda is not installed')\nc.real = real\nc.choose()"
    told = warnings_of(broken, tmp_path, MINIFLOW_CUDA="")
    assert any(SEEN["hostcuda/choice.py"][1] in line for line in told), told


def test_numpy_is_silent(tmp_path):
    assert warnings_of("flow.log(x * 0), x / 0, flow.exp(x * 1e9), flow.zeros(2) / 0", tmp_path) == []


def test_there_are_no_others():
    """Each file that warns has a row, and none whose category is filtered where it is raised."""
    found, categories = set(), set()
    for path in sources(PACKAGE):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if re.fullmatch(r"warnings\.warn|.*\._warn", called):
                found.add(str(path.relative_to(PACKAGE)))
                categories |= {ast.unparse(a) for a in node.args[1:] if called == "warnings.warn"}
    assert found == {case.split()[0] for case in SEEN}
    assert categories == {"DeprecationWarning", "CacheWarning", "ImplicitCopyWarning", "UnwrittenWarning"}
