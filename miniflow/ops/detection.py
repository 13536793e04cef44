"""Operators of object detection: non-maximum suppression and features of regions."""

from __future__ import annotations

from functools import partial

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite, sizes_of_values
from miniflow.dtype import int64
from miniflow.errors import IndexRangeError, ShapeError, refusal
from miniflow.ops.creation import zeros
from miniflow.ops.einsum import einsum
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor, constant_like


def _some(boxes: Tensor, *_) -> Tensor:
    return zeros(next(sizes_of_values.get()), dtype=int64, device=boxes._device)


@partial(composite, result=_some, shape_depends_on_values=True)
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


@partial(composite, result=lambda x, rois, scale, h, w, *rest: zeros((len(rois), x.shape[1], h, w), dtype=x.dtype))
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

    A bin is the mean of points on a grid in it, between which and the four pixels around them is interpolated. That
    is a product with a matrix along each side. The gradient goes to `input`. The regions are read on the host;
    nn.Graph refuses that.

    Args:
        input: shape (N, C, H, W), floating.
        rois: shape (K, 5): the index of an image, and the corners x1, y1, x2, y2 of a region in it.
        spatial_scale: what the corners are multiplied by, to be positions in `input`.
        pooled_h, pooled_w: how many bins.
        sampling_ratio: how many points along each side of a bin; -1 for one a pixel, rounded up.
        aligned: the centre of a pixel is at half-integer positions; else it is at integers, and regions are at least
            one pixel wide and high.

    Returns:
        shape (K, C, pooled_h, pooled_w).

    Raises:
        ShapeError: for other shapes.
        IndexRangeError: for an image that there is not.

    Source: He et al., "Mask R-CNN", 2017; `oneflow.roi_align`, `torchvision.ops.roi_align`.
    """
    if input.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise refusal(ShapeError, "roi_align", "(N, C, H, W) and (K, 5)", input=input, rois=rois)
    regions = rois.detach().cpu().numpy()
    image, corners = regions[:, 0].astype(int), regions[:, 1:] * regions.dtype.type(spatial_scale)
    if ((image < 0) | (image >= input.shape[0])).any():
        raise IndexRangeError(f"roi_align: got regions of images {image}; expected 0 to {input.shape[0] - 1}")
    rows, columns = (
        _weights(
            corners[:, axis] - 0.5 * aligned, corners[:, axis + 2] - 0.5 * aligned, bins, n, sampling_ratio, aligned
        )
        for axis, bins, n in ((1, pooled_h, input.shape[2]), (0, pooled_w, input.shape[3]))
    )
    members = [np.flatnonzero(image == n) for n in range(input.shape[0])]
    weights = [[constant_like(input, w[k].astype(input._array.dtype)) for w in (columns, rows)] for k in members]
    pooled = [einsum("chw,kqw,kph->kcpq", x, *pair) for x, pair in zip(input, weights, strict=True)]
    return cat(pooled).index_select(0, constant_like(input, np.argsort(np.concatenate(members))))


def _weights(first: np.ndarray, last: np.ndarray, bins: int, n: int, sampling_ratio: int, aligned: bool) -> np.ndarray:
    """(K, bins, n): the weight of each of n pixels in each bin of each region."""
    side = last - first if aligned else np.maximum(last - first, 1)
    count = np.full(len(side), sampling_ratio) if sampling_ratio > 0 else np.ceil(side / bins).astype(int)
    region, bin, point = np.nonzero(np.arange(count.max(initial=0)) < count[:, None, None].repeat(bins, 1))
    count = count[region]
    positions = first[region] + (bin + (point + 0.5) / count) * (side / bins)[region]
    inside = (positions >= -1) & (positions <= n)
    positions = positions.clip(0, n - 1)
    low = positions.astype(int)
    weights = np.zeros((len(side), bins, n))
    np.add.at(weights, (region, bin, low), inside * (low + 1 - positions) / count)
    np.add.at(weights, (region, bin, np.minimum(low + 1, n - 1)), inside * (positions - low) / count)
    return weights
