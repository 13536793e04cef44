"""Differentiation: `backward` and `grad` traverse the tape, `Function` adds to it, `gradcheck` compares with
finite differences."""

from miniflow.autograd.engine import backward, grad
from miniflow.autograd.function import Function, once_differentiable
from miniflow.autograd.gradcheck import gradcheck, gradgradcheck
from miniflow.dispatch.tape import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
