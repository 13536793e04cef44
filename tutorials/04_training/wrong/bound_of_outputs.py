"""The bound is taken from the number of outputs.

rejected by: test_initial_values
message: Hint: k is 1 / sqrt(in_features)
"""


class Linear(Linear):
    def __init__(self, in_features, out_features):
        k = 1 / out_features**0.5
        self.weight = flow.empty(out_features, in_features).uniform_(-k, k).requires_grad_()
        self.bias = flow.empty(out_features).uniform_(-k, k).requires_grad_()
