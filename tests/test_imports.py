"""Imports point downward: no module imports from a layer above its own, and there are no cycles."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import miniflow
from tools.count_lines import LIBRARY, RINGS, files, sources

ROOT = Path(__file__).parents[1] / "miniflow"

LAYERS = [  # from the ground up; a package stands for all of its modules but those that are named themselves
    ["errors", "hostcuda"],
    ["dtype", "device", "sbp", "typing", "formulas"],
    ["kernels"],
    ["backends"],
    ["dispatch", "dispatch.context_decorator", "dispatch.tape"],
    ["tensor"],
    ["dispatch.call_errors"],
    ["dispatch.dispatcher", "dispatch.composite"],
    ["ops"],
    ["parallel"],
    ["autograd", "cuda", "amp"],
    ["linalg", "special"],
    ["nn"],
    ["optim", "serialization", "distributed"],
    ["utils", "distributions", "profiler"],
    ["data"],
    ["vision", "utils.vision"],
    ["show"],
    ["graph"],
    ["func"],
    [""],  # miniflow/__init__.py, the public names
    ["serve"],
    ["onnx"],  # is imported when it is first used
    ["mock_torch", "warm"],
    ["__main__"],
]
LATER = {  # imported by name when first used, by a module that stands below
    ("", "mock_torch"): "it imports the public names",
    ("", "onnx"): "it imports the public names",
    ("hostcuda.choice", "hostcuda.host"): "the executor takes long to load",
    ("backends.memory", "backends.cuda"): "the first array on a CUDA device loads what makes it",
    ("graph.graph", "serve"): "graph.save(path, serve=True) makes a model of a repository",
    ("graph.onnxruntime", "onnx"): "a graph is exported to the engine that it asks for",
    ("serialization.states", "graph.serialize"): "flow.load finds a graph in the file",
}
HEAVY = ["matplotlib", "onnx", "torch", "IPython", "pytest", "hypothesis", "mpi4py", "pandas", "PIL"]


def module_name(path: Path) -> str:
    """ops/shape.py is "ops.shape", ops/__init__.py is "ops", __init__.py is ""."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(sources(ROOT))}


def layer_of(module: str) -> int:
    """The position of a module's layer in LAYERS."""
    top = "__main__" if module.endswith("__main__") else module.split(".")[0]
    found = [level for name in (module, top) for level, names in enumerate(LAYERS) if name in names]
    assert found, f"miniflow/{module.replace('.', '/')} is in no layer: add it to LAYERS where it belongs"
    return found[0]


def is_type_checking(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:`, whose imports never run."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def running_imports(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """All imports of a module, also those inside functions, but not those for type checkers."""
    found = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            found.append(child)
        found += [] if is_type_checking(child) else running_imports(child)
    return found


def module_of(name: str) -> str | None:
    """The module of miniflow that a dotted name belongs to."""
    if name.split(".")[0] != "miniflow":
        return None
    name = name.removeprefix("miniflow").removeprefix(".")
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def imports_of(module: str) -> set[str]:
    """The modules of miniflow that a module imports, by a statement, or in a string: `import_module("miniflow.graph")`.

    A string that only begins with the name of a package, as in `f"miniflow.backends.cuda.{name}"`, stands for it.
    """
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    names = [name.partition(":")[0].removesuffix(".") for name in module_names_in_strings(tree)]
    for node in running_imports(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{module}: imports are absolute, from miniflow.x import y"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {found for name in names if (found := module_of(name)) is not None} - {module}


def module_names_in_strings(tree: ast.AST) -> list[str]:
    """Strings that name a module of miniflow, or what is in it ("miniflow.graph:Graph"), where some are imported so."""
    called = {ast.unparse(node.func).split(".")[-1] for node in ast.walk(tree) if isinstance(node, ast.Call)}
    if not called & {"import_module", "__import__", "_defer"}:
        return []
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named = [text for text in strings if re.fullmatch(r"miniflow(\.\w+)+\.?(:\w+)?", text)]
    return [text for text in named if module_of(text.partition(":")[0].removesuffix(".")) != ""]


@cache
def imports() -> dict[str, set[str]]:
    """What each module imports, but for what `LATER` says."""
    found = {module: imports_of(module) for module in MODULES}
    for module, package in LATER:
        later = {name for name in found[module] if name.startswith(package)}
        assert later, f"{module} no longer imports {package}: remove it from LATER"
        found[module] -= later
    return found


def test_the_package_was_found():
    assert len(MODULES) > 80 and "tensor" in MODULES and "ops.shape" in MODULES
    assert "dispatch.tape" in imports()["tensor"] and "tensor" not in imports()["dispatch.tape"]


def test_no_import_points_upward():
    upward = [(a, b) for a, imported in imports().items() for b in imported if layer_of(b) > layer_of(a)]
    assert not upward, f"imports of modules from a layer above: {upward}"


def test_there_are_no_import_cycles():
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"import cycle: {' -> '.join([*path[path.index(module) :], module])}"
        if module not in done:
            for imported in sorted(imports()[module]):
                visit(imported, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())
    assert done == set(MODULES)


def test_kernels_know_arrays_only():
    for module, imported in imports().items():
        if module.startswith("backends"):
            names = {name for name in imported if not name.startswith("backends")}
            if module.startswith("backends.cuda"):
                names = {name for name in names if name.split(".")[0] not in ("hostcuda", "kernels")}
            names = {name for name in names if not name.startswith("formulas.")}
            known = {"dtype", "errors", "hostcuda.cache", "hostcuda.transcendental"}
            assert names <= known, f"{module} imports {sorted(names)}"
    assert any(module.startswith("backends.cpu.") for module in imports())


def test_kernels_import_cuda_and_each_other_only():
    """So that they run wherever `cuda` does: on a GPU, on the host executor and in the simulator."""
    for module, imported in imports().items():
        if module.startswith("kernels"):
            names = {name for name in imported if not name.startswith(("kernels", "formulas"))}
            assert names <= {"hostcuda"}, f"{module} imports {sorted(names)}"
    assert any(module.startswith("kernels.") for module in imports())


def test_hostcuda_stands_alone():
    for module, imported in imports().items():
        if module.startswith("hostcuda"):
            outside = {name for name in imported if not name.startswith("hostcuda")}
            assert not outside, f"{module} imports {sorted(outside)}: hostcuda imports nothing else of miniflow"
    assert "hostcuda.errors" in imports()["hostcuda"]


def test_devices_are_loaded_when_they_are_first_used():
    lazy = {"miniflow.backends.cuda", "miniflow.hostcuda.host", "miniflow.kernels", "numba.cuda"}
    assert not lazy & modules_after_import()
    assert "miniflow.cuda" in modules_after_import()


def test_graphs_are_loaded_when_they_are_first_used():
    assert not {"miniflow.graph", "miniflow.graph.job_optimizer"} & modules_after_import()
    assert {"graph", "optimizer", "global_function"} <= set(dir(miniflow))
    assert "Graph" in dir(miniflow.nn) and miniflow.nn.Graph is miniflow.graph.Graph
    with pytest.raises(AttributeError, match="module 'miniflow.nn' has no attribute 'Grape'"):
        _ = miniflow.nn.Grape


def test_vision_is_loaded_when_it_is_first_used():
    assert not [name for name in modules_after_import() if name.startswith("miniflow.vision")]
    assert "vision" in dir(miniflow) and miniflow.vision.models.LeNet.__module__ == "miniflow.vision.models.lenet"


def test_importing_miniflow_stays_light():
    assert not modules_after_import() & set(HEAVY)


def modules_after_import(cache: list[set[str]] = []) -> set[str]:  # noqa: B006  (kept between the tests)
    """What `import miniflow` brings into a fresh interpreter."""
    if not cache:
        code = "import miniflow, sys; print(' '.join(sys.modules))"
        result = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, check=True
        )
        cache.append(set(result.stdout.split()))
        assert "miniflow.tensor" in cache[0] and result.stderr == ""
    return cache[0]


def test_no_file_is_named_after_nothing():
    assert not {"utils.py", "helpers.py", "misc.py", "common.py"} & {path.name for path in MODULES.values()}


def test_no_file_is_pickled():
    """Pickle only passes samples between a DataLoader and its own workers; nothing that is kept is pickled."""
    picklers = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    found = set()
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if picklers & {name for node in ast.walk(tree) for name in _imported_names(node)}:
            found.add(module)
    assert found == {"utils.data.workers"}


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    return [node.module.split(".")[0]] if isinstance(node, ast.ImportFrom) and node.module else []


NAMES = {  # modules that are lists of public names, of the library too
    "", "autograd", "autograd.methods", "nn", "nn.functional", "nn.utils", "optim", "utils", "utils.data",
}  # fmt: skip


def test_the_core_does_not_import_the_library():
    """What is composed of public functions can be left unread: nothing in the core depends on it."""
    library = {module_name(path) for name in LIBRARY for path in files(ROOT.parent, name)}
    core = {
        module_name(path)
        for _, places in RINGS["core"].values()
        for place in places
        for path in files(ROOT.parent, place)
    }
    found = {(module, name) for module in core - NAMES for name in imports()[module] & library}
    assert len(library) > 40 and len(core) > 150 and not found, f"modules of the core that import the library: {found}"
