"""Fixtures of the host executor's tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from miniflow.hostcuda import devices


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two pretend devices, of which 0 is current."""
    monkeypatch.setenv("MINIFLOW_DEVICES", "2")
    devices.devices.cache_clear()
    yield
    devices.close()
    devices.devices.cache_clear()


class Recorder:
    """In the compiler's place: `launches` are what kernels would have run with; `action` may change their arrays.

    `compiled` are the kernels, argument types and axes of blocks that it was asked for, `sizes` those of the blocks.
    `resources` are what the compiler says of a kernel's memory, and whether its blocks wait for each other.
    """

    def __init__(self) -> None:
        self.compiled: list[tuple] = []
        self.sizes: list[tuple | None] = []
        self.launches: list[SimpleNamespace] = []
        self.action: Any = lambda *values: None
        self.resources: dict[str, int | bool] = {}

    def compile_kernel(self, kernel: Any, types: tuple, rank: Any, natural: bool) -> Any:
        self.compiled.append((kernel.__name__, tuple(map(str, types)), rank.axes))
        self.sizes.append(rank.sizes)
        text = f"# {kernel.__name__} for {', '.join(map(str, types))}, {rank.axes} axes"
        needs = {"shared_bytes": 0, "local_bytes": 0, "const_bytes": 0, "cooperative": False, **self.resources}
        return SimpleNamespace(run=self.run, text=text, stage=lambda stage: text, **needs)

    def run(self, values: list, grid: tuple, block: tuple, shared: int, workers: int | None = None) -> None:
        self.launches.append(SimpleNamespace(values=list(values), grid=grid, block=block, shared=shared))
        self.action(*values)

    @property
    def last(self) -> SimpleNamespace:
        return self.launches[-1]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Launches are recorded instead of compiled."""
    found = Recorder()
    module = ModuleType("miniflow.hostcuda.compile")
    module.Compiled = found.compile_kernel
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found
