"""Each notebook is what its lesson makes, and runs offline."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OFFLINE = {
    name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
}
LESSONS = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*/lesson.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def build():
    """`tutorials/build.py`."""
    for name in ("jupytext", "nbclient", "ipykernel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f'{name} is not installed: pip install -e ".[test]"')
    spec = importlib.util.spec_from_file_location("tutorials_build", ROOT / "tutorials" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def named(path):
    return path.parent.name if path.suffix == ".py" else path.stem


def test_there_is_something_to_run():
    assert LESSONS and [named(path) for path in LESSONS] == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("lesson", LESSONS, ids=named)
def test_notebook_is_what_the_lesson_makes(lesson, build):
    import nbformat

    notebook = nbformat.read(build.target(lesson), as_version=4)
    assert cells(notebook) == cells(build.convert(lesson)), f"run: python tutorials/build.py {named(lesson)}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_notebook_was_run_and_holds_its_pictures(path, build):
    import nbformat

    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert str(ROOT) not in path.read_text(encoding="utf-8")  # no path of the machine it was run on


def test_first_cell_says_what_to_do_without_miniflow(build, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "tutorials", None)  # its import fails
    monkeypatch.setenv("MINIFLOW_REPOSITORY", "")
    with pytest.raises(ImportError, match=r'run: pip install -e "\.\[notebooks\]".* set MINIFLOW_REPOSITORY'):
        exec(build.SETUP, {})


@pytest.mark.notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_notebook_runs(path, build, tmp_path, monkeypatch):
    import nbformat

    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    before = nbformat.read(path, as_version=4)
    after = build.execute(nbformat.from_dict(before), tmp_path)  # raises with the cell's traceback if one fails
    assert kinds(after) == kinds(nbformat.read(path, as_version=4))


def kinds(notebook):
    """What kind of output each cell has: text, in however many pieces it was printed, and pictures."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        shown = [kind for output in outputs for kind in output.get("data", {})]
        found.append(sorted([*shown, *(["text"] if any("data" not in output for output in outputs) else [])]))
    return found


def test_a_changed_lesson_is_noticed(build, tmp_path):
    changed = tmp_path / LESSONS[0].name
    changed.write_text(LESSONS[0].read_text(encoding="utf-8") + "\n# %%\nprint(1)\n", encoding="utf-8")
    assert cells(build.convert(changed)) != cells(build.convert(LESSONS[0]))


@pytest.mark.notebooks
def test_a_failing_cell_stops_the_build(build, tmp_path, monkeypatch):
    import nbclient

    lesson = tmp_path / "tutorials" / "01_broken" / "lesson.py"
    lesson.parent.mkdir(parents=True)
    lesson.write_text("# %%\n1 / 0\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        build.build(lesson)
    assert not (tmp_path / "notebooks").exists()
