"""Counts the tensors, not their elements.

rejected by: test_count_parameters
message: elements, not tensors
"""


def count_parameters(model):
    return sum(1 for parameter in model.parameters() if parameter.requires_grad)
