"""Fusion of pointwise ops: several of them in one loop, compiled, in place of one kernel for each.

expressions which instructions become steps of a loop
fused       the op `FusedElementwise`

Which of them come together is decided by the pass `elementwise_fusion`. The loops themselves are those of
`backends/cpu/pointwise.py` and `backends/cuda/pointwise.py`.
"""
