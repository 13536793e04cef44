"""`kernels.optim`: each rule against its formula in float64, and against the cpu with options, layouts and dtypes."""

import itertools

import numpy as np
import pytest
from both import on_device
from compare import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.registry import KERNELS
from miniflow.kernels.optim import UPDATES

LR, DECAY, EPS = 0.1, 0.03, 1e-3


def values(size, seed):
    return np.random.default_rng(seed).uniform(0.5, 2, size).astype(np.float32)


def launched(rule, arrays, *numbers, states, decay=DECAY, factor=1.0, norm=2.0, max_norm=-1.0):
    """The arrays of one parameter after an update, and before it in float64; a state that is left out is empty."""
    before = [x.astype(np.float64) for x in arrays]
    blocks = -(-arrays[0].size // 64)
    arrays_of_rule = (*arrays, *[np.float32([])] * (2 + states - len(arrays)))
    row = tuple(np.float32([factor, decay, *numbers]))
    UPDATES[rule][blocks, 64]((0, blocks), (arrays_of_rule,), (row,), (np.float32([norm]),), max_norm)
    return arrays, before


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("size", [1, 65])
def test_sgd(size, momentum, nesterov):
    arrays = [values(size, k) for k in range(2 + (momentum > 0))]
    (p, g, *v), (p0, g0, *v0) = launched("sgd_update", arrays, LR, 0.8, momentum, nesterov, states=1, factor=-1.0)
    g1 = -g0 + DECAY * p0
    v1 = momentum * v0[0] + 0.8 * g1 if v else g1
    close(p, p0 - LR * (g1 + momentum * v1 if nesterov else v1))
    if v:
        close(v[0], v1)
    np.testing.assert_array_equal(g, g0)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_adam(amsgrad):
    arrays = [values(65, k) for k in range(4 + amsgrad)]
    (p, _, m, v, *largest), (p0, g0, m0, v0, *largest0) = launched(
        "adam_update", arrays, LR, 1.7, 0.1, 0.99, 0.01, EPS, 0.9, states=3
    )
    g1 = g0 + DECAY * p0
    m1, v1 = m0 + 0.1 * (g1 - m0), 0.99 * v0 + 0.01 * g1**2
    close(m, m1)
    close(v, v1)
    divisor = np.maximum(largest0[0], v1) if amsgrad else v1
    close(p, 0.9 * p0 - LR * m1 / (np.sqrt(divisor) * 1.7 + EPS))
    if amsgrad:
        close(largest[0], divisor)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rmsprop(momentum, centered):
    arrays = [values(65 if there else 0, k) for k, there in enumerate([1, 1, 1, centered, momentum > 0])]
    arrays[2] += 5  # the mean square is above the squared mean
    (p, _, v, mean, b), (p0, g0, v0, mean0, b0) = launched(
        "rmsprop_update", arrays, LR, 0.9, 0.1, EPS, momentum, states=3
    )
    g1 = g0 + DECAY * p0
    v1, mean1 = 0.9 * v0 + 0.1 * g1**2, mean0 + 0.1 * (g1[: mean0.size] - mean0)
    step = g1 / (np.sqrt(v1 - (mean1**2 if centered else 0)) + EPS) + (momentum * b0 if momentum else 0)
    close(v, v1)
    close(mean, mean1)
    close(b, step[: b0.size])
    close(p, p0 - LR * step)


def test_adagrad():
    arrays = [values(65, k) for k in range(3)]
    (p, _, s), (p0, g0, s0) = launched("adagrad_update", arrays, LR, EPS, states=1, factor=-1.0)
    g1 = -g0 + DECAY * p0
    close(s, s0 + g1**2)
    close(p, p0 - LR * g1 / (np.sqrt(s0 + g1**2) + EPS))


def test_without_decay_an_infinite_parameter_is_not_nan_in_the_states():
    p, g, v = np.float32([np.inf]), np.float32([1]), np.float32([0])
    launched("sgd_update", [p, g, v], LR, 1, 0.9, 0, states=1, decay=0.0)
    assert np.isinf(p[0]) and v[0] == 1


@pytest.mark.parametrize(("norm", "max_norm", "shrink"), [(2, 0.5, 0.25), (2, 4, 1), (np.nan, 1, np.nan), (2, -1, 1)])
def test_factors_of_the_gradient(norm, max_norm, shrink):
    arrays = [values(65, k) for k in range(2)]
    options = {"factor": -0.5, "norm": norm, "max_norm": float(max_norm), "states": 1}
    (p, _), (p0, g0) = launched("sgd_update", arrays, LR, 1, 0, 0, **options)
    close(p, p0 - LR * (-0.5 * shrink * g0 + DECAY * p0))


# the rules as optimizers call them

SHAPES = [(5, 7), (3,), (0,), (2, 3, 4), (300,), (1,), (256,), (257,), (2, 2), (5,), (600,)]
OPTIONS = {
    "SgdUpdate": {"lr": LR, "momentum": 0.9, "dampening": 0.1, "nesterov": False, "weight_decay": DECAY},
    "AdamUpdate": {
        "lr": LR, "betas": (0.9, 0.99), "eps": EPS, "weight_decay": DECAY, "decoupled_weight_decay": True,
        "amsgrad": True, "do_bias_correction": True,
    },
    "RmspropUpdate": {
        "lr": LR, "alpha": 0.9, "eps": EPS, "weight_decay": DECAY, "momentum": 0.9, "centered": False,
    },
    "AdagradUpdate": {"lr": LR, "lr_decay": 0.1, "eps": EPS, "weight_decay": DECAY},
    "AdadeltaUpdate": {"lr": LR, "rho": 0.9, "eps": EPS, "weight_decay": DECAY},
    "AdamaxUpdate": {"lr": LR, "betas": (0.9, 0.99), "eps": EPS, "weight_decay": DECAY},
    "RadamUpdate": {
        "lr": LR, "betas": (0.9, 0.99), "eps": EPS, "weight_decay": DECAY, "decoupled_weight_decay": True,
    },
    "NadamUpdate": {
        "lr": LR, "betas": (0.9, 0.99), "eps": EPS, "weight_decay": DECAY, "momentum_decay": 0.1,
        "decoupled_weight_decay": True,
    },
    "AsgdUpdate": {"lr": LR, "lambd": 0.1, "alpha": 0.75, "t0": 3, "weight_decay": DECAY},
    "RpropUpdate": {"lr": LR, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50)},
    "FtrlUpdate": {
        "lr": LR, "weight_decay": DECAY, "lr_power": -0.5, "initial_accumulator_value": 0.1, "lambda1": 0.1,
        "lambda2": 0.2, "beta": 1.0,
    },
}  # fmt: skip
STATES = {
    "SgdUpdate": 1, "AdamUpdate": 3, "RmspropUpdate": 3, "AdagradUpdate": 1, "AdadeltaUpdate": 2, "AdamaxUpdate": 2,
    "RadamUpdate": 2, "NadamUpdate": 2, "AsgdUpdate": 1, "RpropUpdate": 2, "FtrlUpdate": 2,
}  # fmt: skip
PER_PARAMETER = {
    "SgdUpdate": {"fresh": [False, True, False, True, *[False, True] * 3, True]},
    **{
        f"{name}Update": {"steps": [3, 1, 2, 9, 4, 1, 5, 2, 6, 7, 8]}
        for name in ("Adam", "Adagrad", "Adamax", "Radam", "Nadam", "Asgd", "Rprop", "Ftrl")
    },
}


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", OPTIONS)
def test_agrees_with_the_cpu(name, dtype, layout):
    """Lists of parameters; states of half-precision parameters are float32; the second state is left out."""
    seeds = itertools.count()
    state_type = np.float32 if dtype == np.float16 else dtype
    lists = [[values(s, next(seeds)).astype(dtype) for s in SHAPES] for _ in range(2)]
    lists += [[values(s, next(seeds)).astype(state_type) for s in SHAPES] for _ in range(STATES[name])]
    if name == "RmspropUpdate":
        lists[3] = [None] * len(SHAPES)
    placed = [[None if x is None else on_device(x, layout) for x in arrays] for arrays in lists]
    for maximize in (False, True):
        options = {**OPTIONS[name], **PER_PARAMETER.get(name, {}), "maximize": maximize}
        KERNELS["cpu"][name].run(*lists, **options)
        KERNELS["cuda"][name].run(*placed, **options)
        compare(placed, lists)


def compare(placed, lists):
    for got, want in zip(itertools.chain(*placed), itertools.chain(*lists), strict=True):
        if want is not None:
            assert_close(got.numpy(), want)


@pytest.mark.parametrize("name", OPTIONS)
def test_fused_rules_multiply_gradients(name):
    """On both devices, as the rule itself does with gradients that were multiplied before."""
    count, states = len(SHAPES), STATES[name]
    norms = [np.array(n, np.float32) for n in (0.5, 2, 0, 7, 8, 3, 0.9, 1, np.inf, 4, 100)]
    lists = [[values(s, 100 * c + k) for k, s in enumerate(SHAPES)] for c in range(2 + states)]
    placed = [[on_device(x, "contiguous") for x in arrays] for arrays in [*lists, norms]]
    plain = [[x.copy() for x in arrays] for arrays in lists]
    options = {**OPTIONS[name], **PER_PARAMETER.get(name, {}), "maximize": False}
    fused = {"multiply": (3.0,), "divide": (8.0, 0.5), "max_norm": 1.5}
    for k in range(count):
        plain[1][k] *= np.float32(0.75 * min(1.0, 1.5 / (float(norms[k]) + 1e-6)))
    KERNELS["cpu"][name].run(*plain, **options)
    KERNELS["cpu"][f"Fused{name}"].run(*lists, norms, **options, **fused)
    KERNELS["cuda"][f"Fused{name}"].run(*placed, **options, **fused)
    del plain[1], lists[1], placed[1], placed[-1]
    compare(placed, lists)
    for got, want in zip(itertools.chain(*lists), itertools.chain(*plain), strict=True):
        assert_close(got, want)


SIZES = (70, 3, 64)
STARTS = (0, 3, 4, 6)


def arguments(present, *numbers, states, decay=DECAY, max_norm=1.5):
    """A launch over three parameters with so many of the states; the numbers are the first parameter's."""

    def made():
        columns = [tuple(values(n, 10 * c + k) for c in range(2 + present)) for k, n in enumerate(SIZES)]
        columns = [(*column, *[np.float32([])] * (states - present)) for column in columns]
        norms = tuple(np.float32([n]) for n in (0.5, 2, 9))
        rows = tuple(tuple(np.float32([1.0, decay, *[n + k / 8 for n in numbers]])) for k in range(len(SIZES)))
        return [STARTS, tuple(columns), rows, norms, max_norm]

    return made


CASES = [
    Case("sgd", UPDATES["sgd_update"], arguments(1, LR, 1, 0.9, 1, states=1), 6, 32),
    Case(
        "sgd without momentum", UPDATES["sgd_update"],
        arguments(0, LR, 1, 0, 0, states=1, decay=0.0, max_norm=-1.0), 6, 32,
    ),
    Case("adam", UPDATES["adam_update"], arguments(3, LR, 1.7, 0.1, 0.99, 0.01, EPS, 0.9, states=3), 6, 32),
    Case("rmsprop", UPDATES["rmsprop_update"], arguments(3, LR, 0.9, 0.1, EPS, 0.9, states=3), 6, 32),
    Case("adagrad", UPDATES["adagrad_update"], arguments(1, LR, EPS, states=1), 6, 32),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
