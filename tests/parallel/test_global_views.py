"""Views of global tensors: strides, and what is written through them, are those of one device."""

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
MESHES = {"2": [0, 1], "3": [2, 0, 1], "2x2": [[0, 3], [1, 2]], "2x3": [[0, 1, 2], [3, 4, 5]]}


@pytest.fixture(autouse=True)
def six_ranks():
    flow.parallel.simulate(6)
    yield
    flow.parallel.simulate(1)


def random_view(random, x):
    """A view, or what is one only if no copy is needed, of a tensor of one device or of several."""
    dims = random.integers(x.ndim, size=2).tolist()
    size, ndim = x.shape[dims[0]], x.ndim
    start = int(random.integers(size + 1))
    part = slice(start, int(random.integers(start, size + 1)), int(random.integers(1, 3)))
    order, place = random.permutation(ndim).tolist(), int(random.integers(ndim + 1))
    views = [
        lambda t: t[(*[slice(None)] * dims[0], part)],
        lambda t: t.transpose(*dims),
        lambda t: t.permute(*order),
        lambda t: t.unsqueeze(place),
        lambda t: t.contiguous(),
        lambda t: t.flatten(min(dims), max(dims)),
    ]
    if size and ndim > 1:
        views.append(lambda t: t.select(dims[0], size - 1))
    if size and size % 2 == 0:
        views.append(lambda t: t.unflatten(dims[0], (2, -1)))
    if dims[0] != dims[1]:
        views.append(lambda t: t.diagonal(1, *dims))
    return views[random.integers(len(views))]


WRITES = [lambda t: t.add_(3), lambda t: t.mul_(2), lambda t: t.zero_(), lambda t: t.fill_(1.5)]


@pytest.mark.few(16)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mesh", MESHES)
def test_writes_through_random_views(mesh, seed):
    random = np.random.default_rng(seed)
    where = flow.placement("cpu", MESHES[mesh])
    for _ in range(8):
        shape = tuple(random.integers(1, 7, size=random.integers(1, 4)).tolist())
        choices = [B, P, *[S(d) for d in range(len(shape))]]
        layout = [choices[i] for i in random.integers(len(choices), size=len(where.shape))]
        values = random.integers(-9, 9, size=shape).astype(np.float32)
        pairs = [(flow.tensor(values), flow.tensor(values, placement=where, sbp=layout))]
        for step in range(8):
            local, spread = pairs[random.integers(len(pairs))]
            if step < 2 or random.random() < 0.6:
                view = random_view(random, local)
                pairs.append((view(local), view(spread)))
                assert pairs[-1][1].stride() == pairs[-1][0].stride()
            else:
                write = WRITES[random.integers(len(WRITES))]
                write(local), write(spread)
            for k, (want, got) in enumerate(pairs):
                assert_close(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-6, what=f"{layout} {shape}: {k}")


def test_the_order_of_elements_does_not_depend_on_the_rank():
    x = flow.zeros(2, 3, placement=flow.placement("cpu", [0, 1]), sbp=S(1))  # rank 1 has one column
    y = x.t().contiguous()
    y.add_(1)
    assert not x.numpy().any() and not x.t().is_contiguous()
