"""Each notebook is what its lesson makes, and runs offline."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tutorials.cells import cell_of, given, members, parts, put  # noqa: E402
from tutorials.implementation import load, written  # noqa: E402
from tutorials.lessons import Lesson, lesson, lessons  # noqa: E402
from tutorials.notebook import take_over  # noqa: E402
from tutorials.report import attempts_drawn, check  # noqa: E402

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
def test_notebook_was_run_without_an_error(path, build):
    import nbformat

    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
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


@pytest.mark.notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_notebook_with_all_solutions_filled_in(path, build, tmp_path):
    import nbformat

    notebook = filled(nbformat.read(path, as_version=4), Lesson(ROOT / "tutorials" / path.stem))
    after = build.execute(notebook, tmp_path)
    texts = [
        "".join(o.get("text", "") for o in cell.get("outputs", []) if o.get("name") != "stderr") for cell in after.cells
    ]  # there it is said that a check takes long
    assert not [text for text in texts if re.search(r"not yet solved|^\d+\.\d+ +(not started|wrong|error)", text, re.M)]
    tasks = [cell.source.split()[1] for cell in after.cells if cell.source.startswith("%%task")]
    passed = [
        text.split()[:2] for cell, text in zip(after.cells, texts, strict=True) if cell.source.startswith("%%task")
    ]
    assert passed == [[task, "passed"] for task in tasks] and tasks == Lesson(ROOT / "tutorials" / path.stem).tasks
    student = tmp_path / "edition" / "tutorials" / path.stem / "student.py"
    assert student.read_text(encoding="utf-8") == unmarked(Lesson(ROOT / "tutorials" / path.stem))
    assert any("image/png" in output.get("data", {}) for cell in after.cells for output in cell.get("outputs", []))


def unmarked(lesson):
    """The solution without the comments around what students write, apart from its first line, which the stub keeps."""
    lines = lesson.solution.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not re.fullmatch(r" *# (task \d+\.\d+: .*|end)", line)) + "\n"


def filled(notebook, lesson):
    """A notebook as a student has it in the end: each `%%task` with the solution's text of what the cell defines."""
    lines = unmarked(lesson).splitlines()
    known = {part.path: part for part in parts(unmarked(lesson))}
    inside = {
        one.path: one for p in known.values() if isinstance(p.node, ast.ClassDef) for one in members(p, lines)
    } | known
    for cell in notebook.cells:
        if cell.source.startswith("%%task"):
            first, _, text = cell.source.partition("\n")
            own = text.splitlines()
            leaves = [
                (one.path, f"{own[p.node.lineno - 1]}\n" if one is not p else "")
                for p in parts(text)
                for one in (members(p, own) if isinstance(p.node, ast.ClassDef) else [p])
            ]
            cell.source = "\n\n\n".join([first, *(head + inside[path].text(lines) for path, head in leaves)])
    return notebook


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
    (tmp_path / "stub.py").write_text(Lesson(LESSONS[0].parent).stub, encoding="utf-8")
    changed.write_text(LESSONS[0].read_text(encoding="utf-8") + "\n# %%\nprint(1)\n", encoding="utf-8")
    assert cells(build.convert(changed)) != cells(build.convert(LESSONS[0]))


@pytest.mark.notebooks
def test_a_failing_cell_stops_the_build(build, tmp_path, monkeypatch):
    import nbclient

    lesson = tmp_path / "tutorials" / "01_broken" / "lesson.py"
    lesson.parent.mkdir(parents=True)
    lesson.write_text("# %%\n1 / 0\n")
    lesson.with_name("stub.py").write_text("")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        build.build(lesson)
    assert not (tmp_path / "notebooks").exists()


STUB = """from tutorials import Todo

SIZE = 3


# what stands above belongs to it
def f(x):
    \"\"\"x + 1\"\"\"
    raise Todo("lesson 1.1: f")


class Layer:
    \"\"\"A layer.\"\"\"

    def __init__(self):
        raise Todo("lesson 1.2: layers")

    def size(self):
        return SIZE

    def call(self, x):
        raise Todo("lesson 1.2: layers")


def g(x):
    raise Todo("lesson 1.1: g")
"""


def test_cells_hold_what_a_task_asks_for():
    layer = STUB[STUB.index("class Layer") : STUB.index("    def size")] + STUB[STUB.index("    def call") :]
    assert cell_of(STUB, "1.2") == layer.partition("\n\n\n")[0]
    assert cell_of(STUB, "1.1").startswith("# what stands above") and cell_of(STUB, "1.1").count("def ") == 2
    assert given(STUB) == "SIZE = 3\n"


def test_a_cell_takes_the_place_of_what_it_defines():
    new = "import math\n\nHALF = 0.5\n\n\ndef f(x):\n    return helper(x)\n    # the end of f\n"
    changed = put(STUB, new)
    assert changed == put(changed, new)  # once more changes nothing
    assert "x + 1" not in changed and "what stands above" not in changed and changed.count("the end of f") == 1
    assert changed.index("import math") < changed.index("HALF = 0.5") < changed.index("def f(x)")
    method = put(
        STUB, "class Layer:\n    def call(self, x):\n        return x\n\n    def more(self):\n        return 1\n"
    )
    names = {}
    exec(method.replace("from tutorials import Todo", ""), names)
    layer = object.__new__(names["Layer"])
    assert (layer.call(5), layer.size(), layer.more(), names["Layer"].__doc__) == (5, 3, 1, "A layer.")


def test_a_class_takes_the_place_of_a_function():
    changed = put(STUB, "class f:\n    pass\n")
    assert "class f:\n    pass\n" in changed and "def f(" not in changed
    assert "def Layer" in put(STUB, "def Layer():\n    return 1\n")


def test_an_empty_cell_leaves_what_is_there():
    solved = put(STUB, "def f(x):\n    return x + 1\n")
    assert put(solved, cell_of(STUB, "1.1")) == solved
    with pytest.raises(SyntaxError):
        put(STUB, "def f(x):\nreturn 1\n")


def test_cells_write_check_and_draw(build, tmp_path):
    """A first attempt that is wrong, in a notebook: its file, the reason, and the picture with both attempts."""
    import nbformat

    code = [
        "%load_ext tutorials",
        "print(tutorials_missing)",
        "%%task 6.3\n@cuda.jit\ndef guarded(x, out):\n    i = cuda.threadIdx.x\n    out[i] = x[i] + 10",
        "%%task 6.3\n@cuda.jit\ndef guarded(x, out):\n    i = cuda.threadIdx.x\n    if i < x.size:\n"
        "        out[i] = x[i] + 10",
        "%%task 6.3\ndef guarded(x, out)\n    pass",
        "%%task 6.99\npass",
        "%%task 99.9\npass",
        "%%task abc\npass",
        "%%task 6.1\n@cuda.jit\ndef add_ten(x, out):\n    pass\n\nexit()",
        "%%task 6.1\n@cuda.jit\ndef add_ten(x, out):\n    pass\n\nMISSING = unknown",
        "%%task 6.1\ndef add_ten(x, out):\n    pass",
        "%%task 6.2\ndef add_pair(a, b, out):\n    pass",
        "%%task 6.2\n@cuda.jit\ndef add_pairs(a, b, out):\n    raise Todo('lesson 6.2: zip')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in code])
    for k in (1, 5, 6, 7):
        notebook.cells[k].metadata.tags = ["raises-exception"]
    outputs = [cell.outputs for cell in build.execute(notebook, tmp_path).cells]
    assert outputs[1][0].ename == "NameError"
    assert [[o.text for o in outputs[k]] for k in (5, 6, 7)] == [
        [f"UsageError: %%task 6.99: lesson 06_kernel_puzzles has no task '6.99'; expected one of {lesson(6).tasks}\n"],
        [f"UsageError: %%task 99.9: there is no lesson '99.9'; expected one of {[one.name for one in lessons()]}\n"],
        ["UsageError: %%task abc: expected the number of a task, as in `%%task 1.1`\n"],
    ]
    for k, said in ((8, "ImportError: when it is loaded: the file ends"), (9, "NameError: name 'unknown' is not")):
        first, second = outputs[k][0].text.splitlines()
        assert first.startswith(f"6.1    error        {said}")
        assert second.startswith(
            "With this cell tutorials/06_kernel_puzzles/student.py cannot be loaded: it stays as it"
        )
    assert outputs[10][0].text.endswith("where a kernel is expected: is there no `@cuda.jit` above it?\n")
    assert [outputs[k][0].text.partition("  ")[2].lstrip() for k in (11, 12)] == [
        "not started  the cell does not define what the task asks for: add_pairs\n",
        "not started  write your code in place of `raise Todo(...)`, then run this cell\n",
    ]
    wrong, right, broken = (outputs[k][0].text for k in (2, 3, 4))
    assert wrong.startswith("6.3    wrong") and "out of bounds" in wrong and "guard it" in wrong
    assert right.split() == ["6.3", "passed"] and broken == (
        "6.3    error        SyntaxError: expected ':', line 2 of the cell: def guarded(x, out)\n"
    )
    assert all("image/png" in outputs[k][1].data for k in (2, 3))
    text = (tmp_path / "edition" / "tutorials" / "06_kernel_puzzles" / "student.py").read_text()
    assert "exit()" not in text and "unknown" not in text
    assert text.count("def guarded") == 1 and "if i < x.size" in text and 'Todo("lesson 6.2: zip")' in text


def test_objects_of_a_cell_get_the_methods_that_are_written_later(tmp_path):
    old, new = (tmp_path / name for name in ("old.py", "new.py"))
    old.write_text("class Layer:\n    def size(self):\n        raise NotImplementedError\n")
    new.write_text("class Layer:\n    def size(self):\n        return self.n\n")
    before, after = load(old), load(new)
    layer = before.Layer()
    layer.n = 5
    take_over(before, after)
    assert type(layer) is after.Layer and layer.size() == 5


def test_check_saves_pictures(tmp_path, capsys):
    assert check("6.3", "solution", picture=tmp_path / "task.png") and (tmp_path / "task.png").exists()
    assert check("1.1", "solution", picture=tmp_path / "none.png") and not (tmp_path / "none.png").exists()
    assert not check(1, "stub", picture=tmp_path / "none.png") and not (tmp_path / "none.png").exists()
    said = capsys.readouterr().out
    assert "no picture: the task has none" in said and "no picture: it is drawn when all tasks pass" in said


def test_pictures_of_attempts():
    found = lesson(6)
    stub, solution = written(found, found.stub), found.solution.read_text(encoding="utf-8")
    assert attempts_drawn(found, "6.3", {"before": stub}) is None
    guard = "    if i < x.size:\n        out[i] = x[i] + 10"
    unguarded = written(found, solution.replace(guard, "    out[i] = x[i] + 10", 1))
    figure = attempts_drawn(found, "6.3", {"before": unguarded, "now": found.solution})
    titles = [row.get_suptitle() for row in figure.subfigs]
    assert titles[0].startswith("before: out of bounds")
    assert titles[1] == "now: reads of global memory for each result: 1"
    assert [len(row.axes) for row in figure.subfigs] == [2, 2]  # x, read, and out, written
    mute = attempts_drawn(found, "6.3", {"before": stub, "now": found.solution}).subfigs[0]
    assert mute.get_suptitle() == "before: not written"
    tiled = attempts_drawn(lesson(8), "8.3", {"now": lesson(8).solution})
    assert len(tiled.subfigs[0].axes) == 8 and tiled.get_figwidth() < 16, "seven panels stand in two lines of four"
