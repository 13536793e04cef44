"""The course: lessons, their exercises, and the graders that check them. `python -m tutorials list` shows it.

The package `miniflow` never imports this one.
"""

from tutorials.compare import at_most, drawn, refused, same, same_all
from tutorials.implementation import Todo, implementation
from tutorials.report import check
