"""Attention against its formula in float64: values, dtypes, layouts and gradients, with masks and without."""

import numpy as np
import pytest
from checks import assert_close, check_op

import miniflow as flow
from miniflow.nn import functional as F

pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(query, key, value, mask=0.0, scale=None):
    """softmax(q k^T / sqrt(E) + mask) v; a bool mask hides keys where it is False."""
    mask = np.where(mask, 0.0, -np.inf) if np.asarray(mask).dtype == bool else mask
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return softmax(query @ key.swapaxes(-1, -2) * scale + mask) @ value


SEEN = np.tri(4, 5, 1, dtype=bool)
CASES = {  # options, the mask that they stand for, the shapes of queries, keys and values
    "no mask": ({}, {}, [(2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)]),
    "two dims": ({}, {}, [(4, 3), (5, 3), (5, 2)]),
    "broadcast heads": ({}, {}, [(2, 1, 4, 3), (3, 5, 3), (1, 3, 5, 2)]),
    "one query": ({}, {}, [(2, 1, 6), (2, 5, 6), (2, 5, 6)]),
    "scale": ({"scale": 0.3}, {"scale": 0.3}, [(2, 4, 6), (2, 5, 6), (2, 5, 6)]),
    "causal": ({"is_causal": True}, {"mask": np.tri(4, 5, dtype=bool)}, [(2, 4, 6), (2, 5, 6), (2, 5, 7)]),
    "bool mask": ({"attn_mask": flow.tensor(SEEN)}, {"mask": SEEN}, [(2, 4, 6), (2, 5, 6), (2, 5, 7)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_formula(name):
    options, of_reference, shapes = CASES[name]
    check_op(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options),
        [draw(*shape, seed=i) for i, shape in enumerate(shapes)],
        lambda q, k, v: attention(q, k, v, **of_reference),
        dtypes=("float32", "float64"),
    )


def test_heads_of_queries_share_those_of_keys():
    q, k, v = draw(2, 6, 4, 3), draw(2, 2, 5, 3), draw(2, 2, 5, 7)
    result = F.scaled_dot_product_attention(*map(flow.tensor, (q, k, v)), enable_gqa=True)
    assert_close(result, attention(q, k.repeat(3, 1), v.repeat(3, 1)), rtol=1e-12, atol=1e-12)


def multi_head(layer, query, key, value):
    """What the paper says of each head, with the layer's parameters; sequences are (N, L, E)."""
    size = layer.embed_dim
    if layer.in_proj_weight is None:
        weights = [p.numpy() for p in (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)]
    else:
        weights = np.split(layer.in_proj_weight.numpy(), 3)
    biases = np.zeros((3, size)) if layer.in_proj_bias is None else layer.in_proj_bias.numpy().reshape(3, size)
    q, k, v = (x @ w.T + b for x, w, b in zip((query, key, value), weights, biases, strict=True))
    width, results, seen = size // layer.num_heads, [], []
    for head in range(layer.num_heads):
        part = slice(head * width, (head + 1) * width)
        seen.append(softmax(q[..., part] @ k[..., part].swapaxes(1, 2) / width**0.5))
        results.append(seen[-1] @ v[..., part])
    bias = 0.0 if layer.out_proj.bias is None else layer.out_proj.bias.numpy()
    return np.concatenate(results, -1) @ layer.out_proj.weight.numpy().T + bias, np.stack(seen, 1)


HEADS = [{}, {"bias": False}, {"kdim": 5, "vdim": 7}, {"batch_first": True}, {"batch_first": True, "kdim": 5}]


@pytest.mark.parametrize(
    ("options", "is_self"), [*((options, False) for options in HEADS), ({}, True), ({"batch_first": True}, True)]
)
@pytest.mark.parametrize("average", [True, False])
def test_several_heads(options, average, is_self):
    layer = flow.nn.MultiheadAttention(6, 3, dtype=flow.float64, **options)
    with flow.no_grad():
        for i, p in enumerate(layer.parameters()):
            p.copy_(flow.tensor(draw(*p.shape, seed=i)))
    arrays = [draw(2, 4, 6), draw(2, 5, layer.kdim), draw(2, 5, layer.vdim)]
    arrays = [arrays[0]] * 3 if is_self else arrays
    given = [flow.tensor(x if layer.batch_first else x.swapaxes(0, 1)) for x in arrays]
    result, weights = layer(*([given[0]] * 3 if is_self else given), average_attn_weights=average)
    expected, seen = multi_head(layer, *arrays)
    assert_close(result if layer.batch_first else result.transpose(0, 1), expected, rtol=1e-11, atol=1e-11)
    assert_close(weights, seen.mean(1) if average else seen, rtol=1e-11, atol=1e-11)
    row = [flow.tensor(x[0]) for x in arrays]
    one, of_one = layer(*row, need_weights=not average)
    assert_close(one, expected[0], rtol=1e-11, atol=1e-11)
    assert (of_one is None) == average
