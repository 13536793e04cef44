"""Clipping of gradients, sequences of different lengths, parameters as a vector, parametrizations, and pruning."""

from miniflow.nn.utils import parametrizations, parametrize, prune, rnn
from miniflow.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_
from miniflow.nn.utils.named_norms import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from miniflow.nn.utils.parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip
