"""Lines of code by ring and part, beside the budget of each: `python tools/count_lines.py [folder of the clone]`.

A line of code holds a token other than a comment; strings that stand alone as a statement (docstrings) do not count.
"""

from __future__ import annotations

import sys
import tokenize
from pathlib import Path

# Composed of public functions, and imported by nothing in the core: files and folders of miniflow/
LIBRARY = """
__main__ warm distributions linalg mock_torch profiler special data func show graph/job_optimizer
autograd/gradcheck nn/image nn/modules/combined_margin nn/modules/distance nn/utils/fusion nn/utils/named_norms
nn/utils/parametrizations nn/utils/parametrize nn/utils/prune
ops/__main__ ops/ctc_loss ops/distance ops/einsum ops/gather_nd ops/grid_sample ops/likelihood_losses
ops/margin_losses ops/matrix_functions ops/matrix_methods ops/tensor_buffer
optim/lbfgs optim/swa_utils utils/checkpoint utils/data/download utils/data/idx utils/data/mnist
utils/global_view utils/pytree utils/vision
""".split()
# ring -> part -> (budget, what belongs to it: folders of miniflow/, and "" for the files directly in it)
RINGS = {
    "core": {
        "tensor, nn, optim, ...": (
            5800,
            ["", "dispatch", "formulas", "autograd", "nn", "optim", "amp", "utils", "serialization"],
        ),
        "ops, backends/cpu": (6500, ["ops", "backends", "backends/cpu"]),
        "kernels, backends/cuda": (3800, ["kernels", "backends/cuda"]),
    },
    "library": {"library": (3000, LIBRARY)},
    "systems": {
        "hostcuda": (5700, ["hostcuda"]),
        "graph": (5500, ["graph"]),
        "parallel, distributed": (2300, ["parallel", "distributed"]),
        "onnx": (2600, ["onnx"]),
        "vision": (3800, ["vision"]),
        "serve": (450, ["serve"]),
    },
}
ALONE = ("", "backends")  # of these only the files, not the folders in them
LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)


def code_lines(path: Path) -> int:
    """How many lines of a Python file are code.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "x.py"
    ...     _ = file.write_text('"Docstring."\\n\\n# comment\\nx = [  # code\\n    "a",\\n]\\n')
    ...     code_lines(file)
    3
    """
    found: set[int] = set()
    with path.open("rb") as file:
        statement: list[tokenize.TokenInfo] = []
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NEWLINE:
                if any(t.type != tokenize.STRING for t in statement):
                    found.update(line for t in statement for line in range(t.start[0], t.end[0] + 1))
                statement = []
            elif token.type not in LAYOUT and token.type != tokenize.COMMENT:
                statement.append(token)
    return len(found)


def files(root: Path, place: str) -> set[Path]:
    """The Python files of a file or folder of `root`/miniflow; those of `LIBRARY` belong to no folder of the core."""
    package = root / "miniflow"
    found = set((package / place).glob("*.py" if place in ALONE else "**/*.py"))
    if place in LIBRARY:
        return found | {path for path in [package / f"{place}.py"] if path.exists()}
    library = {path for name in LIBRARY for path in files(root, name)}
    return found - library


def sources(package: Path) -> set[Path]:
    """Every Python file of the package, with those of miniflow/kernels, a link that `rglob` does not follow."""
    return {*package.rglob("*.py"), *(package / "kernels").rglob("*.py")}


def main(root: Path) -> None:
    """Print the table."""
    total = 0
    print(f"| {'ring':<8} | {'part':<26} | budget |  lines |\n|{'-' * 10}|{'-' * 28}|-------:|-------:|")
    for ring, parts in RINGS.items():
        for part, (budget, places) in parts.items():
            lines = sum(code_lines(path) for place in places for path in files(root, place))
            total += lines
            print(f"| {ring:<8} | {part:<26} | {budget:>6,} | {lines:>6,} |")
    budget = sum(budget for parts in RINGS.values() for budget, _ in parts.values())
    print(f"| {'':<8} | {'all of it':<26} | {budget:>6,} | {total:>6,} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
