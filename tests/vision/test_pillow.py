"""Pillow is imported where it is needed, and what needs it says so."""

import sys

import pytest

from miniflow.vision.pillow import pillow


def test_a_module_of_pillow():
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install miniflow-edu[vision]")
    assert pillow() is image and pillow("ImageOps").__name__ == "PIL.ImageOps"


def test_without_pillow_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"need Pillow, which is not installed: pip install miniflow-edu\[vision\]"):
        pillow()
