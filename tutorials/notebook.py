"""Work in the notebook: `%load_ext tutorials`, then cells that begin with `%%task 1.1`.

Such a cell becomes part of the student's file (`cells.put`), its task is checked, and its picture is drawn. A cell that
needs a task which is not written yet says so in one line, and does not stop "Run all". Plain text and matplotlib only:
JupyterLab, VS Code and Colab show them.
"""

from __future__ import annotations

import ast
import gc
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from tutorials.cells import TODO, put
from tutorials.implementation import STUDENT, Todo, implementation, written
from tutorials.lessons import lesson
from tutorials.report import Outcome, attempts_drawn, tasks_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def load(shell: Any) -> None:
    """Add `%%task` to an IPython shell, and what it says where a task is not written yet."""
    shell.register_magic_function(lambda line, cell: run_task(shell, line, cell), "cell", "task")
    Unsolved(shell)


def run_task(shell: Any, task: str, cell: str) -> None:
    """`%%task 1.1`: write the cell into the student's file, check the task, and draw its picture."""
    task = task.strip()
    found = lesson(task)
    if task not in found.tasks:
        raise LookupError(f"lesson {found.name} has no task {task!r}; expected one of {found.tasks}")
    before = found.student.read_text(encoding="utf-8") if found.student.exists() else found.stub
    try:
        after = put(before, cell)
    except SyntaxError as error:
        print(Outcome(task, "error", f"{type(error).__name__}: {error.msg}, line {error.lineno}: {error.text}", ""))
        return
    found.student.write_text(after, encoding="utf-8")
    mark = f'{TODO}"lesson {task}:'
    if after.count(mark) == found.stub.count(mark):
        print(Outcome(task, "not started", "write your code in place of `raise Todo(...)`, then run this cell", ""))
    else:
        print(*tasks_of(found, str(found.student), task), sep="\n")
        if TODO in cell:
            print(
                f"The cell raises Todo; what tutorials/{found.name}/student.py has in its place was checked, and stays."
            )
    if (old := shell.user_ns.get("impl")) is not None:
        shell.user_ns["impl"] = implementation(found, STUDENT)
        take_over(old, shell.user_ns["impl"])
    show(attempts_drawn(found, task, {"before": written(found, before), "this attempt": written(found, after)}))


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
        shell.set_custom_exc((Todo, NameError), self.say)
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

    def say(self, shell: Any, kind: type, error: Exception, trace: TracebackType, tb_offset: int | None = None) -> None:
        """One line in place of a traceback; other unknown names get their traceback."""
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
