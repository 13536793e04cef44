"""The checks bite: faults planted in gradients, kernels, optimizers, views and nn.Graph make the default tests fail.

A wrong backward is injected into eleven ops, in five kinds; wrong results into the kernels of thirty.

"A missing broadcast reduction" has two forms. For the ops that declare `broadcasts`, the declaration is taken away, so
that a gradient of the broadcast shape comes back for the small operand. For the others, whose own backward has to
reduce or spread the gradient, its first element along the last dim takes the place of all others: what is left when a
sum over repeated elements is replaced by one of them.
"""

from dataclasses import replace

import numpy as np
import pytest
import test_inplace
import test_views
from checks import check_op
from graph import programs, test_expressions, test_pass_accumulation
from graph import test_samples as graph_samples
from op_classes import Add, Div, Mul, Tanh, Where
from ops import test_attention, test_pooling
from ops import test_samples as op_samples
from optim import test_lbfgs, test_optimizer, test_rules
from samples import ROWS

import miniflow as flow
from miniflow import optim
from miniflow.backends.registry import KERNELS, Kernel, kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.errors import AutogradError, GradientCheckError
from miniflow.graph.codegen import expressions
from miniflow.graph.passes import accumulation, cse
from miniflow.nn.functional import conv2d, layer_norm
from miniflow.ops import attention, inplace
from miniflow.ops.convolution import Conv2d
from miniflow.ops.matmul import Linear, Matmul
from miniflow.ops.normalization import LayerNorm
from miniflow.ops.reduction import Sum
from miniflow.ops.softmax import Softmax
from miniflow.tensor import Tensor


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values of either sign, away from zero."""
    random = np.random.default_rng((seed, *shape))
    return random.uniform(0.5, 2.0, shape) * random.choice([-1.0, 1.0], shape)


CONDITION = np.array([[True, False, True], [False, True, False]])

OPS = {  # the op class, the function, its inputs
    "add": (Add, flow.add, [draw(2, 3), draw(3)]),
    "mul": (Mul, flow.mul, [draw(2, 1, 3), draw(4, 1)]),
    "div": (Div, flow.div, [draw(2, 3), draw(3, seed=1)]),
    "where": (Where, lambda x, y: flow.where(flow.tensor(CONDITION), x, y), [draw(3), draw(2, 3)]),
    "matmul": (Matmul, flow.matmul, [draw(2, 2, 3), draw(1, 3, 2)]),
    "linear": (Linear, flow.linear, [draw(4, 3), draw(2, 3), draw(2)]),
    "tanh": (Tanh, flow.tanh, [draw(2, 3)]),
    "sum": (Sum, lambda x: flow.sum(x * x, 0), [draw(2, 3)]),
    "softmax": (Softmax, lambda x: flow.softmax(x, 1), [draw(2, 4)]),
    "layer_norm": (LayerNorm, lambda x, w, b: layer_norm(x, (4,), w, b), [draw(2, 4), draw(4), draw(4, seed=3)]),
    "conv2d": (Conv2d, conv2d, [draw(2, 2, 4, 4), draw(2, 2, 2, 2), draw(2)]),
}


def each(gradients, change) -> tuple:
    """Every gradient that a backward returned, changed."""
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return tuple(change(g) if isinstance(g, Tensor) else g for g in gradients)


def permuted(g: Tensor) -> Tensor:
    """The elements in another order."""
    return g.reshape(-1).flip(0).reshape(g.shape)


def one_for_all(g: Tensor) -> Tensor:
    """The first element along the last dim in place of all others."""
    return g[..., :1].expand(g.shape) * 1.0


WRONGS = {
    "zero": lambda g: g * 0.0,
    "sign flipped": lambda g: -g,
    "permuted": permuted,
    "off by 1.01": lambda g: g * 1.01,
    "missing broadcast reduction": one_for_all,
}


def reject(name: str) -> None:
    """`check_op` must refuse the op as it is now."""
    _, function, inputs = OPS[name]
    with pytest.raises((GradientCheckError, AutogradError, AssertionError), match="gradient|grad"):
        check_op(function, inputs)


@pytest.mark.parametrize("name", OPS)
def test_the_right_backward_passes(name):
    _, function, inputs = OPS[name]
    gradient = "sparse" if name == "where" else "dense"
    check_op(function, inputs, gradient=gradient)


@pytest.mark.parametrize("wrong", WRONGS)
@pytest.mark.parametrize("name", OPS)
def test_a_wrong_backward_is_rejected(monkeypatch, name, wrong):
    op = OPS[name][0]
    if wrong == "missing broadcast reduction" and op.broadcasts and len(OPS[name][2]) > 1:
        monkeypatch.setattr(op, "broadcasts", False)
    else:
        right, change = op.backward, WRONGS[wrong]
        monkeypatch.setattr(op, "backward", staticmethod(lambda ctx, *dy: each(right(ctx, *dy), change)))
    reject(name)


def one_off_by_a_hundredth(g: Tensor) -> Tensor:
    """A hundredth too large in one element."""
    factor = np.ones(g.shape)
    factor.flat[0] = 1.01
    return g * flow.tensor(factor)


WRONG_ONCE = {name: WRONGS[name] for name in ("zero", "sign flipped", "permuted")} | {"one": one_off_by_a_hundredth}


@pytest.mark.parametrize("wrong", WRONG_ONCE)
@pytest.mark.parametrize("name", OPS)
def test_a_wrong_second_derivative_is_rejected(monkeypatch, name, wrong):
    """The first gradient is right, its own backward is not."""

    class Twisted(flow.autograd.Function):
        @staticmethod
        def forward(ctx, g):
            return g.clone()

        @staticmethod
        def backward(ctx, dg):
            return WRONG_ONCE[wrong](dg)

    op = OPS[name][0]
    right = op.backward
    monkeypatch.setattr(op, "backward", staticmethod(lambda ctx, *dy: each(right(ctx, *dy), Twisted.apply)))
    reject(name)


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("wrong", ["zero", "permuted", "off by 1.01"])
def test_one_wrong_gradient_of_several_is_rejected(monkeypatch, wrong, position):
    right, change = Linear.backward, WRONGS[wrong]

    def backward(ctx, dy):
        gradients = right(ctx, dy)
        return tuple(change(g) if i == position and g is not None else g for i, g in enumerate(gradients))

    monkeypatch.setattr(Linear, "backward", staticmethod(backward))
    reject("linear")


# what the checks see besides gradients


def test_a_wrong_fused_gradient_is_rejected(monkeypatch):
    """Right under create_graph, wrong by two in a million without: too little for finite differences."""
    right = flow.Tensor.tanh

    class Fused(flow.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = right(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            g = dy * (1 - y * y)
            return g if flow.is_grad_enabled() else g * 1.000002

    with pytest.raises(AssertionError, match="create_graph=False against True"):
        check_op(Fused.apply, [draw(2, 3)])


def test_a_gradient_that_only_fails_in_float32_is_rejected(monkeypatch):
    right = Tanh.backward
    wrong = lambda ctx, dy: right(ctx, dy) * (1.0 if dy.dtype is flow.float64 else 1.01)  # noqa: E731
    monkeypatch.setattr(Tanh, "backward", staticmethod(wrong))
    with pytest.raises(AssertionError, match="gradient of input 0 in float32"):
        check_op(flow.tanh, [draw(2, 3)])


def test_wrong_values_shapes_and_dtypes_are_rejected():
    x = draw(2, 3)
    for reference, words in (
        (lambda x: np.tanh(x) * 1.0001, "result 0 for float32: 6 of 6 elements differ"),
        (lambda x: np.tanh(x)[0], r"got shape \(2, 3\), expected \(3,\)"),
        (lambda x: (np.tanh(x), x), "got 1 results, the reference has 2"),
        (lambda x: np.tanh(x) > 0, "got dtype miniflow.float32, expected miniflow.bool"),
    ):
        with pytest.raises(AssertionError, match=words):
            check_op(flow.tanh, [x], reference)


def test_one_wrong_element_is_rejected():
    def reference(x):
        y = np.tanh(x)
        y[1, 2] += 1e-3
        return y

    with pytest.raises(AssertionError, match=r"1 of 6 elements differ; at \(1, 2\)"):
        check_op(flow.tanh, [draw(2, 3)], reference)


def test_a_nan_is_not_a_number():
    x = np.array([[1.0, -1.0, 2.0], [-2.0, -3.0, 4.0]])
    with np.errstate(invalid="ignore"), pytest.raises(AssertionError, match="3 of 6 elements differ"):
        check_op(flow.sqrt, [x], lambda x: np.where(x > 0, np.sqrt(np.abs(x)), 0.0))


def test_a_wrong_infer_is_rejected(monkeypatch):
    monkeypatch.setattr(Tanh, "infer", staticmethod(lambda x: ((1, *x.shape), x.dtype)))
    with pytest.raises(
        AssertionError, match=r"Tanh: infer announces \(1, 2, 3\) float32, the kernel returned \(2, 3\)"
    ):
        check_op(flow.tanh, [draw(2, 3)])


def kernel_of_tanh(monkeypatch, kernel):
    """Put another kernel in the place of tanh's."""
    monkeypatch.setitem(KERNELS["cpu"], "Tanh", Kernel(kernel, returns=True))
    monkeypatch.setattr(Tanh, "kernels", {})


def test_a_kernel_that_writes_into_its_input_is_rejected(monkeypatch):
    kernel_of_tanh(monkeypatch, lambda x: np.tanh(np.add(x, 0, out=x) if x.size < 2 else np.negative(x, out=x)))
    with pytest.raises(AssertionError, match="Tanh: its kernel wrote into its input 0"):
        check_op(flow.tanh, [draw(2, 3)])


def test_a_kernel_that_returns_its_input_is_rejected(monkeypatch):
    kernel_of_tanh(monkeypatch, lambda x: x[:])
    with pytest.raises(AssertionError, match="Tanh: an output shares the memory of input 0; declare `view = True`"):
        check_op(flow.tanh, [draw(2, 3)])


def test_a_kernel_that_assumes_contiguous_inputs_is_rejected(monkeypatch):
    kernel_of_tanh(monkeypatch, lambda x: np.tanh(np.asarray(x).ravel(order="K").reshape(x.shape)))
    with pytest.raises(AssertionError, match="result 0 of fortran inputs"):
        check_op(flow.tanh, [draw(2, 3)])


def test_dead_gradients_are_rejected():
    with pytest.raises(GradientCheckError, match="true gradients are below"):
        check_op(lambda x: flow.relu(x - 10), [draw(2, 3)])
    with pytest.raises(AssertionError, match="zero everywhere"):
        check_op(lambda x: flow.relu(x - 10), [draw(2, 3)], gradient="sparse")
    with pytest.raises(AssertionError, match="gradient='zero', but some are not"):
        check_op(lambda x: x * x, [draw(2, 3)], gradient="zero")


def test_a_function_that_ignores_its_tensors_is_rejected():
    constant = flow.ones(3)
    with pytest.raises(AssertionError, match="no op was dispatched"):
        check_op(lambda x: constant, [draw(3)], lambda x: np.ones(3), dtypes=("float32",), grad=False, layouts=())


# the tests, with a fault in what they test


def fails(check, *arguments, **options) -> None:
    """The test must fail as it is now."""
    with pytest.raises((AssertionError, pytest.fail.Exception, GradientCheckError)):
        check(*arguments, **options)


# kernels


def last(y):
    y.flat[-1] = ~y.flat[-1] if y.dtype == bool else y.flat[-1] + 1


def first(y):
    y.flat[0] = ~y.flat[0] if y.dtype == bool else y.flat[0] - 1


def negated(y):
    np.negative(y, out=y)


def scaled(y):
    y *= 1.001


def rows_swapped(y):
    y[...] = y[::-1].copy()


def cut_short(y):
    y[..., -1] = 0


WRONG_RESULTS = {  # the row of the sample table, the op, what happens to its result
    "exp": ("Exp", scaled), "add": ("Add", last), "mul": ("Mul", negated), "div": ("Div", scaled),
    "maximum": ("Maximum", first), "where": ("Where", last), "clamp": ("Clamp", first), "lt": ("Lt", last),
    "logical_and": ("LogicalAnd", first), "bitwise_xor": ("BitwiseXor", last), "gelu": ("Gelu", scaled),
    "floor": ("Floor", last), "sum": ("Sum", last), "mean": ("Mean", scaled), "prod": ("Prod", negated),
    "amax": ("Amax", cut_short), "argmax": ("Argmax", last), "var": ("Var", scaled), "logsumexp": ("Logsumexp", first),
    "softmax": ("Softmax", rows_swapped), "layer_norm": ("LayerNorm", scaled), "matmul": ("Matmul", last),
    "linear": ("Linear", cut_short), "conv2d": ("Conv2d", last), "max_pool2d": ("MaxPool2d", cut_short),
    "avg_pool2d": ("AvgPool2d", scaled), "gather": ("Gather", last), "embedding": ("Embedding", rows_swapped),
    "tril": ("Triangle", last), "flip": ("Flip", rows_swapped),
}  # fmt: skip


def plant(monkeypatch, name, change) -> None:
    """After the right kernel of the op, `change` its first result in place."""
    right = kernel_of("cpu", name)

    def changed(result):
        change(result[0] if isinstance(result, tuple) else result)
        return result

    def into(out, *arrays, **attrs):
        right.run(out, *arrays, **attrs)
        changed(out)

    def returning(*arrays, **attrs):
        result = right.run(*arrays, **attrs)
        return changed(tuple(y.copy() for y in result) if isinstance(result, tuple) else result.copy())

    run = returning if right.returns else into
    monkeypatch.setitem(KERNELS["cpu"], name, replace(right, run=run, bind=None, ufunc=None))
    monkeypatch.setattr(Op.by_name[name], "kernels", {})


@pytest.mark.parametrize("row", WRONG_RESULTS)
def test_a_wrong_kernel(monkeypatch, row):
    plant(monkeypatch, *WRONG_RESULTS[row])
    fails(op_samples.test_rules, next(r for r in ROWS if r.name == row))


# optimizers


def with_options(**options):
    """A step that takes other options than it was given."""

    def make(right):
        def step(self, closure=None):
            for group in self.param_groups:
                group.update({key: value(group[key]) for key, value in options.items()})
            return right(self, closure)

        return step

    return make


def forgetful(right):
    def step(self, closure=None):
        self.state.clear()
        return right(self, closure)

    return step


def all_but_the_first(right):
    def step(self, closure=None):
        first = self.param_groups[0]["params"][0]
        kept = first.detach().clone()
        result = right(self, closure)
        with flow.no_grad():
            first.copy_(kept)
        return result

    return step


WRONG_STEPS = {
    "a larger rate": (optim.SGD, with_options(lr=lambda v: v * 1.001)),
    "the other sign": (optim.SGD, with_options(maximize=lambda v: not v)),
    "no dampening": (optim.SGD, with_options(dampening=lambda v: 0.0)),
    "no Nesterov": (optim.SGD, with_options(nesterov=lambda v: False)),
    "decay of the other sign": (optim.SGD, with_options(weight_decay=lambda v: -v)),
    "the first parameter stays": (optim.SGD, all_but_the_first),
    "forgotten moments": (optim.Adam, forgetful),
    "swapped betas": (optim.Adam, with_options(betas=lambda v: v[::-1])),
    "another eps": (optim.Adam, with_options(eps=lambda v: 10 * v)),
    "no largest": (optim.Adam, with_options(amsgrad=lambda v: False)),
    "always corrected": (optim.Adam, with_options(do_bias_correction=lambda v: True)),
    "no decay": (optim.AdamW, with_options(weight_decay=lambda v: 0.0)),
    "another alpha": (optim.RMSprop, with_options(alpha=lambda v: v * 0.99)),
    "not centered": (optim.RMSprop, with_options(centered=lambda v: False)),
    "no decay of the rate": (optim.Adagrad, with_options(lr_decay=lambda v: 0.0)),
}


@pytest.mark.parametrize("name", WRONG_STEPS)
def test_a_wrong_optimizer(monkeypatch, name):
    optimizer, wrong = WRONG_STEPS[name]
    monkeypatch.setattr(optimizer, "step", wrong(optimizer.step))

    def every_case():
        for case in test_rules.CASES:
            if case[0] is optimizer:
                test_rules.test_float64(*case)

    fails(every_case)


def test_loaded_state_that_is_not_copied(monkeypatch):
    right = Tensor.to
    monkeypatch.setattr(Tensor, "to", lambda self, *args, copy=False, **kwargs: right(self, *args, **kwargs))
    fails(test_optimizer.test_loading_copies_and_casts, flow.float32)


@pytest.mark.parametrize("wrong", [lambda d, g: -g, lambda d, g: 1.001 * d, lambda d, g: d.flip(0)])
def test_a_wrong_direction_of_lbfgs(monkeypatch, wrong):
    right = optim.LBFGS._direction
    monkeypatch.setattr(optim.LBFGS, "_direction", lambda self, g: wrong(right(self, g), g))
    fails(test_lbfgs.test_steps_of_given_length, test_lbfgs.bowl, {})


# functions that are made of several operators


@pytest.mark.parametrize("wrong", [lambda q, k, v: (q * 1.001, k, v), lambda q, k, v: (q, k, k[..., :1] + v)])
def test_wrong_attention_without_a_mask(monkeypatch, wrong):
    right = attention.attend
    monkeypatch.setattr(attention, "attend", lambda q, k, v, *rest, **named: right(*wrong(q, k, v), *rest, **named))
    fails(test_attention.test_the_formula, "no mask")


def test_wrong_places_of_maxima_in_volumes(monkeypatch):
    right = Tensor.gather
    monkeypatch.setattr(Tensor, "gather", lambda self, dim, index: right(self, dim, index.flip(1)))
    fails(test_pooling.test_places_of_maxima, 3, [(2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)])


# views and in-place writes


def test_a_write_that_is_not_counted(monkeypatch):
    monkeypatch.setattr(Tensor, "version", property(lambda self: 0))
    fails(test_views.test_a_view_shares_memory_both_ways, "slice")
    fails(test_inplace.test_unary_in_place, "exp")


def test_a_view_that_copies(monkeypatch):
    plant(monkeypatch, "Permute", lambda y: None)
    fails(test_views.test_a_view_shares_memory_both_ways, "permute")


def test_a_write_to_a_view_without_history(monkeypatch):
    monkeypatch.setattr(inplace, "rewrite_history", lambda *args, **kwargs: None)
    fails(test_views.test_a_gradient_flows_through_a_write_to_a_view, "slice")


@pytest.mark.parametrize("wrong", [lambda g: g * 0.5, lambda g: g.flip(0), lambda g: -g])
@pytest.mark.parametrize("name", ["Permute", "Slice", "Expand"])
def test_a_wrong_gradient_of_a_view(monkeypatch, name, wrong):
    op = Op.by_name[name]
    right = op.backward
    monkeypatch.setattr(op, "backward", staticmethod(lambda ctx, dy: wrong(right(ctx, dy))))
    if name == "Slice":
        fails(test_views.test_a_gradient_flows_through_a_write_to_a_view, "slice")
    else:
        fails(op_samples.test_rules, next(r for r in ROWS if r.name == name.lower()))


# nn.Graph


def every_program(run) -> None:
    """Random programs compute the same after a pass."""
    for seed in range(20):
        before = programs.random_program(seed)
        programs.assert_same_results(before, run(before))


def test_passes_keep_random_programs():
    every_program(cse.run)


def test_operands_in_any_order(monkeypatch):
    monkeypatch.setattr(cse, "COMMUTATIVE", cse.COMMUTATIVE | {"Sub", "Div", "Matmul", "Lt", "Gt"})
    b = programs.ProgramBuilder()
    x, y = b.input(3, 3), b.input(3, 3)
    program = b.build(b(Op.by_name["Sub"], x, y), b(Op.by_name["Sub"], y, x))
    fails(programs.assert_same_results, program, cse.run(program))


def test_attributes_that_are_overlooked(monkeypatch):
    right = cse.key_of
    monkeypatch.setattr(cse, "key_of", lambda instruction, new: (k := right(instruction, new)) and (*k[:2], *k[3:]))
    with pytest.raises((AssertionError, ValueError)):
        every_program(cse.run)


def test_a_wrong_fused_loop(monkeypatch):
    plant(monkeypatch, "FusedElementwise", last)
    fails(graph_samples.test_a_graph_of_all_rows, monkeypatch, "three operands", "cpu")


GUARDS = {  # of regions: what stands in the place of a function, and what is then taken in
    "is_float_or_bool": (lambda i: True, ("integers", "two dtypes", "a mask of integers", "a number beside bools")),
    "is_slow": (lambda i: False, ("slow on the CPU",)),
    "scalars_in": (lambda values: [], ("varies",)),
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_of_fused_regions_that_is_missing(monkeypatch, name):
    function, taken = GUARDS[name]
    monkeypatch.setattr(expressions, name, function)
    monkeypatch.setitem(expressions.SMALLEST, "cpu", 0)
    for case in taken:
        fails(test_expressions.test_what_regions_leave_alone, case)


class Everything(set):
    def __contains__(self, x):
        return True


def test_accumulation_that_mixes_up_forward_and_backward(monkeypatch):
    def results_of_backward(slots):
        monkeypatch.setattr(
            accumulation.Accumulation, "results_of_backward", property(lambda self: slots, lambda self, x: None), False
        )

    results_of_backward(set())
    fails(test_pass_accumulation.test_a_gradient_that_no_input_has_a_part_in_is_summed_too)
    results_of_backward(Everything())
    fails(test_pass_accumulation.test_what_forward_makes_is_joined_even_where_an_update_reads_it)


def test_a_right_tree_passes(monkeypatch):
    """Without a fault the tests above do not fail."""
    op_samples.test_rules(next(r for r in ROWS if r.name == "permute"))
    test_rules.test_float64(*test_rules.CASES[3])
    test_views.test_a_view_shares_memory_both_ways("slice")
    test_views.test_a_gradient_flows_through_a_write_to_a_view("slice")
    graph_samples.test_a_graph_of_all_rows(monkeypatch, "three operands", "cpu")
