"""The kernels behind the ops: one package for each kind of device."""
