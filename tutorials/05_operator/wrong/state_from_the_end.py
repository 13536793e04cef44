"""In the first step y[t - 1] is y[-1], the last row, which is not written yet.

rejected by: test_on_the_cpu
message: y arrives full of NaN
"""


def recurrence_cpu(y, x, a):
    for t in range(len(x)):
        y[t] = a[t] * y[t - 1] + x[t]
