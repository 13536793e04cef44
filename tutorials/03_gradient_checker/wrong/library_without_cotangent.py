"""Differentiates the sum of the result.

rejected by: test_operators_of_miniflow
message: backward takes the cotangent
"""


def from_miniflow(function, draw):
    def pull(cotangent, *inputs):
        tensors = [flow.tensor(x, requires_grad=True) for x in inputs]
        function(*tensors).sum().backward()
        return [tensor.grad.numpy() for tensor in tensors]

    return Operator(lambda *inputs: function(*[flow.tensor(x) for x in inputs]).numpy(), pull, draw)
