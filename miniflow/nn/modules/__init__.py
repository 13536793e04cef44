"""Modules: `module.py` is the base, `container.py` the collections, and every other file a family of layers."""
