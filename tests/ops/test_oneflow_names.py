"""What OneFlow names and PyTorch does not, or computes otherwise, against formulas in NumPy."""

import math
from operator import attrgetter

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError, IndexRangeError, ShapeError

F = flow.nn.functional


def test_as_strided_refuses():
    x = flow.arange(12).reshape(3, 4)
    with pytest.raises(IndexRangeError, match="as_strided: got element 12; expected at most 11"):
        flow.as_strided(x, (2, 2), (8, 3), 1)
    for size, stride, offset in (((3,), (1,), -1), ((2,), (-1,), 5), ((-1,), (1,), 0), ((3, 3), (5, -5), 6)):
        with pytest.raises(ShapeError, match="as_strided: got "):
            flow.as_strided(x, size, stride, offset)
    with pytest.raises(ArgumentError, match="as_strided: got a tensor with gaps in memory; use x.contig"):
        x[:, :2].as_strided((2,), (1,))


def test_dims_change_in_place():
    x = flow.arange(6).float().reshape(2, 3).clone()
    part = x.t_().unsqueeze_(0).transpose_(1, 2).swapaxes_(0, 1).swapdims_(0, 1).squeeze_()
    assert part is x and x.shape == (2, 3) and x.is_contiguous()
    row = x[1].unsqueeze_(1)
    row.mul_(flow.tensor([[1.0], [2.0], [3.0]], requires_grad=True))
    assert x.tolist() == [[0, 1, 2], [3, 8, 15]] and x.requires_grad
    with pytest.raises(AutogradError, match=r"squeeze_: got a tensor that requires grad; use x = x.squeeze\(...\)"):
        x.squeeze_()


def test_graph_with_dims_changed_in_place():
    class Graph(flow.nn.Graph):
        def build(self, x):
            y = x * 2
            return y.unsqueeze_(0).transpose_(0, 1) + 1

    x = flow.arange(6).float().reshape(2, 3)
    assert_close(Graph()(x), (2 * x.numpy() + 1)[:, None])


def test_gumbel_softmax():
    flow.manual_seed(0)
    logits = flow.tensor(np.log([0.5, 0.3, 0.2]), requires_grad=True)
    draws = F.gumbel_softmax(logits.expand(4000, 3), tau=0.7, hard=True)
    assert ((draws == 0) | (draws == 1)).all() and (draws.sum(1) == 1).all()
    assert_close(draws.detach().mean(0), np.array([0.5, 0.3, 0.2]), atol=0.03)
    flow.manual_seed(1)
    hard = F.gumbel_softmax(logits, hard=True)
    flow.manual_seed(1)
    soft = F.gumbel_softmax(logits)
    weights = flow.tensor([1.0, -2.0, 0.5], dtype=flow.float64)
    (one,), (other,) = (flow.autograd.grad((y * weights).sum(), logits) for y in (hard, soft))
    assert soft.argmax() == hard.argmax() and one.abs().max() > 0.01
    assert_close(one, other.numpy())


def test_ctc_greedy_decoder():
    best = np.array([[1, 1, 3, 1, 2, 2], [3, 0, 2, 2, 3, 1]])  # samples, frames; the last label, 3, is the blank
    values = np.random.default_rng(0).uniform(-3, -1, (6, 2, 4))
    np.put_along_axis(values, best.T[..., None], -np.linspace(0.1, 0.9, 12).reshape(6, 2, 1), 2)
    decoded, score = F.ctc_greedy_decoder(flow.tensor(values), flow.tensor([6, 5]))
    assert decoded.tolist() == [[1, 1, 2, 0, 0, 0], [0, 2, 0, 0, 0, 0]]
    assert_close(score, -np.stack([values[:, 0].max(1).sum(), values[:5, 1].max(1).sum()])[:, None])
    decoded, _ = F.ctc_greedy_decoder(flow.tensor(values), flow.tensor([6, 5]), merge_repeated=False)
    assert decoded.tolist() == [[1, 1, 1, 2, 2, 0], [0, 2, 2, 0, 0, 0]]


def test_ctc_greedy_decoder_as_documented():
    log_probs = [
        [[-1.54, -1.20, -1.95, -1.65, -1.81], [-1.84, -1.74, -1.58, -1.55, -1.12]],
        [[-1.68, -1.48, -1.89, -1.30, -2.07], [-1.13, -1.45, -1.24, -1.61, -1.66]],
        [[-1.56, -1.40, -2.83, -1.67, -1.48], [-1.20, -2.01, -2.05, -1.95, -1.24]],
        [[-2.09, -1.76, -1.36, -1.67, -1.45], [-1.85, -1.48, -1.34, -2.16, -1.55]],
    ]
    decoded, score = F.ctc_greedy_decoder(flow.tensor(log_probs), flow.tensor([4, 4]))
    assert decoded.tolist() == [[1, 3, 1, 2], [0, 2, 0, 0]]
    assert_close(score, np.array([[5.26], [4.79]], np.float32))


def test_combined_margin():
    x = np.random.default_rng(0).uniform(-0.9, 0.9, (4, 3))
    label = np.array([2, 0, 1, 1])
    for m1, m2, m3 in ((1.0, 0.0, 0.4), (1.2, 0.3, 0.1)):
        want = x.copy()
        want[np.arange(4), label] = np.cos(m1 * np.arccos(x[np.arange(4), label]) + m2) - m3
        assert_close(flow.nn.CombinedMarginLoss(m1, m2, m3)(flow.tensor(x), flow.tensor(label)), want)


def test_fused_batch_norm():
    x, addend = np.random.default_rng(0).normal(size=(2, 3, 2, 4, 5)).astype(np.float32)
    plain = flow.nn.BatchNorm2d(2)(flow.tensor(x)).detach().numpy()
    assert_close(flow.nn.FusedBatchNorm2d(2)(flow.tensor(x)).detach(), np.maximum(plain, 0))
    y = flow.nn.FusedBatchNorm2d(2)(flow.tensor(x), flow.tensor(addend))
    assert_close(y.detach(), np.maximum(plain + addend, 0))


def test_cosine_decay():
    optimizer = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=2.0)
    schedule = flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=4, alpha=0.1)
    rates = []
    for _ in range(6):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    want = [2 * (0.9 * (1 + math.cos(math.pi * min(t, 4) / 4)) / 2 + 0.1) for t in range(6)]
    np.testing.assert_allclose(rates, want, rtol=1e-12)
    with pytest.raises(ArgumentError, match="CosineDecayLR: got decay_steps=0"):
        flow.optim.lr_scheduler.CosineDecayLR(optimizer, 0)


def test_initializers_are_methods():
    x = flow.empty(3, 4)
    assert x.xavier_uniform_() is x and x.abs().max() <= math.sqrt(6 / 7)
    assert flow.empty(50).trunc_normal_(std=3.0, a=-1.0, b=1.0).abs().max() <= 1


# public names that OneFlow 0.6 documents and PyTorch does not have, or has elsewhere
NAMES = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d batch_gather broadcast_like cast gather_nd grad_enable
in_top_k inference_mode logical_slice logical_slice_assign scatter_nd slice slice_update tensor_scatter_nd_update to
env.get_local_rank env.get_node_size env.get_rank env.get_world_size env.init env.is_multi_client
nn.functional.ctc_greedy_decoder nn.functional.l2_normalize nn.functional.sparse_softmax_cross_entropy
nn.CombinedMarginLoss nn.FakeQuantization nn.FusedBatchNorm1d nn.FusedBatchNorm2d nn.FusedBatchNorm3d nn.Graph
nn.image.Resize nn.image.batch_align nn.image.decode nn.image.flip nn.image.normalize gen_tensor_buffer
tensor_buffer_to_list_of_tensors tensor_buffer_to_tensor tensor_to_tensor_buffer nn.MinMaxObserver
nn.MovingAverageMinMaxObserver nn.Quantization
optim.lr_scheduler.CosineDecayLR optim.lr_scheduler.WarmUpLR placement sbp.broadcast sbp.partial_sum sbp.sbp sbp.split
Tensor.cast Tensor.in_top_k Tensor.is_lazy Tensor.placement Tensor.sbp Tensor.to_consistent Tensor.to_local
Tensor.zeros_
""".split()
PROPERTIES = ["Tensor.is_lazy", "Tensor.placement", "Tensor.sbp"]


def test_documented_names():
    assert [name for name in NAMES if not callable(attrgetter(name)(flow))] == PROPERTIES


def test_other_names_of_functions():
    assert flow.grad_enable is flow.enable_grad and flow.adaptive_avg_pool2d is F.adaptive_avg_pool2d
    assert flow.to(flow.ones(2), flow.int32).dtype is flow.int32 and flow.ones(2).cast(flow.int64).dtype is flow.int64
    assert flow.env.is_multi_client() and flow.env.init() and isinstance(flow.sbp.split(0), flow.sbp.sbp)
    x = flow.ones(3)
    assert x.zeros_() is x and x.tolist() == [0, 0, 0]
    targets, predictions = flow.tensor([3, 1]), flow.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])
    assert targets.in_top_k(predictions, k=1).tolist() == [True, False]
    assert flow.tensor([1, 2]).tile(reps=(2,)).tolist() == flow.tile(flow.tensor([1, 2]), reps=(2,)).tolist()
    assert flow.tensor([1, 2]).tile(reps=(2, 2)).tolist() == [[1, 2, 1, 2], [1, 2, 1, 2]]


def test_is_lazy_within_a_graph_only():
    class Graph(flow.nn.Graph):
        def build(self, x):
            self.found = x.is_lazy, (x + 1).is_lazy
            return x + 1

    graph = Graph()
    assert graph(flow.ones(2)).is_lazy is flow.ones(2).is_lazy is False and graph.found == (True, True)


def test_l2_normalize():
    x = np.random.default_rng(0).normal(size=(3, 4))
    for dim in (0, 1):
        want = x / np.sqrt((x**2).sum(dim, keepdims=True))
        assert_close(F.l2_normalize(flow.tensor(x), dim), want)
    assert_close(F.l2_normalize(flow.tensor([1e-8, 0.0], dtype=flow.float64)), np.array([1e-2, 0]))
    z = flow.tensor(x, requires_grad=True)
    assert flow.autograd.gradcheck(F.l2_normalize, z)
    half = flow.tensor([[300.0, 0.0], [400.0, 0.0]], dtype=flow.float16)
    assert_close(F.l2_normalize(half), np.array([[0.6, 0], [0.8, 0]], np.float16))


def test_integer_conditions():
    x = np.random.default_rng(0).normal(size=(2, 3))
    condition = np.array([[0, 1, -2], [3, 0, 0]])
    for kind in (np.uint8, np.int8, np.int32, np.int64):
        mask = flow.tensor(condition.astype(kind))
        assert_close(flow.where(mask, flow.tensor(x), 2.0), np.where(condition, x, 2.0))
        assert_close(mask.where(flow.tensor(x), flow.tensor(-x)), np.where(condition, x, -x))
        assert_close(flow.tensor(x).masked_fill(mask, 7.0), np.where(condition, 7.0, x))


def test_logical_slice_assign():
    x = flow.ones(4, 5)
    part = flow.logical_slice_assign(x, flow.tensor([[2, 3], [4, 5]]), [[0, 4, 2], [1, 3, 1]])
    assert part is x
    want = np.ones((4, 5))
    want[0:4:2, 1:3] = [[2, 3], [4, 5]]
    assert_close(x, want.astype(np.float32))
    assert flow.logical_slice(x, [[0, 4, 2], [1, 3, 1]]).tolist() == [[2, 3], [4, 5]]


def test_upsample_by_height_and_width():
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4))
    y = F.upsample(flow.tensor(x), height_scale=2.0, width_scale=3.0, align_corners=False, interpolation="nearest")
    assert_close(y, x.repeat(2, 2).repeat(3, 3))
    y = F.upsample(flow.tensor(x), height_scale=2.0, width_scale=1.0, align_corners=True, interpolation="bilinear")
    places = np.linspace(0, 2, 6)
    low, part = np.minimum(places.astype(int), 1), (places - np.minimum(places.astype(int), 1))[:, None]
    assert_close(y, x[:, :, low] * (1 - part) + x[:, :, low + 1] * part)
    y = F.upsample(flow.tensor(x), scale_factor=(2.0, 1.0), align_corners=True, interpolation="bilinear")
    assert_close(y, x[:, :, low] * (1 - part) + x[:, :, low + 1] * part)
    y = F.upsample(flow.tensor(x), None, None, "bilinear", True, height_scale=2.0, width_scale=1.0)
    assert_close(y, x[:, :, low] * (1 - part) + x[:, :, low + 1] * part)
    both = {"height_scale": 2.0, "width_scale": 1.0}
    for wrong in ({"height_scale": 3.0}, {"height_scale": 3.0, "scale_factor": 2}, {**both, "scale_factor": 5}):
        with pytest.raises(ArgumentError, match="upsample: .*expected height_scale and width_scale, or size, or"):
            F.upsample(flow.tensor(x), **wrong)
    with pytest.raises(ArgumentError, match="got mode='bilinear' and interpolation='bicubic'; expected one of them"):
        F.upsample(flow.tensor(x), 4, mode="bilinear", interpolation="bicubic")
    with pytest.raises(ArgumentError, match="upsample: got data_format='channels_last'; expected 'channels_first'"):
        F.upsample(flow.tensor(x), height_scale=2.0, width_scale=3.0, data_format="channels_last")


def test_pixel_shuffle_by_height_and_width():
    x = np.random.default_rng(0).normal(size=(2, 24, 2, 5))
    want = x.reshape(2, 2, 3, 4, 2, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 20)
    layer = flow.nn.PixelShuffle(h_upscale_factor=3, w_upscale_factor=4)
    assert_close(layer(flow.tensor(x)), want)
    with pytest.raises(
        ShapeError,
        match=r"^pixel_shuffle: got input \(2, 1, 1\) and upscale_factor=\(3, 4\); expected \(\*, C \* 12, H, W\)",
    ):
        layer(flow.ones(2, 1, 1))
    assert repr(layer) == "PixelShuffle(upscale_factor=(3, 4))" and repr(flow.nn.PixelShuffle(2)).endswith("=2)")
    for wrong in (
        {},
        {"h_upscale_factor": 2},
        {"upscale_factor": 2, "h_upscale_factor": 3},
        dict.fromkeys(("upscale_factor", "h_upscale_factor", "w_upscale_factor"), 2),
    ):
        with pytest.raises(ArgumentError, match="expected upscale_factor, or h_ and w_upscale_factor"):
            flow.nn.PixelShuffle(**wrong)


@pytest.fixture
def four_ranks():
    flow.parallel.simulate(4)
    yield
    flow.parallel.simulate(1)


def test_placement_of_machines(four_ranks):
    two = flow.placement("cpu", ranks=[[0, 1], [2, 3]])
    assert flow.placement("cpu", {0: range(4)}, (2, 2)) == two
    assert flow.placement(device_type="cpu", device_ids={0: [0, 1, 2, 3]}, hierarchy=(2, 2)) == two
    assert flow.placement("cpu", {0: [0, 1]}) == flow.placement("cpu", [0, 1])
    assert flow.placement("cpu", {0: 3}) == flow.placement("cpu", [3])
    for wrong in ({"device_ids": [0, 1]}, {"device_type": "cuda"}):
        with pytest.raises(ArgumentError, match="placement: got .*; expected type and ranks, or device_type and dev"):
            flow.placement("cpu", [0], **wrong)
    assert two.device_type == "cpu" and two.hierarchy == (2, 2)
    with pytest.raises(ArgumentError, match="rank must be less than world size"):
        flow.placement("cpu", {1: [0]})  # there is one machine
    with pytest.raises(ArgumentError, match=r"hierarchy=\(3,\); expected .* a hierarchy of as many"):
        flow.placement("cpu", {0: [0, 1]}, (3,))


def test_placement_of_several_machines(four_ranks, monkeypatch):
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    assert flow.env.get_node_size() == 2
    assert flow.placement("cpu", {0: [0, 1], 1: [0]}).ranks.tolist() == [0, 1, 2]
