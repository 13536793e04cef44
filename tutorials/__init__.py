"""The course: lessons, their exercises, and the graders that check them. `python -m tutorials list` shows it.

The package `miniflow` never imports this one.
"""

from typing import Any

from tutorials.compare import at_most, drawn, refused, same, same_all
from tutorials.implementation import Todo, implementation
from tutorials.report import check


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext tutorials`, the first line of each notebook."""
    from tutorials.notebook import load

    load(shell)
