"""Right, but computed by NumPy: the tape sees constants, so second gradients are missing.

rejected by: test_gradients_of_recurrence
message: is the function differentiable, and recorded?
"""


def recurrence_gradients(a, y, dy):
    a, y, dx = a.detach().numpy(), y.detach().numpy(), dy.detach().numpy().copy()
    g = 0
    for t in reversed(range(len(dx))):
        dx[t] = g = dx[t] + g
        g = a[t] * g
    before = dx.copy()
    before[:1], before[1:] = 0, y[:-1]
    return flow.tensor(dx), flow.tensor(dx * before)
