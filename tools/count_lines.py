"""Lines of code by part of the package, beside the budget of each: `python tools/count_lines.py [folder of the clone]`.

A line of code holds a token other than a comment; strings that stand alone as a statement (docstrings) do not count.
"""

from __future__ import annotations

import sys
import tokenize
from pathlib import Path

# part -> (budget, what belongs to it: folders of miniflow/, and "" for the files directly in it)
PARTS = {
    "core": (6000, ["", "autograd", "nn", "optim", "amp", "data", "utils", "func", "show"]),
    "ops, backends/cpu": (6500, ["ops", "backends", "backends/cpu"]),
    "kernels, backends/cuda": (3800, ["kernels", "backends/cuda"]),
    "hostcuda": (4500, ["hostcuda"]),
    "graph": (5500, ["graph"]),
    "parallel": (3000, ["parallel", "distributed"]),
    "onnx": (2500, ["onnx"]),
    "vision, serve": (3000, ["vision", "serve"]),
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


def count(root: Path) -> dict[str, int]:
    """The lines of code of each folder of `root`/miniflow that `PARTS` names; 0 for one that does not exist."""
    found = {}
    for folder in [folder for _, folders in PARTS.values() for folder in folders]:
        place = root / "miniflow" / folder
        found[folder] = sum(map(code_lines, place.glob("*.py" if folder in ALONE else "**/*.py")))
    return found


def main(root: Path) -> None:
    """Print the table."""
    counts = count(root)
    total = sum(counts.values())
    print(f"| {'part':<26} | budget |  lines |\n|{'-' * 28}|-------:|-------:|")
    for part, (budget, folders) in PARTS.items():
        print(f"| {part:<26} | {budget:>6,} | {sum(counts[folder] for folder in folders):>6,} |")
        for folder in folders if len(folders) > 1 else ():
            print(f"| {'  ' + (folder or '*.py'):<26} |        | {counts[folder]:>6,} |")
    print(f"| {'all of it':<26} | {sum(budget for budget, _ in PARTS.values()):>6,} | {total:>6,} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
