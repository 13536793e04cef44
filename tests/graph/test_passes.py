"""The pipeline: order, switches, reports and what MINIFLOW_DEBUG_PASS prints."""

from types import SimpleNamespace

import pytest
from op_classes import Abs, Add, Mul
from programs import ProgramBuilder, assert_same_results, op_names, random_program

from miniflow.graph import passes
from miniflow.graph.config import GraphConfig
from miniflow.graph.ir import Program
from miniflow.graph.passes import dead_code, run_pass, run_passes


@pytest.fixture
def short(monkeypatch):
    """A pipeline of two passes."""
    monkeypatch.setattr(passes, "PIPELINE", ("cse", "dead_code"))


def wasteful() -> Program:
    """The same product twice in a sum, and |x| that nobody reads."""
    b = ProgramBuilder(name="wasteful")
    x = b.input(2)
    b(Abs, x)
    return b.build(b(Add, b(Mul, x, 3), b(Mul, x, 3)))


def config(*disabled: str) -> SimpleNamespace:
    """A configuration that only names disabled passes."""
    return SimpleNamespace(disabled_passes=set(disabled))


def test_passes_run_in_order_and_leave_a_record(short):
    report = []
    program = run_passes(wasteful(), config(), report)
    assert op_names(program) == ["mul", "add"]
    assert [(r.name, r.before, r.after, r.changed) for r in report] == [
        ("cse", 4, 3, True),
        ("dead_code", 3, 2, True),
    ]
    assert str(report[0]).startswith("cse: 4 -> 3 instructions, ") and report[0].seconds > 0


def test_a_pass_can_be_switched_off(short):
    assert op_names(run_passes(wasteful(), config("dead_code"))) == ["abs", "mul", "add"]
    assert op_names(run_passes(wasteful(), config("dead_code", "cse"))) == ["abs", "mul", "mul", "add"]


def test_a_pass_that_finds_nothing_returns_its_program(short):
    program = run_passes(wasteful(), config())
    report = []
    assert run_passes(program, config(), report) is program
    assert not any(record.changed for record in report)


def test_parameters_are_fields_of_the_configuration(monkeypatch):
    seen = {}

    def run(program, amp_dtype, config):
        seen.update(amp_dtype=amp_dtype, config=config)
        return program

    monkeypatch.setattr(dead_code, "run", run)
    given = SimpleNamespace(amp_dtype="half", disabled_passes=set())
    run_pass("dead_code", wasteful(), given)
    assert seen == {"amp_dtype": "half", "config": given}


@pytest.mark.parametrize("value, printed", [("dead_code", ["dead_code"]), ("ALL", ["cse", "dead_code"])])
def test_programs_are_printed_before_and_after(short, monkeypatch, capsys, value, printed):
    monkeypatch.setenv("MINIFLOW_DEBUG_PASS", value)
    run_passes(wasteful(), config())
    text = capsys.readouterr().err
    for name in printed:
        assert f"before {name}: wasteful:\n" in text and f"after {name}: wasteful:\n" in text
    assert text.count("before ") == len(printed)
    assert f"before dead_code: {run_pass('cse', wasteful(), config())}\nafter dead_code: wasteful:" in text


def test_nothing_is_printed_without_the_variable(short, monkeypatch, capsys):
    monkeypatch.delenv("MINIFLOW_DEBUG_PASS", raising=False)
    assert isinstance(run_passes(wasteful(), config()), Program)
    assert capsys.readouterr().err == ""


def test_the_whole_pipeline_leaves_results(seed):
    for number in range(6):
        before = random_program(seed + number)
        after = run_passes(before, GraphConfig())
        assert len(after.instructions) <= len(before.instructions)
        assert_same_results(before, after, exact=False, rtol=1e-4, atol=1e-5)
