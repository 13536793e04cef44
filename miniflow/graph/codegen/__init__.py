"""Code generation for regions of pointwise ops: one loop, compiled, in place of one kernel for each op.

body        what a region computes, one element of it: steps over inputs and numbers
expressions which op is which step
functions   how a step is written for the CPU and for CUDA
geometry    arrays that are broadcast or strided, as rows and columns
cpu, cuda   the text of the loops, and launching them
fused       the op `FusedElementwise`
"""
