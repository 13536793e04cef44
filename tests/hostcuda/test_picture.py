"""`show(profile)`: what the picture says, and that its texts do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from miniflow.hostcuda import check, show
from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.profile import Profile


@cuda.jit
def blur(x, y):
    tile = cuda.shared.array((8, 4), np.float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    tile[i, j] = x[cuda.blockIdx.x, j * 8 + i]
    cuda.syncthreads()
    y[cuda.blockIdx.x * 32 + i * 4 + j] = tile[i, j]


@cuda.jit
def column(x, y):
    i = cuda.grid(1)
    y[i, 0] = x[i * 32]


@pytest.fixture
def picture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Launches a kernel and draws its profile."""
    monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")

    def draw(kernel: Any, arguments: list[np.ndarray], grid: Any, block: Any) -> Figure:
        on_device = [cuda.to_device(argument) for argument in arguments]
        profile = check.launch(kernel, on_device, grid, block, profile=True)
        figure = Figure()
        FigureCanvasAgg(figure)
        assert show(profile, figure=figure) is figure
        return figure

    return draw


def texts(axes: Any) -> list[str]:
    return [
        text.get_text() for text in (*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label) if text.get_text()
    ]


def test_panels_of_arrays_and_of_requests(picture: Any):
    figure = picture(blur, [np.ones((2, 32), np.float32), np.zeros(64, np.float32)], 2, (8, 4))
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == [
        "x (global) read, each once",
        "tile (shared) read, each once",
        "tile (shared) written",
        "y (global) written",
    ]
    verdicts = [axes.texts[1].get_text() for axes in figure.axes if not axes.get_title()]
    assert verdicts == [
        "write tile: no conflict, 1 pass",
        "read x: 4 sectors (ideal 4)",
        "write y: 4 sectors (ideal 4)",
        "read tile: no conflict, 1 pass",
    ]
    assert figure.get_suptitle() == "blur: grid 2, block 8 x 4"


def test_each_cell_names_its_thread(picture: Any):
    figure = picture(blur, [np.ones((2, 32), np.float32), np.zeros(64, np.float32)], 2, (8, 4))
    (tile,) = [axes for axes in figure.axes if axes.get_title() == "tile (shared) written"]
    cells = {text.get_position(): text.get_text() for text in tile.texts}
    assert cells == {(j, i): f"{i},{j}" for i in range(8) for j in range(4)}
    (vector,) = [axes for axes in figure.axes if axes.get_title() == "y (global) written"]
    assert [label.get_text() for label in vector.get_yticklabels()] == ["0", "16", "32", "48"]


def test_scattered_lanes(picture: Any):
    figure = picture(column, [np.ones(1024, np.float32), np.zeros((32, 1), np.float32)], 1, 32)
    verdicts = [axes.texts[1].get_text() for axes in figure.axes if len(axes.texts) == 2]
    assert "read x: 32 sectors (ideal 4)" in verdicts


def test_texts_do_not_overlap(picture: Any):
    figure = picture(blur, [np.ones((2, 32), np.float32), np.zeros(64, np.float32)], 2, (8, 4))
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    whole = figure.bbox
    boxes = [
        text.get_window_extent(renderer)
        for axes in figure.axes
        for text in (*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label)
        if text.get_text()
    ]
    assert len(boxes) > 100
    assert all(whole.containsx(box.x0) and whole.containsx(box.x1) and whole.containsy(box.y1) for box in boxes)
    overlapping = [(a, b) for k, a in enumerate(boxes) for b in boxes[:k] if a.overlaps(b)]
    assert overlapping == []


def test_an_empty_profile_cannot_be_drawn():
    with pytest.raises(
        ValueError, match="show: the profile holds no accesses; launch the kernel with profile=True first"
    ):
        show(Profile(), figure=Figure())
