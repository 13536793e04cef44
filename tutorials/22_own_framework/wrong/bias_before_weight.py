"""The gradients of a convolution in another order than its parents.

rejected by: test_convolution
message: pull returns the gradients in the order of the parents
"""


def conv2d(x, weight, bias, stride, padding):
    y = mine.convolution.conv2d_unfold(x.value, weight.value, bias.value, stride, padding)

    def pull(g):
        kernel = weight.value.shape[2:]
        of_weight, of_bias = mine.convolution.parameter_gradients(g, x.value, kernel, stride, padding)
        return of_weight, of_bias, mine.convolution.input_gradient(g, weight.value, x.value.shape, stride, padding)

    return Variable(y, (weight, bias, x), lambda g: pull(g)[::-1])
