"""Fusion of pointwise ops: several of them in one loop, compiled, in place of one kernel for each.

expressions which instructions become steps of a loop
regions     which of them can come together, and where the loop then stands
fused       the op `FusedElementwise`

The loops themselves are those of `backends/cpu/pointwise.py` and `backends/cuda/pointwise.py`.
"""
