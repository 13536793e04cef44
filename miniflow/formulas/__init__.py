"""Scalar functions that CPU loops and CUDA kernels share; each is written once, here."""
