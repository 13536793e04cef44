"""The graders of the course reject every wrong answer that was planted."""

import ast
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from miniflow.hostcuda import syntax  # noqa: E402
from tutorials import limits, own, report, teaching  # noqa: E402
from tutorials.__main__ import main  # noqa: E402
from tutorials.cells import put  # noqa: E402
from tutorials.conftest import is_own  # noqa: E402
from tutorials.honesty import forbidden  # noqa: E402
from tutorials.implementation import load  # noqa: E402
from tutorials.lessons import ROOT, Lesson, lessons, regions_of  # noqa: E402
from tutorials.mutants import equivalent, mutants, with_line  # noqa: E402
from tutorials.report import Outcome, by_task, outcome_of, run  # noqa: E402

LESSONS = {found.name: found for found in lessons()}
WRONG = [(name, wrong) for name, found in LESSONS.items() for wrong in found.wrong]
LONGEST = 400  # lines of a lesson
MUTANTS = 20  # of each lesson, others in each run; `python -m tutorials.mutants NAME` tries all


def names_refused(found):
    """Task -> names that it may not call, as the checks of a lesson have them."""
    for node in ast.parse(found.tests.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MAY_NOT_CALL":
            return eval(ast.unparse(node.value), {})
    return {}


ONE_IN_SIX = [pytest.param(name, marks=() if i % 6 == 4 else pytest.mark.slow) for i, name in enumerate(LESSONS)]


@pytest.mark.parametrize("name", ONE_IN_SIX)  # each takes seconds; the graders of all reject a wrong solution below
def test_solution_passes(name):
    found = LESSONS[name]
    outcomes = run(found, "solution")
    assert outcomes and {(outcome.outcome, outcome.printed) for outcome in outcomes} == {("passed", "")}, outcomes
    assert {outcome.task for outcome in outcomes} == {region.task for region in found.regions}


@pytest.mark.few(len(LESSONS) // 3)
@pytest.mark.parametrize("name", LESSONS)
def test_stub_is_not_started(name):
    assert {outcome.outcome for outcome in run(LESSONS[name], "stub")} == {"not started"}


@pytest.mark.few(len(LESSONS))
@pytest.mark.parametrize("name, wrong", WRONG)
def test_wrong_solution_is_rejected(name, wrong):
    header = ast.get_docstring(ast.parse(LESSONS[name].wrong[wrong].read_text(encoding="utf-8")))
    fields = dict(line.split(": ", 1) for line in header.splitlines() if line.startswith(("rejected by", "message")))
    test = fields["rejected by"]
    outcomes = run(LESSONS[name], f"wrong:{wrong}", options=["-k", test])
    messages = [o.message for o in outcomes if o.outcome != "passed" and o.test.partition("[")[0] == test]
    assert any(fields["message"] in message for message in messages), outcomes


@pytest.mark.parametrize("name", [name for name, found in LESSONS.items() if equivalent(found)])
def test_equivalent_mutants_are_named_exactly(name):
    found = LESSONS[name]
    made = Counter(with_line(found, what) for what, _, _ in mutants(found.solution.read_text(encoding="utf-8")))
    assert {known: made[known] for known in equivalent(found)} == dict.fromkeys(equivalent(found), 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
def test_mutants_are_rejected(name):
    command = [sys.executable, "-m", "tutorials.mutants", name, str(MUTANTS)]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=True)
    passed = json.loads(done.stdout)
    alive = {with_line(LESSONS[name], what) for what, passes in passed.items() if passes}
    known = set(equivalent(LESSONS[name]))
    assert len(passed) > 10 and len(alive - known) <= 0.05 * len(passed), alive - known
    assert {with_line(LESSONS[name], what) for what in passed} & known <= alive


@pytest.mark.parametrize("name", LESSONS)
def test_each_lesson_is_whole(name):
    found = LESSONS[name]
    assert 4 <= len(found.wrong) <= 8
    assert len((found.folder / "lesson.py").read_text(encoding="utf-8").splitlines()) <= LONGEST
    tasks = list(dict.fromkeys(region.task for region in found.regions))
    assert tasks == [f"{found.number}.{k + 1}" for k in range(len(tasks))]
    prose = (found.folder / "lesson.py").read_text(encoding="utf-8")
    assert not [task for task in tasks if f"**Task {task}.**" not in prose]


def test_what_is_mutated():
    source = "def f(a, n):\n    # task 1.1: x\n    if n < 3:\n        a[n] = 2 * n\n    return a\n    # end\n"
    changes = {what for what, _, _ in mutants(source)}
    assert {"line 3: n < 3 -> n <= 3", "line 4: 2 * n -> 2 + n", "line 5: return a -> return a * 0"} <= changes
    assert all(ast.parse(text) for _, _, text in mutants(source))


def test_region_outside_of_functions_is_refused():
    with pytest.raises(ValueError, match="is in no function"):
        list(regions_of("# task 1.1: x\nx = 1\n# end\n"))


def with_tutorials() -> dict[str, str]:
    """The environment of a program elsewhere that imports the course."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])}


def test_student_writes_and_checks(tmp_path):
    name = next(iter(LESSONS))
    folder = tmp_path / "edition"
    list(teaching.release(folder))
    env = with_tutorials()

    def command(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "tutorials", *arguments], cwd=folder, env=env, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    assert "not started" in command("list")[1] and "done" not in command("list")[1]
    assert command("check", name)[0] == 1 and "comes without" in command("show", name)[1]
    student = folder / "tutorials" / name / "student.py"
    assert f"notebooks/{name}.ipynb" in command("start", name)[1]
    before = student.read_text()
    assert "raise Todo" in before and "stays as it is" in command("start", name)[1] and student.read_text() == before
    student.write_text(LESSONS[name].solution.read_text(encoding="utf-8"))
    code, text = command("check", name)
    assert code == 0 and text.count("passed") == len(LESSONS[name].regions)
    assert "done" in command("list")[1]
    assert "invalid choice: 'grade'" in command("grade", "class")[1]


def test_student_edition_has_no_solution(tmp_path):
    list(teaching.release(tmp_path / "edition"))
    text = "\n".join(path.read_text() for path in (tmp_path / "edition").rglob("*") if path.suffix in (".py", ".ipynb"))
    for found in LESSONS.values():
        lines = found.solution.read_text(encoding="utf-8").splitlines()
        for region in found.regions:
            own = [line.strip() for line in lines[region.first - 1 : region.last - 1] if len(line.strip()) > 30]
            assert not [line for line in own if line in text], f"{found.name}, task {region.task}"
    with pytest.raises(FileExistsError):
        list(teaching.release(tmp_path / "edition"))


def test_student_edition_has_what_students_need(tmp_path):
    list(teaching.release(tmp_path / "edition", "pip install wheels/miniflow.whl"))
    files = {path.relative_to(tmp_path / "edition") for path in (tmp_path / "edition").rglob("*") if path.is_file()}
    names = {path.name for path in files}
    assert not names & {*teaching.LEFT_OUT} and not [path for path in files if "wrong" in path.parts]
    assert {"README.md", "LICENSE", "stub.py", "lesson.py", "01_storage.ipynb"} <= names
    text = (tmp_path / "edition" / "README.md").read_text()
    assert "    pip install wheels/miniflow.whl\n" in text and f"{len(LESSONS)} notebooks" in text


def test_own_framework_is_the_students_with_what_is_missing(tmp_path):
    folder = tmp_path / "02_autograd"
    shutil.copytree(LESSONS["02_autograd"].folder, folder, ignore=shutil.ignore_patterns("student.py"))
    found = Lesson(folder)
    assert own.merged(found) == (found.solution.read_text(), found.tasks)  # nothing is written
    cell = "def exp(a):\n    return 'the student'\n\n\ndef power(a, k):\n    return 2\n\n\ndef relu(a):\n    return 3\n"
    found.student.write_text(put(found.stub, cell + "\n\ndef add(a, b):\n    return 1\n"))
    source, missing = own.merged(found)
    assert missing == ["2.1", "2.3", "2.4", "2.5", "2.6"]  # of 2.1 there is only one half
    names = {}
    exec(source, names)
    assert (names["exp"](0), names["add"](0, 0), names["mul"](*[names["Variable"](3.0)] * 2).value) == (
        "the student",
        1,
        9,
    )


def test_student_edition_has_the_parts_of_the_last_lesson(tmp_path):
    list(teaching.release(tmp_path / "edition"))
    code = "from tutorials.own import assembled; mine = assembled(); print(mine, mine.storage.sum_to.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "edition", capture_output=True, text=True)
    assert done.stdout.endswith("lesson 5, lesson 9, lesson 10 sum_to\n"), done.stdout + done.stderr


@pytest.mark.slow
def test_own_framework_reads_95_percent_of_the_digits():
    found = LESSONS["22_own_framework"]
    _, losses, accuracies = load(found.folder / "picture.py").trained(load(found.solution))
    assert accuracies[-1] >= 0.95 and len(losses) == 800


def test_grades(tmp_path, capsys):
    name, found = next(iter(LESSONS.items()))
    for student, source in {"ada": found.solution.read_text(), "bob": found.stub, "eve": "1 / 0\n"}.items():
        (tmp_path / student).mkdir()
        (tmp_path / student / f"{name}.py").write_text(source)
    count = len(found.regions)
    assert main(["grade", str(tmp_path)]) == 0
    table, progress = (text.removesuffix("\n") for text in capsys.readouterr())
    assert progress.splitlines()[0] == f"ada, {name}: {count} of {count}" and len(progress.splitlines()) == 3
    assert f"| ada | {name} | {count} of {count} |  |" in table and f"| bob | {name} | 0 of {count} |" in table
    assert "ZeroDivisionError" in table.splitlines()[-1]
    assert (tmp_path / "grades.md").read_text() == table
    with (tmp_path / "grades.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    tasks = [(row["student"], row["task"], row["points"]) for row in rows if row["student"] == "ada"]
    assert tasks == [("ada", task, "1") for task in found.tasks] and len(rows) == 3 * count
    assert [row["outcome"] for row in rows if row["student"] == "bob"] == ["not started"] * count
    known = json.loads((tmp_path / "grades.json").read_text())
    assert [known[student][name]["points"] for student in ("ada", "bob", "eve")] == [count, 0, 0]
    assert known["eve"][name]["of"] == count and "ZeroDivisionError" in known["eve"][name]["tasks"]["0.1"]["message"]
    assert [path.parent.name for path in teaching.feedback(tmp_path)] == ["ada", "bob", "eve"]
    text = (tmp_path / "bob" / "feedback.md").read_text()
    assert f"0 of {count} tasks" in text and "- 0.1: not started\n\n      lesson 0.1" in text


def test_what_a_submission_says_stays_in_its_cell():
    found = next(iter(LESSONS.values()))
    outcome = Outcome(found.tasks[0], "wrong", "=1+1 | a\nb", "test")
    graded = [teaching.Grade("ada", found, teaching.whole(found, [outcome]))]
    (row,) = teaching.as_markdown(graded).splitlines()[2:]
    assert "=1+1 \\| a<br>b" in row and re.sub(r"\\\|", "", row).count("|") == 5
    rows = list(csv.reader(io.StringIO(teaching.as_csv(graded))))
    assert rows[1] == ["ada", found.name, found.tasks[0], "0", "1", "wrong", "'=1+1 | a\nb"]
    assert [row[5] for row in rows[2:]] == ["error"] * (len(found.tasks) - 1)  # what was not checked counts, too


def test_submissions_are_collected(tmp_path):
    name, found = next(iter(LESSONS.items()))
    stub = LESSONS["06_kernel_puzzles"].stub
    sources = {f"ada/deep/tutorials/{name}/student.py": "1\n", f"b.ob/{name}/student.py": "2\n"}
    sources |= {"b.en/student (1).py": stub, "b.en/stub.py": found.stub, "b.en/student.py": "5\n"}
    for file, text in sources.items():
        target = tmp_path / "in" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (tmp_path / "in" / "eve").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "kim.zip", "w") as archive:
        archive.writestr(f"../{name}.py", "3\n")
        archive.writestr("other.py", "4\n")
    (tmp_path / "in" / "lee.zip").write_text("no archive")
    said = list(teaching.collect(tmp_path / "in", tmp_path / "class"))
    assert said[0] == f"ada: {name}" and said[3].startswith("eve: nothing") and len(said) == 6
    assert said[5] == "lee: nothing: File is not a zip file"
    taken = {path.relative_to(tmp_path / "class").as_posix(): path.read_text() for path in tmp_path.glob("class/*/*")}
    expected = {f"ada/{name}.py": "1\n", f"b.ob/{name}.py": "2\n", f"kim/{name}.py": "3\n"}
    assert taken == {**expected, "b.en/06_kernel_puzzles.py": stub}


def test_list_remembers_what_was_checked(tmp_path, monkeypatch):
    folder = tmp_path / "01_storage"
    shutil.copytree(LESSONS["01_storage"].folder, folder, ignore=shutil.ignore_patterns("student.py", ".checked.json"))
    found = Lesson(folder)
    found.student.write_text(found.stub)
    calls = []
    monkeypatch.setattr(report, "run", lambda of, which, tell: calls.append(of) or [Outcome("1.1", "passed", "", "t")])
    first = report.remembered(found)
    assert report.remembered(found) == first and len(calls) == 1
    found.student.write_text(found.stub + "\n")
    assert report.remembered(found) == first and len(calls) == 2


def test_checks_that_cannot_be_read_say_why(monkeypatch):
    found = LESSONS["01_storage"]
    outcomes = run(found, "solution", options=["--nonsense"])
    assert [outcome.task for outcome in outcomes] == found.tasks
    for outcome in outcomes:
        assert outcome.outcome == "error" and "exit status 4\n" in outcome.message and "--nonsense" in outcome.message
    monkeypatch.setattr(report, "run", lambda of, which, options, tell: outcomes)
    assert [outcome.task for outcome in report.tasks_of(found, "solution", "1.2")] == ["1.2"]
    assert len(report.tasks_of(found, "solution")) == len(found.tasks)


DISHONEST = {  # what is added to a solution of lesson 1, the task that is not passed, and words of the message
    "NumPy's own": (
        "def broadcast_shape(a, b):\n    return np.broadcast_shapes(a, b)\n", "1.4",
        " uses broadcast_shapes, which task 1.4 may not use. Hint",
    ),
    "by a helper": (
        "from numpy import unravel_index as f\n\ndef index_at(p, s):\n    return tuple(int(i) for i in f(p, s))\n",
        "1.3", "unravel_index",
    ),
    "by its name": (
        "def broadcast_shape(a, b):\n    return getattr(np, 'broadcast_shapes')(a, b)\n", "1.4", "broadcast_shapes",
    ),
    "another same": ("import tutorials.compare\ntutorials.compare.same = print\n", "1.1", "compare.same is not what"),
    "the code of same": (
        "import tutorials\ntutorials.same.__code__ = (lambda *a, **k: None).__code__\n", "1.1", "same is not what it",
    ),
    "another isclose": ("np.isclose = lambda *a: np.asarray(True)\n", "1.6", "numpy.isclose is not what it was"),
    "same of the checks": (
        "import sys\nfor m in list(sys.modules.values()):\n    if hasattr(m, 'drawn_shape'):\n        m.same = print\n",
        "1.2", "same is not what it was",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", DISHONEST)
def test_dishonest_answers_fail(tmp_path, way):
    added, task, words = DISHONEST[way]
    found = LESSONS["01_storage"]
    path = tmp_path / "01_storage.py"
    path.write_text(found.solution.read_text(encoding="utf-8") + "\n\n" + added)
    outcomes = {outcome.task: outcome for outcome in by_task(run(found, str(path)))}
    assert outcomes[task].outcome == "wrong" and words in outcomes[task].message
    others = {t: outcome.outcome for t, outcome in outcomes.items() if t != task}
    assert set(others.values()) == ({"passed"} if "may not use" in outcomes[task].message else {"wrong"})


NAMED = [(name, task) for name, found in LESSONS.items() for task in names_refused(found)]


@pytest.mark.parametrize("name, task", NAMED)
def test_tasks_that_may_not_call_something_exist_and_are_solved_without(name, task):
    found = LESSONS[name]
    names = names_refused(found)[task]
    source = found.solution.read_text(encoding="utf-8")
    assert task in found.tasks and forbidden(source, found.stub, task, names) == ""
    calls = "".join(f"\n\ndef helper():\n    return np.{one}()\n" for one in names[:1])
    assert forbidden(source + calls, found.stub, task, names).endswith(f" uses {names[0]}")


def with_line_in(found, task, line, folder):
    """The path of a solution whose task begins with one line more."""
    region = next(region for region in found.regions if region.task == task)
    lines = found.solution.read_text(encoding="utf-8").splitlines()
    lines.insert(region.first - 1, " " * region.indent + line)
    path = folder / f"{found.name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


ENDS = {
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); exec('while True: pass')": (
        "not done after 2 seconds, the limit of a check: is there a loop without an end?"
    ),
    "import os; os._exit(0)": "the process ended in this check, as by os._exit()",
    "import os; os._exit(3)": "the process ended with exit status 3",
    "import os; os.abort()": "SIGABRT ended the process",
    "raise KeyboardInterrupt": "the process ended with exit status 2",
    "import pytest; pytest.exit('enough', 0)": "the process ended in this check",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_early_passes_nothing_more(tmp_path, monkeypatch, end):
    """The first task is right; the process ends in the second, or does not end."""
    monkeypatch.setattr(report, "FAREWELL", 8)
    name, found = next(iter(LESSONS.items()))
    path = with_line_in(found, f"{found.number}.2", end, tmp_path / "ada")
    tasks = by_task(run(found, str(path), limit=2))
    assert [task.task for task in tasks] == found.tasks
    assert [task.outcome for task in tasks] == ["passed"] + ["error"] * (len(tasks) - 1)
    assert tasks[1].message.startswith(ENDS[end])
    assert all(task.message.startswith("not checked, since the process ended in test_") for task in tasks[2:])
    if end.startswith("import os"):
        assert f"| ada | {name} | 1 of {len(found.tasks)} |" in teaching.grade(tmp_path)


def test_a_loop_without_an_end_is_stopped_and_named(tmp_path):
    """With its line; what comes after it is checked."""
    found = LESSONS["01_storage"]
    path = with_line_in(found, "1.2", "while True: pass", tmp_path)
    first = path.read_text(encoding="utf-8").splitlines().index("    while True: pass") + 1
    tasks = {task.task: task for task in by_task(run(found, str(path), limit=1))}
    assert tasks["1.2"].message == (
        "OutOfTime: not done after 1 seconds, the limit of a check: is there a loop without an end? "
        f"(01_storage.py:{first})"
    )
    assert {task: one.outcome for task, one in tasks.items()} == {
        **dict.fromkeys(found.tasks, "passed"), "1.2": "error", "1.6": tasks["1.6"].outcome,
    }  # fmt: skip


def test_outcomes_are_told_as_checks_end(tmp_path):
    """The second task waits for what is done when the first one is told."""
    found, sign = LESSONS["01_storage"], tmp_path / "told"
    wait = f"import os, time\n    while not os.path.exists({str(sign)!r}): time.sleep(0.01)"
    path, told = with_line_in(found, "1.2", wait, tmp_path), []

    def tell(task):
        told.append(task)
        sign.touch()

    outcomes = run(found, str(path), limit=20, tell=tell)
    assert told == by_task(outcomes) and [(one.task, one.outcome) for one in told] == [
        (task, "passed") for task in found.tasks
    ]


def test_what_takes_long_is_said_to_be_running(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PATIENCE", 0.5)
    found, told = LESSONS["01_storage"], []
    run(found, str(with_line_in(found, "1.3", "while True: pass", tmp_path)), limit=2, tell=told.append)
    assert [str(one).split(maxsplit=2)[1:] for one in told if one.task == "1.3"][0] == [
        "running", "it is stopped after 2 seconds, or by Ctrl-C",
    ]  # fmt: skip
    assert [one.outcome for one in told if one.task == "1.3"] == ["running", "error"]


def test_what_a_student_prints_is_shown(tmp_path):
    found = LESSONS["01_storage"]
    path = with_line_in(found, "1.2", "print('at', 3); print('x' * 10**5)", tmp_path)
    tasks = {task.task: task for task in by_task(run(found, str(path)))}
    assert str(tasks["1.1"]) == "1.1    passed      "
    first, *printed = str(tasks["1.2"]).splitlines()
    assert first == "1.2    passed      " and "at 3" not in printed and printed[-1].startswith("       | xxxxx")
    assert len("".join(printed)) < 600
    assert "xxx" not in teaching.as_markdown([teaching.Grade("ada", found, [replace(tasks["1.2"], outcome="wrong")])])


def test_a_thread_that_runs_on_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "FAREWELL", 1)
    found = LESSONS["01_storage"]
    line = "import threading, time; threading.Thread(target=time.sleep, args=(100,)).start()"
    *tasks, last = by_task(run(found, str(with_line_in(found, "1.1", line, tmp_path))))
    assert [task.outcome for task in tasks] == ["passed"] * len(found.tasks)
    assert str(last).strip() == (
        "error        after all checks: the process did not end within 1 seconds: does a thread of yours still run?"
    )


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal on Linux and macOS only")
def test_ctrl_c_ends_with_a_sentence(tmp_path):
    found = LESSONS["01_storage"]
    path = with_line_in(found, "1.2", "while True: pass", tmp_path)
    command = [sys.executable, "-m", "tutorials", "check", "1", "--impl", path]
    with subprocess.Popen(
        command, env=with_tutorials(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().split() == ["1.1", "passed"]
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == "\nstopped by Ctrl-C: what has no line above was not checked\n"
    assert process.returncode == 130


def begun(line):
    """A change of lesson 1's solution: the first task begins with this line."""
    return lambda text: text.replace("    strides = []\n", f"    {line}\n    strides = []\n", 1).encode()


STRANGE = {  # what a student's file is instead of the solution, and the message of the first task; "" if it passes
    "a byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), ""),
    "another encoding, declared": (lambda text: f"# coding: latin-1\nname = 'caf\xe9'\n{text}".encode("latin-1"), ""),
    "another encoding": (lambda text: f"\n\n# caf\xe9\n{text}".encode("latin-1"), "UTF-8 (01_storage.py:3)"),
    "Windows' Unicode": (lambda text: text.encode("utf-16"), "in UTF-8 (01_storage.py:1)"),
    "a zero byte": (lambda text: b"\n\0" + text.encode(), "null bytes (01_storage.py:2)"),
    "nothing": (lambda text: b"", "AttributeError: there is no 'contiguous_strides' in 01_storage.py: has"),
    "no colon": (lambda text: f"{text}def f(x)\n    pass\n".encode(), r"SyntaxError: expected ':' (01_storage.py:"),
    "an indent": (lambda text: f"  x = 1\n{text}".encode(), "IndentationError: unexpected indent (01_storage.py:1)"),
    "an exit": (lambda text: f"{text}exit()\n".encode(), "when it is loaded: the file ends the program, as by exit()"),
    "a loop at the end": (lambda text: f"{text}while 1: pass\n".encode(), "when it is loaded: not done after 3"),
    "an exit in a task": (begun("exit(3)"), "SystemExit: 3: your code ends the program; return, or"),
    "a question": (begun("input()"), "nobody answers input() in a check; take what you"),
    "a recursion": (begun("contiguous_strides(shape)"), "does a function call itself without an end? (01_"),
    "a long text": (begun("print('x' * 10**7)"), ""),
    "texts without an end": (begun("while True: print('x' * 10**6)"), "a check may print 64 MB: is there a loop"),
    "a long message": (begun("raise ValueError('x' * 10**7)"), "xxx ... (01_storage.py:11)"),
    "an array": (begun("np.ones(10**12)"), "MemoryError: Unable to allocate 7.28 TiB for an array"),
    "lists": (begun("x = [bytes(10**9) for i in range(99)]"), f"MemoryError: a check may use {limits.MEMORY >> 30} GB"),
    "an error that is caught": (begun("try: exec('while True: pass')\n    except Exception: pass"), "not done after 3"),
}  # fmt: skip


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_files_are_explained(tmp_path, kind):
    change, message = STRANGE[kind]
    found, path = LESSONS["01_storage"], tmp_path / "01_storage.py"
    path.write_bytes(change(found.solution.read_text(encoding="utf-8")))
    tasks = by_task(run(found, str(path), limit=3))
    assert [task.task for task in tasks] == found.tasks
    first = tasks[0]
    assert (first.outcome, len(first.message) < 2200) == ("error" if message else "passed", True), first
    assert message in first.message and "implementation.py" not in first.message, first
    alike = "when it is loaded" in message or "Syntax" in first.message or "Indent" in message
    assert {task.outcome for task in tasks[1:]} == {"error" if alike or kind == "nothing" else "passed"}, tasks


def test_results_of_another_type_are_explained(tmp_path):
    found = LESSONS["02_autograd"]
    for value, words in (("None", "does a function return nothing?"), ("'text'", "is it a result of another type?")):
        path = with_line_in(found, "2.1", f"return {value}", tmp_path)
        message = next(task.message for task in by_task(run(found, str(path))) if task.task == "2.1")
        assert message.endswith(f"has no attribute 'value': the check cannot use what your code returned: {words}")


def test_a_limit_that_is_lower_stays(monkeypatch):
    resource = pytest.importorskip("resource", reason="Windows has no limits of memory")
    given = {resource.RLIMIT_DATA: (resource.RLIM_INFINITY, 5), resource.RLIMIT_FSIZE: (3, resource.RLIM_INFINITY)}
    found = {}
    monkeypatch.setattr(resource, "getrlimit", given.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", found.__setitem__)
    limits.limit_process()
    assert found == {resource.RLIMIT_DATA: (5, 5), resource.RLIMIT_FSIZE: (3, resource.RLIM_INFINITY)}


def test_lessons_on_kernels_have_more_time():
    seconds = {found.number: limits.seconds_of(found) for found in LESSONS.values()}
    assert seconds == {number: 300 if number in (5, 6, 7, 8, 11) else 120 for number in range(len(LESSONS))}


def test_a_lesson_that_was_not_started(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("LESSON_IMPL", raising=False)
    folder = tmp_path / "01_storage"
    shutil.copytree(LESSONS["01_storage"].folder, folder, ignore=shutil.ignore_patterns("student.py", ".checked.json"))
    monkeypatch.setattr(report, "lesson_and_task", lambda which: (Lesson(folder), None))
    assert report.check(1) is False
    assert capsys.readouterr().out == "you have no file of lesson 1 yet: run `python -m tutorials start 1` first\n"


def test_what_is_not_written_is_the_task_or_what_it_needs(tmp_path):
    found = LESSONS["02_autograd"]
    said = {task.task: task.message for task in by_task(run(found, "stub"))}
    titles = {region.task: f"lesson {region.task}: {region.title}" for region in reversed(found.regions)}
    assert said == titles
    source = found.solution.read_text(encoding="utf-8").splitlines()
    source[found.regions[0].first - 1] = f'    raise Todo("{titles["2.1"]}")'
    path = tmp_path / "02_autograd.py"
    path.write_text("\n".join(source) + "\n", encoding="utf-8")
    tasks = {task.task: task for task in by_task(run(found, str(path)))}
    assert tasks["2.1"].message == titles["2.1"]
    assert tasks["2.4"].message == f"it needs what is not written yet, {titles['2.1']}"
    assert tasks["2.3"].outcome == "passed"


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n    {command} " in said for command in ("list", "start", "check", "show", "grade")), said


def test_a_script_may_check(tmp_path):
    """Without `if __name__ == "__main__"`: its lines run once."""
    script = tmp_path / "script.py"
    script.write_text('from tutorials import check\nprint("begins")\ncheck(1, "solution")\n')
    done = subprocess.run([sys.executable, script], env=with_tutorials(), capture_output=True, text=True)
    assert done.stdout.count("begins") == 1 and done.stdout.count("passed") == 6, done.stdout + done.stderr


def test_a_process_that_crashes_at_its_end_is_an_error(tmp_path):
    name, found = next(iter(LESSONS.items()))
    path = tmp_path / f"{name}.py"
    end = "import multiprocessing.util, os\nmultiprocessing.util.Finalize(None, os._exit, (7,), exitpriority=0)\n"
    path.write_text(found.solution.read_text() + end)
    outcomes = run(found, str(path))
    assert outcomes[-1].outcome == "error" and "after all checks: the process ended with exit status 7" in str(
        outcomes[-1]
    )


REFUSED = {  # lesson, a part of its solution, what stands in its place, and words of the message
    "no guard": (6, "    if i < x.size:\n        out[i] = x[i] * x[i]", "    out[i] = x[i] * x[i]", "guard it", "6.6"),
    "the number in the block": (
        6, "    i = cuda.grid(1)\n    if i < x.size:\n        out[i] = x[i] * x[i]",
        "    i = cuda.threadIdx.x\n    if i < x.size:\n        out[i] = x[i] * x[i]",
        "one thread of the grid\nHint: the blocks before", "6.6",
    ),
    "second barrier": (
        6, "left[y, k] * right[k, x]\n        cuda.syncthreads()", "left[y, k] * right[k, x]",
        "syncthreads() between the two, where all threads of the block pass\nrace", "6.14",
    ),
    "early return": (
        8, "column, row = cuda.grid(2)\n    total = np.float32(0)\n    for start",
        "column, row = cuda.grid(2)\n    if row >= c.shape[0] or column >= c.shape[1]:\n        return\n"
        "    total = np.float32(0)\n    for start", "a thread that has returned writes nothing", "8.3",
    ),
    "outputs not renamed": (
        12, "instructions, [new.get(number, number) for number in program.outputs])", "instructions, program.outputs)",
        "Hint: outputs are renamed, too", "12.5",
    ),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("mistake", REFUSED)
def test_messages_help_with(tmp_path, mistake):
    """What beginners got wrong in trials: the message says what to do, by what the lesson has taught."""
    lesson, old, new, words, task = REFUSED[mistake]
    of, path = changed(tmp_path, lesson, old, new)
    check = re.search(rf'task\("{re.escape(task)}"\)\n(?:@.*\n)*def (\w+)', of.tests.read_text(encoding="utf-8"))[1]
    outcomes = {outcome.task: outcome for outcome in by_task(run(of, path, options=["-k", check]))}
    found = outcomes[task]
    assert found.outcome == "wrong" and words in found.message, found
    assert "Hint: " in found.message and not any(word in found.message for word in ("atomic", "syncwarp")), found


RIGHT = {  # lesson, a part of its solution, and other code that does the same: in place, or with copies
    "descent in place": (2, "p.value = p.value - rate * p.grad", "p.value -= rate * p.grad"),
    "gradients added in place": (
        2, "gradients[parent] = gradients[parent] + part if parent in gradients else part",
        "gradients.setdefault(parent, np.zeros(parent.value.shape))\n                gradients[parent] += part",
    ),
    "inputs moved and put back": (
        3, "moved = [v.copy() for v in inputs]\n                moved[k][index] += move\n"
        "                ends.append((f(*moved) * cotangent).sum())",
        "before = inputs[k][index].copy()\n                inputs[k][index] += move\n"
        "                ends.append((f(*inputs) * cotangent).sum())\n                inputs[k][index] = before",
    ),
    "velocities by data": (4, "p -= self.lr * v", "p.data = p.data - self.lr * v"),
    "new means": (4, "p -= self.lr * (m /", "p.data = p.data - self.lr * (m /"),
    "bias added in place": (9, "return y + bias[:, None, None]", "y += bias[:, None, None]\n    return y"),
    "images copied": (10, "image = self.images[index]\n", "image = self.images[index].copy()\n"),
    "keys masked in place": (
        11, "return x if shift is None else np.where(np.tri(*x.shape[-2:], shift), x, -np.inf).astype(x.dtype)",
        "if shift is not None:\n        x[..., ~np.tri(*x.shape[-2:], shift, dtype=bool)] = -np.inf\n    return x",
    ),
    "sums updated in place": (
        11, "return new, total * old + weights.sum(1), summed * old[:, None] + weights @ v",
        "total *= old\n    total += weights.sum(1)\n    summed *= old[:, None]\n    summed += weights @ v\n"
        "    largest[...] = new\n    return largest, total, summed",
    ),
    "new gradients": (
        14, "for g in gradients:\n            g.div_(self.factor)",
        "for p in parameters:\n            p.grad = None if p.grad is None else p.grad / self.factor\n"
        "        gradients = [p.grad for p in parameters if p.grad is not None]",
    ),
    "shards added in place": (
        15, "return sum(shards)", "for x in shards[1:]:\n            shards[0] += x\n        return shards[0]",
    ),
    "blocks added where they arrive": (
        15, "moving = [x + row[rank - step] for rank, (x, row) in enumerate(zip(arrived, blocks))]",
        "for rank, (x, row) in enumerate(zip(arrived, blocks)):\n            x += row[rank - step]\n"
        "        moving = arrived",
    ),
    "what fits first": (
        15, "return min(candidates, key=price)",
        "for candidate in candidates:\n        if candidate[0] == given:\n            return candidate\n"
        "    return sorted(candidates, key=price)[0]",
    ),
    "debt by the price of boxing": (
        15, "(ranks - 1) * math.prod(result) if candidate[1] == P else 0",
        "cost(result, ranks, candidate[1], S(0) if candidate[1] == P else candidate[1])",
    ),
    "velocity in place": (
        16, "self.velocity = self.momentum * self.velocity + gradient",
        "self.velocity *= self.momentum\n        self.velocity += gradient",
    ),
    "summands scaled in place": (
        16, "[share * g for g in gradients]", "[np.multiply(g, share, out=g) for g in gradients]",
    ),
    "gradients replaced in their list": (
        16, "return [sums[position] for position in range(len(gradients))]",
        "for position in range(len(gradients)):\n        gradients[position] = sums[position]\n    return gradients",
    ),
    "moments in place": (
        18, "self.m[k] = b1 * self.m[k] + (1 - b1) * g", "self.m[k].mul_(b1).add_((1 - b1) * g)",
    ),
    "ends looked up": (
        18, "start = max([free[stage], *arrived])",
        "start = max([end for (s, *_), (_, end) in times.items() if s == stage] + arrived + [0.0])",
    ),
    "a stack of times": (
        21, "totals[name] = totals.get(name, 0) + end - start",
        "totals.setdefault(name, 0)\n        totals[name] += end - start",
    ),
    "pairs counted as one number": (
        19, "np.add.at(matrix, (labels, answers), 1)",
        "matrix += np.bincount(labels * classes + answers, minlength=classes**2).reshape(classes, classes)",
    ),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("style", RIGHT)
def test_right_in_another_style(tmp_path, style):
    outcomes = run(*changed(tmp_path, *RIGHT[style]))
    assert {outcome.outcome for outcome in outcomes} == {"passed"}, outcomes


def test_the_place_of_an_error_is_a_line_of_the_student(tmp_path):
    """None of a library, which would stand behind the student's own line in the message of a kernel."""
    lesson, path = changed(tmp_path, 2, "p.value = p.value - rate * p.grad", "p.value = p.value - rate * p.nothing")
    errors = [outcome.message for outcome in run(lesson, path) if outcome.outcome == "error"]
    assert errors and all(re.search(r"\(02_autograd\.py:\d+\)$", message) for message in errors), errors
    tests = lesson.folder / "test_02_autograd.py"
    for library in (syntax.__file__, pytest.__file__, ast.__file__, tests):
        assert not is_own(Path(library), tests)
    entry = {
        "task": "1.2",
        "outcome": "error",
        "kind": "KernelSyntaxError",
        "message": "line 3",
        "place": "",
        "test": "t",
    }
    assert outcome_of(entry).message == "KernelSyntaxError: line 3"


def changed(folder, number, old, new):
    """A lesson, and the path of its solution with one part replaced."""
    found = next(found for found in LESSONS.values() if found.number == number)
    source = found.solution.read_text(encoding="utf-8")
    assert source.count(old) == 1
    path = folder / f"{found.name}.py"
    path.write_text(source.replace(old, new), encoding="utf-8")
    return found, str(path)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["check", "99"], "there is no lesson '99'"),
        (["check", ""], "there is no lesson ''"),
        (["check", "1.9"], "lesson 01_storage has no task '1.9'; expected one of ['1.1', '1.2'"),
        (["check", "1", "--impl", "wrong:nothing"], "01_storage has no wrong solution 'nothing'"),
        (["check", "1", "--impl", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["check", "1", "--impl", "."], "there is no file '.'"),
        (["check", "1", "--picture", "nowhere/x.png"], "got 'nowhere/x.png'; expected a name such as lesson.png, in a"),
        (["check", "1", "--picture", "x.docx"], "got 'x.docx'; expected a name such as lesson.png, in a folder"),
        (["grade", "nowhere"], "'nowhere'"),
    ],
)
def test_what_does_not_exist_is_named(capsys, arguments, message):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
