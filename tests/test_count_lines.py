"""The table of code lines counts every file of the package once, and what is code in it; kernels are short."""

import ast
from pathlib import Path

import pytest

from tools.count_lines import LIBRARY, RINGS, code_lines, files, main, sources

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "miniflow" / "kernels"
LONGEST_KERNEL = 50  # lines of code: a student has it on a single screen

SOURCES = {
    '"""Docstring\n\nof the module."""\n\n# comment\n': 0,
    'def f():\n    """Docstring."""\n    return 1  # comment\n': 2,
    'x = """text\n\nwith a blank line"""\n': 3,
    "x = [\n    # comment\n    1,\n\n    2,\n]\n": 4,
    "class A:\n    'Docstring ' 'in two.'\n    y: int = 0; z = 1\n": 2,
    'print(\n    f"{x}"\n)\n': 3,
    "": 0,
}


@pytest.mark.parametrize(("source", "lines"), SOURCES.items())
def test_what_is_code(tmp_path, source, lines):
    path = tmp_path / "x.py"
    path.write_text(source)
    assert code_lines(path) == lines


def test_every_file_is_counted_once():
    places = [place for parts in RINGS.values() for _, places in parts.values() for place in places]
    counted = [path for place in places for path in files(ROOT, place)]
    assert sorted(counted) == sorted(sources(ROOT / "miniflow")) and len(counted) > 200
    assert all(files(ROOT, place) for place in LIBRARY)


def test_the_table(tmp_path, capsys):
    sources = {
        "tensor.py": "x = 1\n",
        "ops/shape.py": "x = 1\ny = 2\n",
        "graph/passes/cse.py": "z = 3\n",
        "linalg.py": "\n",
    }
    for place, text in sources.items():
        (tmp_path / "miniflow" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "miniflow" / place).write_text(text)
    main(tmp_path)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["ring", "part", "budget", "lines"] and {len(row) for row in rows} == {4}
    lines = [int(row[3].replace(",", "")) for row in rows[2:]]
    assert sum(lines[:-1]) == lines[-1] == 4 and rows[-1][1] == "all of it"


def test_no_kernel_is_long(tmp_path):
    lengths, alone = {}, tmp_path / "function.py"
    for path in KERNELS.rglob("*.py"):
        source = path.read_text()
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef):
                alone.write_text(ast.get_source_segment(source, function))
                lengths[f"{path.name}: {function.name}"] = code_lines(alone)
    assert len(lengths) > 100 and {name: n for name, n in lengths.items() if n > LONGEST_KERNEL} == {}
