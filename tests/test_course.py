"""The graders of the course reject every wrong answer that was planted."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tutorials import teaching  # noqa: E402
from tutorials.__main__ import main  # noqa: E402
from tutorials.lessons import ROOT, lessons, regions_of  # noqa: E402
from tutorials.mutants import equivalent, mutants, with_line  # noqa: E402
from tutorials.report import by_task, run  # noqa: E402

LESSONS = {found.name: found for found in lessons()}
WRONG = [(name, wrong) for name, found in LESSONS.items() for wrong in found.wrong]
LONGEST = 400  # lines of a lesson
MUTANTS = 20  # of each lesson, others in each run; `python -m tutorials.mutants NAME` tries all


@pytest.mark.parametrize("name", LESSONS)
def test_solution_passes_and_stub_does_not(name):
    found = LESSONS[name]
    outcomes = run(found, "solution")
    assert outcomes and {outcome.outcome for outcome in outcomes} == {"passed"}, outcomes
    assert {outcome.task for outcome in outcomes} == {region.task for region in found.regions}
    assert {outcome.outcome for outcome in run(found, "stub")} == {"not started"}


@pytest.mark.few(2 * len(LESSONS))
@pytest.mark.parametrize("name, wrong", WRONG)
def test_wrong_solution_is_rejected(name, wrong):
    header = ast.get_docstring(ast.parse(LESSONS[name].wrong[wrong].read_text(encoding="utf-8")))
    fields = dict(line.split(": ", 1) for line in header.splitlines() if line.startswith(("rejected by", "message")))
    test = fields["rejected by"]
    outcomes = run(LESSONS[name], f"wrong:{wrong}", options=["-k", test])
    messages = [o.message for o in outcomes if o.outcome != "passed" and o.test.partition("[")[0] == test]
    assert any(fields["message"] in message for message in messages), outcomes


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


def test_student_writes_and_checks(tmp_path):
    name = next(iter(LESSONS))
    folder = tmp_path / "edition"
    list(teaching.release(folder))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT.parent), os.environ.get("PYTHONPATH", "")])}

    def command(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "tutorials", *arguments], cwd=folder, env=env, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    assert command("check", name)[0] == 1 and "comes without" in command("show", name)[1]
    student = folder / "tutorials" / name / "student.py"
    before = student.read_text()
    assert "raise Todo" in before and "stays as it is" in command("start", name)[1] and student.read_text() == before
    student.write_text(LESSONS[name].solution.read_text(encoding="utf-8"))
    code, text = command("check", name)
    assert code == 0 and text.count("passed") == len(LESSONS[name].regions)
    assert "done" in command("list")[1]


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


def test_grades(tmp_path):
    name, found = next(iter(LESSONS.items()))
    endless = found.stub.replace("raise Todo", "while True: pass\n    raise Todo", 1)
    for student, source in {"ada": found.solution.read_text(), "bob": found.stub, "eve": "1 / 0\n"}.items():
        (tmp_path / student).mkdir()
        (tmp_path / student / f"{name}.py").write_text(source)
    count = len(found.regions)
    table = teaching.grade(tmp_path)
    assert f"| ada | {name} | {count} of {count} |  |" in table and f"| bob | {name} | 0 of {count} |" in table
    assert "ZeroDivisionError" in table.splitlines()[-1]
    (tmp_path / "endless.py").write_text(endless)
    assert "without an end" in by_task(run(found, str(tmp_path / "endless.py"), limit=8))[-1].message


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["check", "99"], "there is no lesson '99'"),
        (["check", "1", "--impl", "wrong:nothing"], "01_storage has no wrong solution 'nothing'"),
        (["check", "1", "--impl", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["grade", "nowhere"], "'nowhere'"),
    ],
)
def test_what_does_not_exist_is_named(capsys, arguments, message):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err
