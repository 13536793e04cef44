"""Computes with the numbers of the weight: no gradient comes to it.

rejected by: test_linear
message: the gradient of W of Linear(30, 20)
"""


def call(self, x):
    return mine.autograd.add(mine.autograd.matmul(x, Variable(self.weight.value.T)), self.bias)


Linear.__call__ = call
