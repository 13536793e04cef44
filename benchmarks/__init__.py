"""Miniflow beside torch on one machine: `python -m benchmarks`; see README.md."""
