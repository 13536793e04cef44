"""Global tensors beside torch's DTensor: results, gradients and layouts on two and four ranks.

Where the layout of a result differs, no more bytes were moved than the cheapest stated signature with torch's layout
would have taken, counting the sum that a partial result still needs.
"""

import itertools
import warnings

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow
from miniflow.parallel import dispatch, world
from miniflow.parallel.signature import candidates
from miniflow.sbp import B, P, S

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

CASES = {  # name -> function of the library and of tensors, shapes of the operands, those below which integers lie
    "add": (lambda f, x, y: x + y, [(4, 8), (4, 8)], {}),
    "add of a row": (lambda f, x, y: x + y, [(4, 8), (8,)], {}),
    "mul": (lambda f, x, y: x * y, [(4, 8), (4, 8)], {}),
    "maximum": (lambda f, x, y: f.maximum(x, y), [(4, 8), (4, 8)], {}),
    "relu": (lambda f, x: f.relu(x), [(4, 8)], {}),
    "exp": (lambda f, x: f.exp(x), [(4, 8)], {}),
    "neg": (lambda f, x: -x, [(4, 8)], {}),
    "times a number": (lambda f, x: x * 3.0, [(4, 8)], {}),
    "gelu": (lambda f, x: f.nn.functional.gelu(x), [(4, 8)], {}),
    "float": (lambda f, x: x.float(), [(4, 8)], {}),
    "matmul": (lambda f, x, y: x @ y, [(4, 8), (8, 12)], {}),
    "bmm": (lambda f, x, y: f.bmm(x, y), [(4, 8, 4), (4, 4, 8)], {}),
    "linear": (lambda f, x, w: f.nn.functional.linear(x, w), [(4, 8), (12, 8)], {}),
    "sum": (lambda f, x: x.sum(), [(4, 8)], {}),
    "sum of rows": (lambda f, x: x.sum(1), [(4, 8)], {}),
    "mean": (lambda f, x: x.mean(0), [(4, 8)], {}),
    "amax": (lambda f, x: f.amax(x, 1), [(4, 8)], {}),
    "amin": (lambda f, x: f.amin(x, 0), [(4, 8)], {}),
    "norm": (lambda f, x: f.norm(x), [(4, 8)], {}),
    "softmax": (lambda f, x: f.softmax(x, -1), [(4, 8)], {}),
    "log_softmax": (lambda f, x: f.log_softmax(x, 0), [(4, 8)], {}),
    "layer_norm": (lambda f, x, w, b: f.nn.functional.layer_norm(x, (8,), w, b), [(4, 8), (8,), (8,)], {}),
    "embedding": (lambda f, i, w: f.nn.functional.embedding(i, w), [(4, 8), (16, 8)], {0: 16}),
    "conv2d": (lambda f, x, w: f.nn.functional.conv2d(x, w, padding=1), [(4, 4, 8, 8), (8, 4, 3, 3)], {}),
    "transpose": (lambda f, x: x.transpose(0, 1), [(4, 8)], {}),
    "reshape": (lambda f, x: x.reshape(4, 2, 4), [(4, 8)], {}),
    "flatten": (lambda f, x: x.reshape(-1), [(4, 8)], {}),
    "unsqueeze": (lambda f, x: x.unsqueeze(0), [(4, 8)], {}),
    "expand": (lambda f, x: x.unsqueeze(1).expand(4, 3, 8), [(4, 8)], {}),
    "slice": (lambda f, x: x[:, 2:6], [(4, 8)], {}),
    "slice of rows": (lambda f, x: x[1:3], [(4, 8)], {}),
    "cat": (lambda f, x, y: f.cat([x, y], 0), [(4, 8), (4, 8)], {}),
}


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request):
    """Worlds of so many ranks in this process, torch's and ours."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=request.param)
    flow.parallel.simulate(request.param)
    yield request.param
    dist.destroy_process_group()
    flow.parallel.simulate(1)


def layouts(shape, integer, ranks):
    return [B, *([] if integer else [P]), *[S(d) for d, n in enumerate(shape) if n % ranks == 0]]


def theirs(function, arrays, sbp, ranks):
    """Result, gradients and the layout of the result; None if DTensor has no rule for it."""
    from torch.distributed._local_tensor import LocalTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    def placed(x, one, mesh):
        spread = distribute_tensor(torch.tensor(x), mesh, [Shard(one.dim) if one.dim is not None else Replicate()])
        spread = spread.redistribute(placements=[Partial()]) if one is P else spread
        return spread.detach().requires_grad_() if x.dtype.kind == "f" else spread

    def value(x):
        whole = x.full_tensor()
        return (whole.reconcile() if hasattr(whole, "reconcile") else whole).detach().numpy()

    with LocalTensorMode(ranks), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mesh = init_device_mesh("cpu", (ranks,))
        try:
            tensors = [placed(x, one, mesh) for x, one in zip(arrays, sbp, strict=True)]
            y = function(torch, *tensors)
            (y.double() ** 2).sum().backward()
        except (RuntimeError, NotImplementedError, AssertionError, AttributeError):
            return None
        (place,) = y.placements
        layout = S(place.dim) if place.is_shard() else B if place.is_replicate() else P
        return value(y), [value(x.grad) if x.grad is not None else None for x in tensors], layout


def ours(function, arrays, sbp, ranks):
    """Result, gradients, layout of the result, bytes moved, and the candidates of the last operator."""
    where = flow.placement("cpu", range(ranks))
    tensors = [flow.tensor(x, placement=where, sbp=one) for x, one in zip(arrays, sbp, strict=True)]
    tensors = [x.requires_grad_() if x.is_floating_point() else x for x in tensors]
    listened = []
    dispatch.listeners.append(lambda op, arrays, attrs: listened.append(candidates(op, arrays, attrs)))
    before = sum(world.communicator().counted.bytes.values())
    y = function(flow, *tensors)
    moved = sum(world.communicator().counted.bytes.values()) - before
    dispatch.listeners.clear()
    (y.double() ** 2).sum().backward()
    gradients = [None if x.grad is None else x.grad.numpy() for x in tensors]
    return y.detach().numpy(), gradients, y.sbp[0], moved, listened[-1]


@pytest.mark.parametrize("name", CASES)
def test_beside_dtensor(name, ranks):
    function, shapes, below = CASES[name]
    random, compared = np.random.default_rng(0), 0
    arrays = [random.integers(0, below[i], s) if i in below else random.normal(size=s) for i, s in enumerate(shapes)]
    for sbp in itertools.product(*[layouts(s, i in below, ranks) for i, s in enumerate(shapes)]):
        peer = theirs(function, arrays, sbp, ranks)
        value, gradients, layout, moved, possible = ours(function, arrays, sbp, ranks)
        assert_close(value, function(flow, *map(flow.tensor, arrays)).numpy(), rtol=1e-6, atol=1e-6)
        if peer is None:
            continue
        compared += 1
        assert_close(value, peer[0], rtol=1e-6, atol=1e-6, what=f"{name} of {sbp}")
        for mine, other in zip(gradients, peer[1], strict=True):
            if other is not None:
                assert_close(mine, other, rtol=1e-6, atol=1e-6, what=f"gradient of {name} of {sbp}")
        if layout != peer[2]:
            same = [one.bytes for one in possible if one.results[0] == (peer[2],)]
            owed = (
                value.nbytes * (ranks - 1) if peer[2] is P else 0
            )  # the reduce-scatter that a partial sum still needs
            assert not same or moved <= min(same) + owed, f"{name} of {sbp}: {layout} by {moved} bytes, not {peer[2]}"
    assert compared > 1
