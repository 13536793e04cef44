"""Operators of object detection: non-maximum suppression and features of regions."""

from __future__ import annotations

from functools import partial

import numpy as np

from miniflow.backends.memory import peek
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite, sizes_of_values
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dtype import int64
from miniflow.errors import IndexRangeError, ShapeError, refusal
from miniflow.ops.creation import zeros
from miniflow.ops.promotion import require_floating
from miniflow.ops.views import input_shape
from miniflow.ops.windows import per_dim
from miniflow.sbp import signatures
from miniflow.tensor import Tensor, constant_like


def _result_of_nms(boxes: Tensor, *_) -> Tensor:
    return zeros(next(sizes_of_values.get()), dtype=int64, device=boxes._device)


@partial(composite, result=_result_of_nms, shape_depends_on_values=True)
@takes_tensors
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression: of boxes that overlap, the one with the best score; no gradient.

    From the best score down, each box that is left removes those whose intersection with it, over their union, is
    above the threshold. The values are read on the host; nn.Graph refuses that, but `onnx.export` writes it as
    NonMaxSuppression.

    Args:
        boxes: shape (K, 4), corners (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2.
        scores: shape (K,).
        iou_threshold: from 0 to 1.

    Returns:
        int64 indices of the boxes that are kept, in descending order of their scores.

    Raises:
        ShapeError: for other shapes.

    >>> import miniflow as flow
    >>> boxes = flow.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 3.0], [5.0, 5.0, 6.0, 6.0]])
    >>> flow.nms(boxes, flow.tensor([0.1, 0.9, 0.5]), 0.5).tolist()
    [1, 2]

    Source: `oneflow.nms`, `torchvision.ops.nms`.
    """
    if boxes.shape != (scores.numel(), 4) or scores.ndim != 1:
        raise refusal(ShapeError, "nms", "(K, 4) and (K,)", boxes=boxes, scores=scores)
    corners, best = (x.detach().cpu().numpy() for x in (boxes, scores))
    first, last = corners[:, :2], corners[:, 2:]
    area = (last - first).prod(1)
    remaining, selected = np.argsort(-best, kind="stable"), []
    while remaining.size:
        box, remaining = remaining[0], remaining[1:]
        selected.append(box)
        sides = np.minimum(last[box], last[remaining]) - np.maximum(first[box], first[remaining])
        intersection = sides.clip(0).prod(1)
        with np.errstate(invalid="ignore"):  # empty boxes
            remaining = remaining[~(intersection / (area[box] + area[remaining] - intersection) > iou_threshold)]
    return constant_like(boxes, np.array(selected, np.int64))


class RoiAlign(Op):
    """y = the mean of points in each bin of each region; linear in x. The regions get no gradient."""

    amp = "black"
    saves = ("rois",)
    checks_values = "infer"

    def infer(x, rois, *, output_size, spatial_scale, sampling_ratio, aligned):
        if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or 0 in x.shape[2:]:
            expected = "(N, C, H, W) with pixels, and (K, 5)"
            raise refusal(ShapeError, "roi_align", expected, input=x, rois=rois)
        require_floating("roi_align", x)
        require_floating("roi_align", rois)
        regions = peek(rois)
        if regions is not None and not ((regions[:, 0] > -1) & (regions[:, 0] < x.shape[0])).all():
            images = regions[:, 0].astype(np.float64)
            raise IndexRangeError(f"roi_align: got regions of images {images}; expected 0 to {x.shape[0] - 1}")
        return (rois.shape[0], x.shape[1], *output_size), x.dtype

    def sbp(x, rois, *, ranks, **attrs):
        return signatures([".c..", "k."], ["kc.."], linear=[[0]])

    def backward(ctx, dy):
        batch, _, *size = input_shape(ctx)
        attrs = {name: value for name, value in ctx.attrs.items() if name != "output_size"}
        return call(RoiAlignGrad, dy, *ctx.saved, image=(batch, *size), **attrs), None


class RoiAlignGrad(Op):
    """dx: each cotangent, times the weights of the pixels that its bin sees, added to them. `image` is (N, H, W)."""

    amp = "black"
    saves = ("rois",)

    def infer(dy, rois, *, image, spatial_scale, sampling_ratio, aligned):
        if dy.ndim != 4 or tuple(rois.shape) != (dy.shape[0], 5):
            raise refusal(ShapeError, "roi_align", "(K, C, P, Q) and (K, 5)", cotangent=dy, rois=rois)
        return (image[0], dy.shape[1], *image[1:]), dy.dtype

    def sbp(dy, rois, *, ranks, **attrs):
        return signatures(["kc..", "k."], [".c.."], linear=[[0]])  # the regions of a rank give a part of the sum

    def backward(ctx, ddx):
        attrs = {name: value for name, value in ctx.attrs.items() if name != "image"}
        return call(RoiAlign, ddx, *ctx.saved, output_size=tuple(input_shape(ctx)[2:]), **attrs), None


@takes_tensors
def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """The features in regions of images, each as `pooled_h` by `pooled_w` bins.

    A bin is the mean of points on a grid in it, between which and the four pixels around them is interpolated. The
    gradient goes to `input`.

    Args:
        input: shape (N, C, H, W), floating.
        rois: shape (K, 5), floating: the index of an image, and the corners x1, y1, x2, y2 of a region in it.
        spatial_scale: what the corners are multiplied by, to be positions in `input`.
        pooled_h, pooled_w: how many bins.
        sampling_ratio: how many points along each side of a bin; 0 or less for one a pixel, rounded up.
        aligned: the centre of a pixel is at half-integer positions; else it is at integers, and regions are at least
            one pixel wide and high.

    Returns:
        shape (K, C, pooled_h, pooled_w).

    Raises:
        ShapeError: for other shapes.
        DTypeError: for integers.
        IndexRangeError: for an image that there is not.

    >>> import miniflow as flow
    >>> x = flow.arange(16.0).reshape(1, 1, 4, 4)
    >>> flow.roi_align(x, flow.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]]), 1.0, 1, 2, aligned=True).tolist()
    [[[[2.0, 3.0]]]]

    Source: He et al., "Mask R-CNN", 2017; `oneflow.roi_align`, `torchvision.ops.roi_align`.
    """
    return call(
        RoiAlign,
        input,
        rois,
        output_size=per_dim("roi_align", "pooled_h, pooled_w", (pooled_h, pooled_w), 2, 0),
        spatial_scale=float(spatial_scale),
        sampling_ratio=per_dim("roi_align", "sampling_ratio", sampling_ratio, 1, -(2**31))[0],
        aligned=bool(aligned),
    )
