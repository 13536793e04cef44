"""Make the notebooks from the tutorials and run them: `python tutorials/build.py`, or with names to build only some.

Each `tutorials/NN_name.py`, in jupytext's percent format, becomes `notebooks/NN_name.ipynb` with all outputs. A
notebook is only written when every cell ran.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbclient
import nbformat

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 300  # seconds for one cell
INLINE = "module://matplotlib_inline.backend_inline"  # pictures go into the notebook, whatever MPLBACKEND says


def sources() -> list[Path]:
    """The tutorials, in the order of their numbers."""
    return sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))


def target(source: Path) -> Path:
    """The notebook made from a tutorial."""
    return ROOT / "notebooks" / f"{source.stem}.ipynb"


def convert(source: Path) -> nbformat.NotebookNode:
    """The notebook of a tutorial, not yet run; equal sources give equal notebooks."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
    return notebook


def execute(notebook: nbformat.NotebookNode, folder: str | os.PathLike) -> nbformat.NotebookNode:
    """Run every cell in a fresh kernel of this Python, with `folder` as the working directory.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell raises, with its traceback.
    """
    client = nbclient.NotebookClient(
        notebook,
        timeout=LIMIT,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors: the kernel is local and short-lived
    )
    return client.execute(env={**os.environ, "MPLBACKEND": INLINE})


def build(source: Path) -> Path:
    """Make and run the notebook of one tutorial; returns its path."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(convert(source), folder)
    notebook.metadata.pop("language_info", None)  # names the Python version that happened to run it
    path = target(source)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    temporary.replace(path)
    return path


def main() -> int:
    """Build all tutorials, or those named on the command line."""
    parser = argparse.ArgumentParser(description="Make the notebooks from the tutorials and run them.")
    parser.add_argument("names", nargs="*", help="tutorials to build, such as 01_quickstart; by default all")
    names = parser.parse_args().names
    known = {source.stem: source for source in sources()}
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no tutorial {', '.join(unknown)}; expected some of {', '.join(known)}")
    for name in names or known:
        print(build(known[name]).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
