"""Counts all that is saved: running means, and frozen parameters.

rejected by: test_count_parameters
message: requires_grad tells
"""


def count_parameters(model):
    return sum(tensor.numel() for tensor in model.state_dict().values())
