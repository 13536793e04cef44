"""Pillow, which reads and writes image files: an extra, imported where it is first needed."""

from __future__ import annotations

import importlib
from types import ModuleType


def pillow(module: str = "Image") -> ModuleType:
    """A module of Pillow: `pillow("ImageOps")` is `PIL.ImageOps`.

    Raises:
        ImportError: if Pillow is not installed.
    """
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise ImportError(
            "images that are not tensors need Pillow, which is not installed: pip install miniflow-edu[vision]"
        ) from error
