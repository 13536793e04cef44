"""Saving and loading: `states.py` for tensors and structures, `atomic.py` for files that are whole or absent."""
