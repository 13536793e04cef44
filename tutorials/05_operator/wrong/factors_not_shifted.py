"""The gradient goes from step t + 1 to step t with the factor of step t.

rejected by: test_gradients_of_recurrence
message: gradient of input 0
"""


def recurrence_gradients(a, y, dy):
    dx = recurrence(dy.flip(0), a.flip(0)).flip(0)
    return dx, dx * flow.cat([flow.zeros_like(y[:1]), y[:-1]])
