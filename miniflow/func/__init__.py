"""Functions that make functions: `flow.func.grad(f)(x)` is the gradient of f at x. Under the names of `torch.func`.

A function is called with tensors whose gradients are recorded, and differentiated with `autograd.grad`. Transforms can
be nested: `grad(grad(f))`, `vmap(grad(f))`. Results require grad only if they depend on other tensors that do.
"""

from miniflow.func.modules import functional_call, stack_module_state
from miniflow.func.transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp
from miniflow.func.vmap import vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "stack_module_state", "vjp",
    "vmap",
]  # fmt: skip
