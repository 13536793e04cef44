"""Images in other sizes and windows as columns, beside torch."""

import numpy as np
import pytest
from checks import check_against_torch

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
F, TF = flow.nn.functional, torch.nn.functional
DRAW = np.random.default_rng(2)
SHAPES = {"linear": (2, 3, 5), "bilinear": (2, 3, 5, 4), "bicubic": (1, 2, 5, 6), "trilinear": (1, 2, 3, 4, 5)}
SIZES = [
    {"scale_factor": 2.0}, {"scale_factor": 0.6}, {"scale_factor": 1.7}, {"size": 7}, {"size": 1},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
]  # fmt: skip


def compare(x, **options):
    ours, theirs = (lambda x, f=f: f.interpolate(x, **options) for f in (F, TF))
    check_against_torch(ours, theirs, [x], dtype="float64")  # torch computes weights in the dtype of the input


@pytest.mark.parametrize("align", [True, False, None])
@pytest.mark.parametrize("mode", SHAPES)
def test_weighted(mode, align):
    for sizes in SIZES:
        compare(DRAW.standard_normal(SHAPES[mode]), mode=mode, align_corners=align, **sizes)


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(mode, align):
    for sizes in SIZES:
        compare(DRAW.standard_normal((1, 2, 9, 7)), mode=mode, align_corners=align, antialias=True, **sizes)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=str)
def test_chosen(mode, shape):
    for sizes in SIZES:
        compare(DRAW.standard_normal(shape), mode=mode, **sizes)


def test_sizes_of_each_dim():
    compare(DRAW.standard_normal((1, 2, 5, 6)), mode="bilinear", size=(7, 3))
    compare(DRAW.standard_normal((1, 2, 5, 6)), mode="bicubic", scale_factor=(2, 0.5))


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "dims"), [("bilinear", 2), ("bilinear", 3), ("bicubic", 2), ("nearest", 3)])
def test_grid_sample(mode, dims, padding, align):
    x, grid = DRAW.standard_normal((2, 3, 4, 5, 3)[: dims + 2]), DRAW.uniform(-1.7, 1.7, (2, 3, 4, 2, 3)[: dims + 1])
    grid = np.stack([grid] * dims, -1) * DRAW.uniform(0.8, 1.2, (*grid.shape, dims))
    ours, theirs = (lambda x, g, f=f: f.grid_sample(x, g, mode, padding, align) for f in (F, TF))
    if mode == "nearest":
        ours, theirs = (lambda x, f=f, g=g: f.grid_sample(x, g, mode, padding, align)
                        for f, g in ((F, flow.tensor(grid)), (TF, torch.tensor(grid))))  # fmt: skip
    check_against_torch(ours, theirs, [x] if mode == "nearest" else [x, grid], dtype="float64")


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (2, 3, 2, 4, 3)])
def test_affine_grid(size, align):
    ours, theirs = (lambda x, f=f: f.affine_grid(x, size, align) for f in (F, TF))
    check_against_torch(ours, theirs, [DRAW.standard_normal((2, len(size) - 2, len(size) - 1))])


def test_grids_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"grid_sample: got an input of \(1, 1, 4, 4\) and a grid of \(2, 3, 3, 2\)"):
        F.grid_sample(flow.zeros(1, 1, 4, 4), flow.zeros(2, 3, 3, 2))
    with pytest.raises(ArgumentError, match="got mode='bicubic' and padding_mode='zeros' for 3 dims"):
        F.grid_sample(flow.zeros(1, 1, 4, 4, 4), flow.zeros(1, 3, 3, 3, 3), "bicubic")
    with pytest.raises(ShapeError, match=r"affine_grid: got theta of \(2, 3, 4\) for size \(2, 1, 5, 5\)"):
        F.affine_grid(flow.zeros(2, 3, 4), (2, 1, 5, 5))


@pytest.mark.parametrize("options", [(2,), ((2, 3), 1, 1, 2), ((3, 2), (2, 1), (1, 0), (1, 2))])
def test_unfold_and_fold(options):
    x = DRAW.standard_normal((2, 3, 6, 7))
    check_against_torch(lambda x: F.unfold(x, *options), lambda x: TF.unfold(x, *options), [x])
    columns = TF.unfold(torch.tensor(x), *options).numpy()
    check_against_torch(lambda c: F.fold(c, (6, 7), *options), lambda c: TF.fold(c, (6, 7), *options), [columns])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 2, "scale_factor": 2}, ArgumentError, "expected size or scale_factor, and only one"),
        ({"size": 2, "mode": "cubic"}, ArgumentError, "got mode='cubic'"),
        ({"size": 2, "mode": "linear"}, ShapeError, "expected 3 dims"),
        ({"size": 2, "align_corners": True}, ArgumentError, "got align_corners=True for mode='nearest'"),
        ({"size": 2, "antialias": True}, ArgumentError, "antialias=True for mode='nearest'; expected 'bilinear'"),
    ],
)
def test_what_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        F.interpolate(flow.zeros(1, 1, 4, 4), **options)


def test_shuffles_refuse_what_does_not_divide():
    for function in (F.pixel_shuffle, F.channel_shuffle):
        with pytest.raises(ShapeError, match=r"_shuffle: got input \(1, 1, 4, 4\)"):
            function(flow.zeros(1, 1, 4, 4), 2)
    with pytest.raises(ShapeError, match=r"pixel_unshuffle: got input \(1, 1, 4, 4\)"):
        F.pixel_unshuffle(flow.zeros(1, 1, 4, 4), 3)
