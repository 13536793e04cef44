"""Attention and transformers beside PyTorch's, with its state_dict: outputs, and the gradients of everything."""

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

pytestmark = pytest.mark.cpu_only("compositions of operators that are compared on every device")


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def pair(make):
    """A layer in both frameworks, in float64 and with torch's random parameters, none of them zero."""
    ours, theirs = make(flow.nn).double(), make(torch.nn).double()
    for i, p in enumerate(theirs.parameters()):
        p.data.copy_(torch.tensor(draw(*p.shape, seed=i) / 2))
    result = ours.load_state_dict({k: flow.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    assert not result.missing_keys and not result.unexpected_keys
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours, theirs


def compare(ours, theirs, arrays, **masks):
    """The results of both layers, and the gradients of inputs and parameters."""
    mine = [flow.tensor(a, requires_grad=True) for a in arrays]
    yours = [torch.tensor(a, requires_grad=True) for a in arrays]
    a = ours(*mine, **{k: flow.tensor(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()})
    b = theirs(*yours, **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()})
    a, b = ((x,) if not isinstance(x, tuple) else x for x in (a, b))
    totals = [0, 0]
    for x, y in zip(a, b, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert_close(x.detach(), y.detach(), rtol=1e-9, atol=1e-10)
            weights = draw(*y.shape, seed=5)
            totals = [totals[0] + (x * flow.tensor(weights)).sum(), totals[1] + (y * torch.tensor(weights)).sum()]
    totals[0].backward(), totals[1].backward()
    own = zip(ours.named_parameters(), theirs.parameters(), strict=True) if hasattr(ours, "parameters") else ()
    pairs = [("input", p, q) for p, q in zip(mine, yours, strict=True)] + [(name, p, q) for (name, p), q in own]
    for name, p, q in pairs:
        if q.grad is not None:
            assert_close(p.grad, q.grad, rtol=1e-8, atol=1e-9, what=name)


CAUSAL = np.triu(np.full((4, 4), -np.inf), 1)
PADDING = np.array([[False, False, True, True, False], [False] * 5, [False, True, False, False, True]])


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, [(2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)]),
        ({"is_causal": True}, [(2, 4, 6), (2, 5, 6), (2, 5, 6)]),
        ({"scale": 0.3, "attn_mask": draw(4, 5)}, [(2, 4, 6), (2, 5, 6), (2, 5, 6)]),
        ({"attn_mask": np.eye(4, 5, dtype=bool) | (draw(4, 5) > 0)}, [(2, 4, 6), (2, 5, 6), (2, 5, 6)]),
        ({"enable_gqa": True}, [(2, 6, 4, 3), (2, 2, 5, 3), (2, 3, 5, 3)]),
    ],
)
def test_scaled_dot_product_attention(options, shapes):
    functions = (x.nn.functional.scaled_dot_product_attention for x in (flow, torch))
    compare(*functions, [draw(*shape, seed=i) for i, shape in enumerate(shapes)], **options)


@pytest.mark.parametrize(
    ("options", "shapes", "masks"),
    [
        ({}, [(4, 3, 6), (5, 3, 6), (5, 3, 6)], {}),
        ({"batch_first": True}, [(3, 4, 6), (3, 5, 6), (3, 5, 6)], {"key_padding_mask": PADDING}),
        ({"kdim": 5, "vdim": 7}, [(4, 3, 6), (5, 3, 5), (5, 3, 7)], {"average_attn_weights": False}),
        ({"bias": False}, [(4, 3, 6), (5, 3, 6), (5, 3, 6)], {"need_weights": False, "key_padding_mask": PADDING}),
        ({}, [(4, 6), (5, 6), (5, 6)], {"attn_mask": draw(4, 5)}),
        ({"batch_first": True}, [(4, 6), (5, 6), (5, 6)], {"average_attn_weights": False}),
        ({}, [(4, 3, 6), (5, 3, 6), (5, 3, 6)], {"attn_mask": draw(6, 4, 5), "key_padding_mask": draw(3, 5)}),
    ],
)
def test_multihead_attention(options, shapes, masks):
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    compare(*pair(lambda nn: nn.MultiheadAttention(6, 2, **options)), arrays, **masks)


@pytest.mark.parametrize("options", [{}, {"batch_first": True}])
def test_self_attention(options):
    ours, theirs = pair(lambda nn: nn.MultiheadAttention(6, 2, **options))
    x = draw(4, 3, 6)

    def with_itself(layer):
        return lambda x, **options: layer(x, x, x, **options)

    compare(with_itself(ours), with_itself(theirs), [x])
    if not options:
        compare(with_itself(ours), with_itself(theirs), [x], attn_mask=CAUSAL, is_causal=True, need_weights=False)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_first": True, "activation": "gelu", "batch_first": True, "layer_norm_eps": 1e-3},
        {"bias": False},
    ],
)
def test_transformer(options):
    ours, theirs = pair(lambda nn: nn.Transformer(6, 2, 2, 2, 10, 0.0, **options))
    arrays = [draw(3, 5, 6), draw(3, 4, 6, seed=1)]
    if "batch_first" not in options:
        arrays = [a.transpose(1, 0, 2).copy() for a in arrays]
    masks = {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDING, "memory_key_padding_mask": PADDING}
    compare(ours, theirs, arrays, **masks, memory_mask=draw(4, 5), src_mask=draw(5, 5))


def test_layers_without_batch_and_with_functions():
    ours, theirs = flow.nn.functional.silu, torch.nn.functional.silu
    compare(*pair(lambda nn: nn.TransformerEncoderLayer(6, 3, 8, 0.0, ours if nn is flow.nn else theirs)), [draw(5, 6)])
    decoders = pair(lambda nn: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 3, 8, 0.0), 2))
    compare(
        *decoders,
        [draw(4, 6), draw(5, 6, seed=1)],
        tgt_mask=CAUSAL,
        tgt_is_causal=True,
        memory_mask=np.eye(4, 5, dtype=bool),
    )


def test_masks_of_the_future():
    ours, theirs = (x.nn.Transformer.generate_square_subsequent_mask(4) for x in (flow, torch))
    assert_close(ours, theirs)


def test_dropout_of_weights():
    flow.manual_seed(0)
    layer = flow.nn.MultiheadAttention(6, 2, dropout=0.5)
    x = flow.tensor(draw(9, 3, 6).astype("float32"))
    weights = layer(x, x, x, average_attn_weights=False)[1].detach().numpy()
    assert 0.35 < (weights == 0).mean() < 0.65
    assert (layer.eval()(x, x, x, average_attn_weights=False)[1].detach().numpy() > 0).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda nn: nn.MultiheadAttention(6, 4), "embed_dim=6, num_heads=4"),
        (lambda nn: nn.MultiheadAttention(6, 2)(*[flow.zeros(2, 3, 6)] * 3, is_causal=True), "without attn_mask"),
        (lambda nn: nn.MultiheadAttention(6, 2)(flow.zeros(3, 6), *[flow.zeros(2, 3, 6)] * 2), "expected all 3-D"),
        (lambda nn: nn.TransformerEncoderLayer(6, 2, activation="tanh"), "'relu' or 'gelu'"),
        (lambda nn: nn.Transformer(6, 2, 1, 1)(flow.zeros(2, 3, 5), flow.zeros(2, 3, 6)), "got 5 and 6 features"),
        (
            lambda nn: nn.functional.scaled_dot_product_attention(
                *[flow.zeros(2, 3)] * 3, attn_mask=flow.zeros(2, 2), is_causal=True
            ),
            "attn_mask and is_causal=True",
        ),
        (
            lambda nn: nn.functional.scaled_dot_product_attention(
                flow.zeros(3, 2, 3), *[flow.zeros(2, 2, 3)] * 2, enable_gqa=True
            ),
            "3 heads of queries and 2",
        ),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call(flow.nn)


@pytest.mark.parametrize("kind", ["bool", "floating"])
def test_queries_that_see_no_key(kind):
    """Their results are zeros, and no gradient is NaN."""
    found = []
    for framework in (flow, torch):
        q, k, v = (
            framework.tensor(np.random.default_rng(i).normal(size=(2, 3, 4)).astype(np.float32), requires_grad=True)
            for i in range(3)
        )
        mask = framework.tensor([[True, False, True], [False] * 3, [True] * 3])
        if kind == "floating":
            mask = framework.zeros(3, 3).masked_fill(~mask, -np.inf)
        y = framework.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        (y * y).sum().backward()
        found.append([x.detach().numpy() for x in (y, q.grad, k.grad, v.grad)])
    assert not found[0][0][:, 1].any()
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_sequence_that_is_all_padding():
    flow.manual_seed(0)
    layer = flow.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    theirs = torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    theirs.load_state_dict({name: torch.tensor(value.numpy()) for name, value in layer.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    padding = [[False, False, True], [True, True, True]]
    for framework, model in ((flow, layer), (torch, theirs)):
        y = model(framework.tensor(x), src_key_padding_mask=framework.tensor(padding))
        (y * y * framework.arange(4.0)).sum().backward()
    for p, q in zip(layer.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5)
