"""Work in the notebook: `%load_ext tutorials`, then cells that begin with `%%task 1.1`.

Such a cell becomes part of the student's file (`cells.put`), its task is checked, and its picture is drawn. A cell that
needs a task which is not written yet says so in one line, and does not stop "Run all". Plain text and matplotlib only:
JupyterLab, VS Code and Colab show them.
"""

from __future__ import annotations

import ast
import gc
import re
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from tutorials.cells import TODO, cell_of, parts, put
from tutorials.implementation import Todo, loaded, parsed, text_of, written
from tutorials.lessons import Lesson, lesson_and_task
from tutorials.report import Outcome, Stopped, attempts_drawn, tasks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def load(shell: Any) -> None:
    """Add `%%task` to an IPython shell, and what it says where a task is not written yet."""
    shell.register_magic_function(lambda line, cell: run_task(shell, line, cell), "cell", "task")
    Unsolved(shell)


def run_task(shell: Any, line: str, cell: str) -> None:
    """`%%task 1.1`: write the cell into the student's file, check the task, and draw its picture."""
    found, task = task_named(line.strip())
    try:
        before = text_of(found.student) if found.student.exists() else found.stub
        parsed(before, found.student.name)
        parsed(f"\n{cell}", "the cell")  # whose first line is `%%task`
        after = put(before, cell)
    except SyntaxError as error:
        place = f", line {error.lineno} of {error.filename}: {(error.text or '').strip()}" if error.lineno else ""
        print(Outcome(task, "error", f"{type(error).__name__}: {error.msg}{place}", ""))
        return
    found.student.write_text(after, encoding="utf-8")
    mark = f'{TODO}"lesson {task}:'
    outcomes = []
    if after.count(mark) == found.stub.count(mark):
        asked = [part.path[-1] for part in parts(cell_of(found.stub, task))]
        what = "write your code in place of `raise Todo(...)`, then run this cell"
        if not {part.path[-1] for part in parts(cell)}.intersection(asked):
            what = f"the cell does not define what the task asks for: {', '.join(asked)}"
        print(Outcome(task, "not started", what, ""))
    else:
        outcomes = tasks_of(found, str(found.student), task)
        if TODO in cell:
            print(
                f"The cell raises Todo; what tutorials/{found.name}/student.py has in its place was checked, and stays."
            )
    new, earlier = loaded(found.student), written(found, before)
    if new is None and loaded(earlier) is not None:
        found.student.write_text(before, encoding="utf-8")
        print(f"With this cell tutorials/{found.name}/student.py cannot be loaded: it stays as it was.")
    elif new is not None:
        if (old := shell.user_ns.get("impl")) is not None:
            shell.user_ns["impl"] = new
            take_over(old, new)
        if not any(one.outcome == "error" for one in outcomes):
            show(attempts_drawn(found, task, {"before": earlier, "this attempt": written(found, after)}))


def task_named(line: str) -> tuple[Lesson, str]:
    """A lesson and its task, as the first line of a cell names it.

    Raises:
        UsageError: if there is none; notebooks show it as one sentence.
    """
    from IPython.core.error import UsageError

    if not re.fullmatch(r"\d+\.\d+", line):
        raise UsageError(f"%%task {line}: expected the number of a task, as in `%%task 1.1`")
    try:
        return lesson_and_task(line)
    except LookupError as error:
        raise UsageError(f"%%task {line}: {error}") from None


def take_over(old: ModuleType, new: ModuleType) -> None:
    """Objects of the old module's classes, such as a model that was trained, become objects of the new module's."""
    for name, kind in list(vars(old).items()):
        if isinstance(kind, type) and kind.__module__ == old.__name__ and isinstance(getattr(new, name, None), type):
            for found in gc.get_referrers(kind):
                if type(found) is kind:
                    object.__setattr__(found, "__class__", getattr(new, name))


def show(figure: Figure | None) -> None:
    """Show a picture once."""
    if figure is not None:
        import matplotlib.pyplot as plt
        from IPython.display import display

        display(figure)
        plt.close(figure)


class Unsolved:
    """What a shell says about cells that need a task which is not written yet, or what such a cell defines.

    Attributes:
        names: that cells would have defined, had they run to their end.
    """

    def __init__(self, shell: Any):
        self.shell, self.names, self.stored, self.said = shell, set[str](), set[str](), None
        shell.set_custom_exc((Todo, NameError, Stopped), self.say)
        shell.events.register("pre_run_cell", self.begin)
        shell.events.register("post_run_cell", self.end)

    def begin(self, info: Any) -> None:
        """Remember which names a cell defines."""
        try:
            nodes = list(ast.walk(ast.parse(self.shell.transform_cell(info.raw_cell))))
        except SyntaxError:  # which the shell is about to show
            nodes = []
        self.stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.stored |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}

    def say(self, shell: Any, kind: type, error: Any, trace: TracebackType, tb_offset: int | None = None) -> None:
        """One line in place of a traceback; other unknown names get their traceback."""
        if isinstance(error, Stopped):
            print(error)
            return  # and "Run all" stops, too
        if isinstance(error, Todo):
            print(f"not yet solved: {error}")
        elif error.name in self.names:
            print(f"not yet solved: this cell needs {error.name!r} of a cell above")
        else:
            shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
            return
        self.said = error
        self.names |= self.stored

    def end(self, result: Any) -> None:
        """Let "Run all" go on after such a cell."""
        if result.error_in_exec is None:
            self.names -= self.stored
        elif result.error_in_exec is self.said:
            result.error_in_exec = None
