"""Make the notebooks from the lessons and run them: `python tutorials/build.py`, or with names to build only some.

Each `tutorials/NN_name/lesson.py`, in jupytext's percent format, becomes `notebooks/NN_name.ipynb` with all outputs, as
a student first sees them: no task is solved. The first code cell, `SETUP`, is added: on Colab it fetches miniflow. The
line `%load_ext tutorials` is added to the second, and behind the text of each task a cell `%%task 1.1`, which is filled
in there. A notebook is only written when every cell ran. The pictures of the notebooks that README.md shows become
`docs/images`; `python tutorials/build.py --pictures` writes only these, from the notebooks as they are.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbclient
import nbformat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tutorials.cells import cell_of, given  # noqa: E402
from tutorials.lessons import Lesson  # noqa: E402
from tutorials.teaching import release  # noqa: E402

LIMIT = 300  # seconds for one cell
REPOSITORY = ""  # address of a public clone, for `SETUP`; the variable MINIFLOW_REPOSITORY goes before it
INLINE = "module://matplotlib_inline.backend_inline"  # pictures go into the notebook, whatever MPLBACKEND says
# name of a picture -> the notebook, and the cell that draws it
PICTURES = {
    "training_step": ("13_fusion_memory", "figure = step.show()"),
    "memory_access": ("06_kernel_puzzles", "figure = show(along_columns)"),
}

SETUP = f"""\
# @title Run this cell first: it finds the lessons. Where there are none, as on Colab, it fetches them and miniflow.
import importlib, os, subprocess, sys

sys.path.append(os.path.abspath(".."))  # from the folder `notebooks`, the lessons are there
try:
    import tutorials, miniflow
except ImportError as error:
    repository = os.environ.get("MINIFLOW_REPOSITORY") or "{REPOSITORY}"  # you can write its address here
    if not repository:
        raise ImportError(
            f'{{error}}. In a clone of miniflow, run: pip install -e ".[notebooks]", then restart the kernel. Without '
            "a clone, write the address of miniflow's repository in this cell, or set MINIFLOW_REPOSITORY to it."
        ) from error
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--src", "."]
    subprocess.run([*pip, "--editable", f"git+{{repository}}#egg=miniflow-edu", "pytest"], check=True)
    sys.path.append(os.path.abspath("miniflow-edu"))
    importlib.invalidate_caches()"""


def sources() -> list[Path]:
    """The lessons, in the order of their numbers."""
    return sorted((ROOT / "tutorials").glob("[0-9][0-9]_*/lesson.py"))


def target(source: Path) -> Path:
    """The notebook made from a lesson."""
    return ROOT / "notebooks" / f"{source.parent.name}.ipynb"


def with_tasks(cell: nbformat.NotebookNode, stub: str) -> Iterator[nbformat.NotebookNode]:
    """A cell, cut behind the text of each task, and the cells `%%task` there."""
    texts = re.split(r"\n(?=\*\*Task \d|## )", cell.source) if cell.cell_type == "markdown" else [cell.source]
    for text in texts:
        yield nbformat.from_dict({**cell, "source": text.strip("\n")})
        if cell.cell_type == "markdown" and (found := re.match(r"\*\*Task (\d+\.\d+)\.\*\*", text)):
            yield nbformat.v4.new_code_cell(f"%%task {found[1]}\n{cell_of(stub, found[1])}")


def file_shown(name: str, stub: str) -> nbformat.NotebookNode:
    """The cell that says what the student's file has from the beginning."""
    text = f"`tutorials/{name}/student.py` begins with:\n\n```python\n{given(stub).strip()}\n```"
    return nbformat.v4.new_markdown_cell(text)


def convert(source: Path) -> nbformat.NotebookNode:
    """The notebook of a lesson, not yet run; equal sources give equal notebooks."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    stub_of = Lesson(source.parent).stub
    notebook.cells = [part for cell in notebook.cells for part in with_tasks(cell, stub_of)]
    first = [cell.cell_type for cell in notebook.cells].index("code")
    notebook.cells[first].source = "%load_ext tutorials\n" + notebook.cells[first].source
    notebook.cells.insert(first + 1, file_shown(source.parent.name, stub_of))
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    hidden = {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": ["remove-cell"]}  # Colab, Jupyter, docs
    notebook.cells.insert(first, nbformat.v4.new_code_cell(SETUP, id="cell-setup", metadata=hidden))
    return notebook


def execute(notebook: nbformat.NotebookNode, folder: str | os.PathLike) -> nbformat.NotebookNode:
    """Run every cell in a fresh kernel of this Python, in a student edition that is written to `folder`.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises, with its traceback.
    """
    edition = Path(folder) / "edition"
    list(release(edition))
    client = nbclient.NotebookClient(
        notebook,
        timeout=LIMIT,
        record_timing=False,
        coalesce_streams=True,  # lines that are printed one by one
        resources={"metadata": {"path": str(edition)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors: the kernel is local and short-lived
    )
    path = os.pathsep.join(filter(None, [str(edition), str(ROOT), os.environ.get("PYTHONPATH")]))
    return client.execute(env={**os.environ, "MPLBACKEND": INLINE, "LESSON_IMPL": "student", "PYTHONPATH": path})


def build(source: Path) -> Path:
    """Make and run the notebook of one lesson; returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(convert(source), folder)
    notebook.metadata.pop("language_info", None)  # names the Python version that happened to run it
    path = target(source)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)
    return path


def picture(name: str) -> bytes:
    """The PNG of one of `PICTURES`, as the notebook holds it."""
    stem, source = PICTURES[name]
    cells = nbformat.read(ROOT / "notebooks" / f"{stem}.ipynb", as_version=4).cells
    (cell,) = [cell for cell in cells if cell.source == source]
    (data,) = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    return base64.b64decode(data)


def main() -> int:
    """Build all lessons, or those named on the command line, and write the pictures."""
    parser = argparse.ArgumentParser(description="Make the notebooks from the lessons and run them.")
    parser.add_argument("names", nargs="*", help="lessons to build, such as 00_quickstart; by default all")
    parser.add_argument("--pictures", action="store_true", help="build none, write only the pictures for README.md")
    options = parser.parse_args()
    names = options.names
    known = {source.parent.name: source for source in sources()}
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no lesson {', '.join(unknown)}; expected some of {', '.join(known)}")
    for name in () if options.pictures else names or known:
        print(build(known[name]).relative_to(ROOT))
    for name in PICTURES:
        path = ROOT / "docs" / "images" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(name))
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
