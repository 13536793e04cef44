"""Times the first calls too, which compile.

rejected by: test_median_time
message: the first calls do not count
"""


def median_time(function, clock, warm_up, repeats):
    times = []
    for _ in range(warm_up + repeats):
        begin = clock()
        function()
        times.append(clock() - begin)
    return float(np.median(times))
