"""The table of code lines counts every file of the package once, and what is code in it."""

from pathlib import Path

import pytest

from tools.count_lines import code_lines, count, main

ROOT = Path(__file__).resolve().parent.parent

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
    assert sum(count(ROOT).values()) == sum(map(code_lines, (ROOT / "miniflow").rglob("*.py"))) > 10_000


def test_the_table(capsys):
    main(ROOT)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["part", "budget", "lines"] and {len(row) for row in rows} == {3}
    lines = [int(row[2].replace(",", "")) for row in rows[2:] if row[1]]
    assert sum(lines[:-1]) == lines[-1] and rows[-1][0] == "all of it"
