"""ONNX's operators, and how many of ONNX's own node tests pass: `python tools/onnx_table.py > docs/onnx.md`."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import onnx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import miniflow as flow
from miniflow.onnx.loader.registry import OPERATORS
from miniflow.onnx.loader.unsupported import UNSUPPORTED

TEXT = """# ONNX operators

`flow.onnx.load` runs these operators of the default domain, from opset 7 to {newest}; models of older opsets load if
their operators have not changed since. Those that hold an unsupported operator are refused, with all such nodes.

The numbers are those of ONNX's own node tests, `onnx.backend.test`, in onnx {version}: {passed:,} of {total:,} pass,
{share:.1f} %. Opsets are those in which the operator changed. An operator marked *function* runs as the function of
other operators that ONNX defines. `python tools/onnx_table.py > docs/onnx.md` writes this page.

"""
HEADER = "| operator | opsets | node tests passed | |\n|---|---|---|---|\n"
MODELS = "\n## Models of other frameworks\n\n"
RANDOM = "random numbers are miniflow's own: shapes and types agree"
ROUNDED = "a difference in rounding: one unit of float16"
CASES = {  # node tests that do not pass although the operator is supported, and why
    RANDOM: (
        "test_bernoulli", "test_bernoulli_expanded", "test_bernoulli_double", "test_bernoulli_double_expanded",
        "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_training_dropout", "test_training_dropout_default",
        "test_training_dropout_default_mask", "test_training_dropout_mask",
    ),
    ROUNDED: ("test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"),
    "images have two dims": ("test_col2im_5d",),
    "strings are not supported": ("test_equal_string", "test_equal_string_broadcast"),
    "mode max is not supported": ("test_roialign_mode_max",),
    "sequences are not supported": ("test_identity_sequence", "test_if_seq", "test_loop13_seq", "test_loop16_seq_none"),
    "optional values are not supported": ("test_identity_opt", "test_if_opt"),
    "peepholes are not supported": ("test_lstm_with_peepholes",),
    "layout=1 is not supported": ("test_lstm_batchwise", "test_gru_batchwise", "test_simple_rnn_batchwise"),
    "opset 8 is not supported": ("test_scan_sum",),
}  # fmt: skip
REASONS = {name: reason for reason, names in CASES.items() for name in names}


@functools.cache
def node_cases() -> dict[str, list[Any]]:
    """ONNX's node tests of the default domain, by operator; a function beside its expansion."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = [c for c in collect_testcases(None) if not {o.domain for o in c.model.opset_import} - {"", "ai.onnx"}]
    names = {case.name: case.model.graph.node[0].op_type for case in cases if "_expanded" not in case.name}
    found: dict[str, list[Any]] = {}
    for case in cases:
        found.setdefault(names[case.name.split("_expanded")[0]], []).append(case)
    return found


def as_array(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def run(case: Any) -> None:
    """Compare what a model computes with the outputs of a node test, dtypes and shapes too.

    Raises:
        AssertionError: where they differ.
        OnnxError: for what is not supported.
    """
    from onnx.backend.test.runner import Runner

    module = flow.onnx.load(case.model)
    for inputs, outputs in case.data_sets:
        with flow.no_grad():
            results = module(*map(as_array, inputs))
        results = results if isinstance(results, tuple) else (results,)
        arrays = [x.numpy() if isinstance(x, flow.Tensor) else x for x in results]
        expected = list(map(as_array, outputs))
        if REASONS.get(case.name) == RANDOM:
            if [(x.shape, x.dtype) for x in arrays] != [(x.shape, x.dtype) for x in expected]:
                raise ValueError(f"{case.name}: shapes and types differ")
        Runner.assert_similar_outputs(expected, arrays, rtol=case.rtol, atol=case.atol)


def failures(operator: str) -> dict[str, Exception]:
    """What the node tests of an operator raise, by name."""
    found: dict[str, Exception] = {}
    for case in node_cases().get(operator, ()):
        try:
            run(case)
        except Exception as error:  # also what would be a fault of miniflow: the caller says so
            found[case.name] = error
    return found


def schemas() -> dict[str, list[int]]:
    """The operators of the default domain, with the opsets in which they changed."""
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(versions) for name, versions in sorted(found.items())}


def row(operator: str, failed: list[str]) -> str:
    """The line of an operator."""
    total = len(node_cases().get(operator, ()))
    notes = [UNSUPPORTED[operator]] if operator in UNSUPPORTED else []
    if not notes and operator not in OPERATORS:
        notes.append("*function*")
    notes += sorted({REASONS[name] for name in failed if name in REASONS} - set(notes))
    passed = f"{total - len(failed)} of {total}" if total else ""
    return f"| {operator} | {', '.join(map(str, schemas()[operator]))} | {passed} | {'; '.join(notes)} |\n"


def main() -> None:
    """Print the page."""
    rows, passed, total = [], 0, 0
    for operator in schemas():
        failed = failures(operator)
        for name, error in failed.items():
            if name not in REASONS and operator not in UNSUPPORTED:
                print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
        rows.append(row(operator, list(failed)))
        total += len(node_cases().get(operator, ()))
        passed += len(node_cases().get(operator, ())) - len(failed)
    numbers = {"passed": passed, "total": total, "share": 100 * passed / total}
    text = TEXT.format(version=onnx.__version__, newest=onnx.defs.onnx_opset_version(), **numbers)
    models = Path(__file__).with_name("onnx_models.md").read_text(encoding="utf-8")
    print(text + HEADER + "".join(rows) + MODELS + models, end="")


if __name__ == "__main__":
    main()
