"""The last path wins, in place of the sum over all paths.

rejected by: test_diamond
message: a gradient arrives on every path
"""


def backward(root):
    gradients = {root: np.ones(())}
    for variable in reversed(order(root)):
        variable.grad = gradients[variable] + (0 if variable.grad is None else variable.grad)
        if variable.pull is not None:
            for parent, part in zip(variable.parents, variable.pull(gradients[variable])):
                gradients[parent] = sum_to(part, parent.value.shape)
