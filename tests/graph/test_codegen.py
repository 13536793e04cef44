"""Compiled loops of fused regions: against NumPy on all shapes, layouts and dtypes, and how they are kept."""

import itertools
import json
import os
import subprocess
import sys
import textwrap

import compare
import numpy as np
import pytest
from bodies import evaluated, random_body
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.body import Body, Step, arity
from miniflow.backends.cpu import pointwise as cpu
from miniflow.backends.cuda import pointwise as cuda
from miniflow.backends.registry import KERNELS
from miniflow.dispatch.dispatcher import kernel_on
from miniflow.formulas.scalar import FORMULAS, expression, is_number, key_of
from miniflow.graph.codegen.fused import FusedElementwise

F = "float32"
fused = kernel_on(FusedElementwise, "cpu")
into = KERNELS["cpu"]["FusedElementwise"]
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 3e38, 88.5, -88.5, 104.5, -104.5], np.float32)
TOLERANCE = {"float32": (1e-6, 1e-37), "float64": (1e-12, 0.0), "float16": (1e-3, 1e-7), "bfloat16": (8e-3, 1e-38)}

ODD = Body(
    [F, F, F],
    [(0.5, F)],
    [
        Step("mul", ("x0", "x1"), F),
        Step("add", ("v0", "x2"), F),
        Step("gelu:approximate=none", ("v1",), F),
        Step("sub", ("v2", "n0"), F),
    ],
    ["v0", "v3"],
)


def check(body, *inputs, device="cpu", rtol=None, atol=None):
    """The kernel gives what NumPy gives, in float64 and rounded at every step."""
    want = evaluated(*inputs, body=body)
    if device == "cpu":
        got = fused(*inputs, body=body)
    else:
        from miniflow.backends.cuda.array import from_host

        got = [y.numpy() for y in kernel_on(FusedElementwise, "cuda")(*[from_host(x, 0) for x in inputs], body=body)]
    assert len(got) == len(want) == len(body.outputs)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        relative, absolute = TOLERANCE.get(g.dtype.name, (0, 0))
        compare.assert_close(g, w, rtol=rtol or relative, atol=atol or absolute, what=f"output {k} of {body.text}")


def numbers(*shape, seed=0, kind=F):
    values = np.random.default_rng([seed, *shape]).normal(size=shape)
    return np.asarray(values > 0 if kind == "bool" else values).astype(kind)


# each function


def of_one_step(function, kind):
    """The operands, numbers left out, and the step of a body that calls one function."""
    found = expression(function)
    formula = FORMULAS[function.split(":")[0]]
    names = [f"bool.{i}" if i in found.bools else f"{kind}.{i}" for i in range(arity(function))]
    if function in BITS:
        names = [f"bool.{i}" for i in range(arity(function))]
    count = sum(is_number(value) for value in formula.attributes.values())
    if count:
        names[-count:] = ["n0", "n1", "n0"][:count]
    if set(names) & {"n0"} == set() and formula.name in (
        "log",
        "sqrt",
        "rsqrt",
        "sqrt_grad",
        "rsqrt_grad",
        "div_grad_y",
    ):
        names = [name[:-1] + "2" for name in names]  # which are positive
    return names, Step(function, tuple(names), "bool" if found.predicate or function in BITS else kind)


def of_functions(functions, kind):
    """A body with one output for each function, and its inputs."""
    steps = [of_one_step(function, kind) for function in functions]
    names = sorted({name for operands, _ in steps for name in operands if name[0] != "n"})
    known = {name: f"x{i}" for i, name in enumerate(names)}
    computed = "float64" if kind == "float64" else F
    made = [Step(s.function, tuple(known.get(o, o) for o in s.operands), s.dtype) for _, s in steps]
    outputs = [f"v{i}" for i in range(len(made))]
    body = Body([n.split(".")[0] for n in names], [(0.75, computed), (20.0, computed)], made, outputs)
    arrays = [numbers(37, seed=int(n[-1]), kind=n.split(".")[0]) for n in names]
    return body, [np.abs(x) if n.endswith(".2") else x for x, n in zip(arrays, names, strict=True)]


BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
# their rounding errors are relative to an operand
CANCELLING = (
    "_grad", "_grad_gate", "_grad_new", "gated_tanh_grad_x", "gelu", "sub", "div_grad_y", "addcmul", "addcdiv",
    "logaddexp", "tanhshrink", "lerp", "digamma", "zeta_grad_y",  # near its pole the last takes s + 1 apart again
)  # fmt: skip


def all_functions():
    """The keys of all formulas that can be part of a region on the CPU."""
    for name, formula in FORMULAS.items():
        fixed = {k: v for k, v in formula.attributes.items() if not is_number(v)}
        keys = [key_of(name, fixed)]
        if "approximate" in fixed:
            keys.append(key_of(name, {"approximate": "tanh"}))
        yield from (key for key in keys if F not in expression(key).slow and "shift" not in key)


ALL = sorted(all_functions())


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.few(3)
@pytest.mark.parametrize("part", range(4))
def test_every_function_is_what_numpy_says(part, kind):
    functions = [f for f in ALL[part::4] if kind not in expression(f).slow]
    body, arrays = of_functions(functions, kind)
    for function, got, want in zip(functions, fused(*arrays, body=body), evaluated(*arrays, body=body), strict=True):
        relative, absolute = TOLERANCE.get(got.dtype.name, (0, 0))
        absolute = 4 * relative if function.split(":")[0].endswith(CANCELLING) else absolute
        compare.assert_close(got, want, rtol=relative, atol=absolute, what=function)


def test_special_values_are_as_numpy_has_them():
    functions = ["exp", "log", "tanh", "sigmoid", "erf", "sqrt", "rsqrt", "relu", "sign", "neg", "abs"]
    body = Body([F], [], [Step(f, ("x0",), F) for f in functions], [f"v{i}" for i in range(len(functions))])
    x = np.concatenate([SPECIAL, numbers(37, seed=5) * 30])
    for function, got, want in zip(functions, fused(x, body=body), evaluated(x, body=body), strict=True):
        compare.assert_close(got, want, rtol=2e-6, atol=1e-37, what=function)
        if function in ("tanh", "erf", "sqrt", "neg"):
            np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_polynomials_are_accurate_everywhere():
    """All floats with the upper 16 bits of their own: every exponent, 128 fractions each."""
    x = (np.arange(2**16, dtype=np.uint32) << 16).view(F)
    functions = ["exp", "log", "tanh", "erf", "sigmoid"]
    body = Body([F], [], [Step(f, ("x0",), F) for f in functions], [f"v{i}" for i in range(len(functions))])
    for function, got, want in zip(functions, fused(x, body=body), evaluated(x, body=body), strict=True):
        compare.assert_close(got, want, rtol=4e-7, atol=2e-38, what=function)


def test_arithmetic_is_bit_for_bit_that_of_numpy():
    steps = [
        Step("mul", ("x0", "x1"), F),
        Step("add", ("v0", "x2"), F),
        Step("div", ("v1", "x0"), F),
        Step("sub", ("v2", "v0"), F),
    ]
    x, y, z = (numbers(1001, seed=i) for i in range(3))
    (got,) = fused(x, y, z, body=Body([F] * 3, [], steps, ["v3"]))
    np.testing.assert_array_equal(got, (x * y + z) / x - x * y)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_rounded_at_every_step(kind):
    steps = [Step("mul", ("x0", "x1"), kind), Step("add", ("v0", "x0"), kind), Step("mul", ("v1", "n0"), kind)]
    every = np.arange(2**16, dtype=np.uint16).view(np.dtype(kind))
    other = np.random.default_rng(0).permutation(every)
    got = fused(every, other, body=Body([kind] * 2, [(0.3, F)], steps, ["v0", "v2"]))
    with np.errstate(all="ignore"):
        product = every * other
        total = (product + every).astype(np.float32) * np.float32(0.3)
    for g, w in zip(got, (product, total.astype(kind)), strict=True):
        np.testing.assert_array_equal(g.astype(np.float32), w.astype(np.float32))


@pytest.mark.few(2)
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "bool", "int32", "int64", "uint8"])
def test_casts(source):
    whole = source.lstrip("u").startswith("int")
    targets = [F, "float64"] if whole else [F, "float64", "float16", "bfloat16", "bool"]
    body = Body([source], [], [Step("cast", ("x0",), t) for t in targets], [f"v{i}" for i in range(len(targets))])
    x = (numbers(70, seed=3) * 100).astype(source)
    for got, target in zip(fused(x, body=body), targets, strict=True):
        np.testing.assert_array_equal(got, x.astype(target))
        assert got.dtype == np.dtype(target)


# shapes and layouts


SHAPES = [
    [(7, 33), (7, 33), (7, 33)], [(7, 33), (33,), (7, 1)], [(7, 33), (), (1,)], [(3, 5, 4, 6), (5, 1, 1), (3, 1, 1, 6)],
    [(), (), ()], [(1,), (1, 1), ()], [(2, 1, 3, 1, 2, 1), (1, 3, 1, 3, 1, 2), (2,)], [(0, 4), (4,), ()],
    [(5, 1), (1, 7), ()], [(1, 9), (9,), (1,)], [(63,), (63,), ()], [(64,), (64,), ()], [(65,), (65,), ()],
    [(3, 15), (15,), ()], [(3, 16), (16,), ()], [(3, 17), (17,), ()], [(255,), (255,), (255,)],
    [(257,), (257,), (257,)],
]  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_inputs_are_broadcast(shapes):
    check(ODD, *[numbers(*shape, seed=i) for i, shape in enumerate(shapes)], atol=1e-6)


@pytest.mark.parametrize("shapes", [SHAPES[i] for i in (0, 1, 2, 3, 6, 7, 16, 17)], ids=str)
def test_inputs_are_broadcast_on_cuda(shapes):
    check(ODD, *[numbers(*shape, seed=i) for i, shape in enumerate(shapes)], device="cuda", atol=1e-6)


@pytest.mark.parametrize("forms", ["sv", "vs"])
def test_one_element_beside_many_is_read_once_for_all(forms):
    body = Body([F] * 2, [], [Step("sub", ("x0", "x1"), F), Step("mul", ("v0", "x1"), F)], ["v0", "v1"])
    check(body, *[numbers(*((70, 66) if form == "v" else ()), seed=i) for i, form in enumerate(forms)])
    check(body, np.broadcast_to(numbers(1), (70, 66)), numbers(70, 66, seed=1))
    assert set(cpu.loops(body).ufuncs) == {tuple(forms), ("s", "v")}


def test_small_arrays_have_one_loop_and_empty_ones_none():
    body = Body([F] * 2, [], [Step("sub", ("x0", "x1"), F)], ["v0"])
    check(body, numbers(4, 0), numbers())
    assert not cpu.loops(body).ufuncs
    for shapes in [(63, 65), ()], [(), (5,)], [(3, 1), (4,)], [(), ()]:
        check(body, *[numbers(*shape, seed=i) for i, shape in enumerate(shapes)])
    assert set(cpu.loops(body).ufuncs) == {("v", "v")}


def test_any_layout_of_the_inputs():
    x, y = numbers(65, 66), numbers(66, 65)
    layouts = [
        y.T,
        numbers(130, 132)[::2, ::2],
        x[::-1],
        x[:, ::-1],
        np.asfortranarray(x),
        np.broadcast_to(x[:1], x.shape),
    ]
    layouts += [np.broadcast_to(x[:, :1], x.shape), numbers(65, 72)[:, 3:69], numbers(2, 65, 66)[1]]
    packed = np.zeros(65 * 66, np.dtype([("flag", np.int8), ("value", np.float32)]))  # steps of part elements
    packed["value"] = x.ravel()
    for view in [*layouts, packed["value"].reshape(65, 66)]:
        check(ODD, view, x, np.float32(2) * view, atol=1e-6)


def test_large_arrays_are_shared_among_threads(monkeypatch):
    parts = []
    monkeypatch.setattr(
        cpu, "share", lambda work, items, elements, *args: parts.append(items) or split(work, items, args)
    )

    def split(work, items, args):
        for start in range(0, items, max(items // 3, 1)):
            work(start, min(start + max(items // 3, 1), items), *args)

    check(ODD, numbers(300, 301), numbers(300, 301), numbers(300, 301), atol=1e-6)  # one row of 90,300 columns
    check(ODD, numbers(300, 301), numbers(301), numbers(300, 1), atol=1e-6)
    monkeypatch.setattr(cpu, "SHARED_COST", 0)
    body = Body(ODD.inputs, ODD.numbers, ODD.steps, ODD.outputs)
    check(body, numbers(300, 301), numbers(300, 301), numbers(300, 301), atol=1e-6)
    check(body, numbers(300, 301), numbers(301), numbers(300, 1), atol=1e-6)
    assert parts[-2:] == [301, 301]


def test_outputs_may_replace_the_inputs_that_they_are_computed_from():
    body = Body([F] * 3, [], [Step("add", ("x0", "x1"), F), Step("mul", ("x0", "x2"), F)], ["v0", "v1"])
    assert [into.in_place(k, body=body) for k in (0, 1)] == [{0, 1}, {0, 2}]
    for shape, run in itertools.product([(1001,), (40, 41)], [into.run, lambda *args, **kw: into.bind(*args, **kw)()]):
        for first, second in [(0, 2), (1, 0), (1, 2)]:
            arrays = [numbers(*shape, seed=i) for i in range(3)]
            want = evaluated(*arrays, body=body)
            outs = arrays[first], arrays[second]
            run(outs, *arrays, body=body)
            for got, expected in zip(outs, want, strict=True):
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(40, 1), (103,), (1, 1)])
def test_an_output_may_replace_an_input_beside_which_others_are_broadcast(shape):
    body = Body([F] * 2, [], [Step("add", ("x0", "x1"), F), Step("sub", ("v0", "x0"), F)], ["v0", "v1"])
    x, y, rest = numbers(40, 103), numbers(*shape, seed=1), np.full((40, 103), np.nan, F)
    want = evaluated(x, y, body=body)
    into.bind((x, rest), x, y, body=body)()
    for got, expected in zip((x, rest), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_bound_call_runs_on_the_same_arrays_again():
    x, row, scalar = numbers(6, 7), numbers(7), numbers(1)
    outs = np.full((6, 7), np.nan, F), np.full((6, 7), np.nan, F)
    call = into.bind(outs, x, row, scalar, body=ODD)
    for seed in (1, 2):
        x[...] = numbers(6, 7, seed=seed)
        call()
        for got, want in zip(outs, evaluated(x, row, scalar, body=ODD), strict=True):
            compare.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_one_output_is_taken_without_a_tuple():
    body = Body([F], [(2.0, F)], [Step("mul", ("x0", "n0"), F)], ["v0"])
    x, out = numbers(5), np.empty(5, F)
    into.run(out, x, body=body)
    np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.few(3)
@pytest.mark.parametrize("number", range(2))
def test_random_bodies(number, kind, seed):
    random = np.random.default_rng([seed, number])
    body = random_body(random, kind=kind)
    shapes = [[(5, 17), (17,), (5, 1), ()][i % 4] for i in range(len(body.inputs))]
    arrays = [numbers(*shape, seed=i, kind=k) for i, (shape, k) in enumerate(zip(shapes, body.inputs, strict=True))]
    check(body, *arrays, rtol=2e-5 if kind == F else 2e-2, atol=2e-5 if kind == F else 2e-2)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_random_bodies_on_cuda(kind, seed):
    body = random_body(np.random.default_rng([seed, 9]), kind=kind)
    for shapes in ([(257,)], [(5, 33), (33,), (5, 1), ()]):
        some = [shapes[i % len(shapes)] for i in range(len(body.inputs))]
        arrays = [numbers(*shape, seed=i, kind=k) for i, (shape, k) in enumerate(zip(some, body.inputs, strict=True))]
        check(body, *arrays, device="cuda", rtol=2e-5 if kind == F else 6e-2, atol=2e-5 if kind == F else 6e-2)


# the generated kernels


def storage(x):
    """An array as a kernel sees it: booleans and half precision as their bits."""
    kinds = {"bool": np.uint8, "float16": np.uint16, "bfloat16": np.uint16}
    return x.view(kinds[x.dtype.name]) if x.dtype.name in kinds else x


def cases_of(name, body, arrays):
    """Launches of the flat kernel, with a lone element as first input, and of the spread kernel."""

    def flat():
        outs = [storage(np.zeros(37, kind)) for kind in body.output_dtypes]
        lone, *others = arrays
        numbers_ = [np.float64(v) if kind == "float64" else np.float32(v) for v, kind in body.numbers]
        return [*outs, storage(lone[:1].copy()), *[storage(x.copy()) for x in others], *numbers_]

    def spread():
        tensors, given = [], flat()
        outs, inputs = given[: len(body.outputs)], given[len(body.outputs) : len(body.outputs) + len(arrays)]
        for array in (*outs, *inputs):
            tensors += [array, (0, 0, 0, 7, 1) if array.size > 1 else (0, 0, 0, 0, 0)]
        return [(1, 1, 5, 7), *tensors, *given[len(outs) + len(inputs) :]]

    forms = "s" + "v" * (len(arrays) - 1)
    return [
        Case(f"{name}, flat", cuda.launcher_of(body, forms, "flat"), flat, grid=2, block=32, tolerance=2e-5),
        Case(
            f"{name}, spread", cuda.launcher_of(body, "", "spread"), spread, grid=(2, 3), block=(4, 2), tolerance=2e-5
        ),
    ]


POLYNOMIAL = 8  # the cost of exp, tanh, ...


def generated():
    for kind in ("float16", "float32", "float64", "bfloat16"):  # the first is the least to compile
        for part in range(4):
            functions = [f for f in ALL[part::4] if kind not in expression(f).slow]
            if kind.endswith("float16"):  # compared bit for bit: not those in which executors may round differently
                functions = [f for f in functions if expression(f).size == 1 and expression(f).cost < POLYNOMIAL]
            yield from cases_of(f"{kind} {part}", *of_functions(functions, kind))


GENERATED = list(generated())


@pytest.mark.slow
@pytest.mark.parametrize("case", GENERATED, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", GENERATED, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)


# bodies and their files


def test_a_body_prints_its_steps():
    assert (
        ODD.text == "{v0 = mul(x0, x1); v1 = add(v0, x2); v2 = gelu(v1, approximate=none); v3 = sub(v2, 0.5) -> v0, v3}"
    )
    assert ODD.output_dtypes == (F, F) and ODD.dependencies() == [{0, 1}, {0, 1, 2}]


def test_a_body_goes_through_json():
    values = Body(
        [F],
        [(np.inf, F), (0.1, F), (-0.0, F)],
        [Step("clamp", ("x0", "n2", "n0"), F), Step("mul", ("v0", "n1"), F)],
        ["v1"],
    )
    for body in (ODD, values):
        again = Body.from_json(json.loads(json.dumps(body.as_json())))
        assert again == body and again.text == body.text and hash(again) == hash(body)
    assert ODD != values


@pytest.mark.parametrize(
    "change, words",
    [
        ({"steps": [["system", ["x0"], F]]}, "system.* is not a pointwise operator"),
        ({"steps": [["add", ["x0"], F]]}, "calls add with 1"),
        ({"steps": [["add", ["x0", "v0"], F]]}, "before they are computed"),
        ({"steps": [["neg", ["x0"], "complex64"]]}, "unknown dtypes"),
        ({"inputs": ["object"]}, "unknown dtypes"),
        ({"outputs": ["x0"]}, "does not compute"),
        ({"outputs": []}, "does not compute"),
        ({"numbers": [["nonsense", F]]}, "hex"),
        ({"steps": 3}, "describes no fused region"),
        ({"outputs": ["v0"] * 64}, "more than 64"),
    ],
)
def test_corrupt_bodies_are_refused(change, words):
    good = Body([F], [], [Step("neg", ("x0",), F)], ["v0"]).as_json()
    with pytest.raises(ValueError, match=words):
        Body.from_json(good | change)


def test_numbers_and_shapes_are_not_in_the_text():
    def body(value):
        return Body([F], [(value, F)], [Step("mul", ("x0", "n0"), F)], ["v0"])

    assert cpu.ufunc_of(body(2.0), ("v",)) is cpu.ufunc_of(body(3.0), ("v",))
    np.testing.assert_array_equal(fused(numbers(4, 5), body=body(3.0))[0], 3 * numbers(4, 5))


def test_the_generated_text_can_be_read():
    text = cpu.source_of(ODD, ("v", "y0", "s"))
    assert "x0_here = x0[i * x0_step]" in text and "x1_here = y0[i * y0_step]" in text
    assert "x2_first = x2[0]" in text and "x2_here = x2_first" in text
    assert (
        "v1 = v0 + x2_here" in text
        and "v2 = np.float32(0.5) * v1 * (np.float32(1.0) + erf(" in text
        and "v3 = v2 - n0" in text
    )


def test_how_inputs_are_read():
    out = np.empty((64, 64), F)
    inputs = [
        out,
        out[:, :1],
        np.empty(64, F),
        np.empty((1, 1), F),
        np.empty((), F),
        np.broadcast_to(np.empty(1, F), (64, 64)),
    ]
    assert cpu.forms_of(out, inputs) == ("v", "v", "v", "s", "s", "s")
    assert cpu.forms_of(out[:63], inputs) == ("v",) * 6


def test_infer_knows_shapes_and_dtypes():
    body = Body([F, F], [], [Step("gt", ("x0", "x1"), "bool"), Step("add", ("x0", "x1"), F)], ["v0", "v1"])
    kinds = FusedElementwise.infer(np.empty((3, 1), F), np.empty(4, F), body=body)
    assert kinds == [((3, 4), np.dtype(bool)), ((3, 4), np.dtype(F))]


PROGRAM = """
import numpy as np
from numba.core import event
import miniflow.ops.arithmetic
from miniflow.backends.body import Body, Step
from miniflow.backends.cpu.pointwise import loops

class Count(event.Listener):
    started = 0
    def on_start(self, e): Count.started += 1
    def on_end(self, e): pass

steps = [Step("mul", ("x0", "n0"), "float32"), Step("tanh", ("v0",), "float32")]
body = Body(["float32"], [(2.0, "float32")], steps, ["v1"])
x = np.linspace(-1, 1, 7).astype("float32")
with event.install_listener("numba:compile", Count()):
    y = np.empty_like(x)
    loops(body).run((y,), (x,), [2.0])
print(y.tolist())
print("compiled", Count.started)
"""


def test_a_second_process_compiles_nothing(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    environment = os.environ | {"MINIFLOW_CACHE_DIR": str(tmp_path / "cache")}
    lines = []
    for _ in range(2):
        done = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.splitlines())
    assert lines[0][0] == lines[1][0]
    assert lines[0][1] != "compiled 0" and lines[1][1] == "compiled 0"
    assert len(list((tmp_path / "cache" / "pointwise").glob("*.py"))) == 1
