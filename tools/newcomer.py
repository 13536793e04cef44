"""What a newcomer does, from README.md and the first lessons: `python tools/newcomer.py`, which takes minutes.

In a copy of this folder and a virtual environment of its own: the first command of README.md, which installs miniflow
and trains, then a lesson: start it, check it, give a wrong answer, mend it, solve the rest, and show the solution. Each
command is printed with what it printed; the first that does not do what it should ends all. It needs a package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = (".git", ".venv", "venv", "__pycache__", "*.egg-info", "_build", "student.py", ".checked.json")
LESSON, TASK, TASKS, TITLE = "1", "1.1", 6, "Storage, strides and broadcasting"
STUDENT = Path("tutorials", "01_storage", "student.py")
TODO = (
    '    # task 1.1: the strides of a row-major array\n    raise Todo("lesson 1.1: the strides of a row-major array")\n'
)
WRONG = """\
    strides, step = [], 1
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)
"""
MENDED = WRONG.replace("in shape", "in reversed(shape)").replace("tuple(strides)", "tuple(strides[::-1])")


class Newcomer:
    """Somebody with a clone and an environment.

    Attributes:
        clone: a copy of this folder.
        environ: the variables of the commands; the environment's programs are found first.
    """

    def __init__(self, folder: Path):
        self.clone = folder / "miniflow"
        shutil.copytree(ROOT, self.clone, ignore=shutil.ignore_patterns(*LEFT_OUT))
        venv.create(folder / "environment", with_pip=True)
        programs = folder / "environment" / "bin"
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LESSON_IMPL")}
        path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
        self.environ = {**kept, "PATH": path, "MPLBACKEND": "agg", "MINIFLOW_CACHE_DIR": str(folder / "cache")}

    def types(self, command: str, status: int = 0, *words: str) -> str:
        """Run a command in the clone, and print what it says.

        Raises:
            AssertionError: if it ends with another status, or does not say these words.
        """
        print(f"$ {command}", flush=True)
        done = subprocess.run(["bash", "-c", command], cwd=self.clone, env=self.environ, capture_output=True, text=True)
        text = done.stdout + done.stderr
        print(text, flush=True)
        missing = [word for word in words if word not in text]
        if done.returncode != status or missing:
            raise AssertionError(f"{command}: expected status {status}, got {done.returncode}; not said: {missing}")
        return text

    def writes(self, old: str, new: str) -> None:
        """Replace a part of the file of the lesson."""
        path = self.clone / STUDENT
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{STUDENT}: expected once\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")


def main() -> int:
    """Go all the way."""
    with tempfile.TemporaryDirectory() as folder:
        newcomer = Newcomer(Path(folder))
        first, _ = newcomer.types("python .ci/readme_commands").splitlines()
        newcomer.types(first, 0, "test accuracy")
        newcomer.types("python -m tutorials list", 0, TITLE, "not started")
        newcomer.types(f"python -m tutorials start {LESSON}", 0, str(STUDENT), "notebooks/01_storage.ipynb")
        assert newcomer.types(f"python -m tutorials check {LESSON}", 1).count("not started") == TASKS
        newcomer.writes(TODO, WRONG)
        newcomer.types(f"python -m tutorials check {TASK}", 1, "wrong", "expected (3, 1), got (1, 2). Hint: ")
        newcomer.writes(WRONG, MENDED)
        newcomer.types(f"python -m tutorials check {TASK} --picture attempt.png", 0, f"{TASK}    passed", "no picture")
        assert newcomer.types(f"python -m tutorials check {LESSON}", 1).count("not started") == TASKS - 1
        newcomer.types("python -m tutorials list", 0, f"1 of {TASKS} tasks")
        solution = newcomer.types(f"python -m tutorials show {LESSON}", 0, "def broadcast_shape(a, b):")
        (newcomer.clone / STUDENT).write_text(solution, encoding="utf-8")
        assert newcomer.types(f"python -m tutorials check {LESSON} --picture lesson.png").count("passed") == TASKS
        assert (newcomer.clone / "lesson.png").exists()
        newcomer.types("python -m tutorials list", 0, "done")
    print("A newcomer gets through.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
