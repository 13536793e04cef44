"""Warms up with as many forwards as there are stages behind, also where there are fewer micro-batches.

rejected by: test_one_forward_one_backward
message: are there as many micro-batches?
"""


def one_forward_one_backward(stage, stages, micro_batches):
    warm_up = stages - stage - 1
    order = [(FORWARD, i) for i in range(warm_up)]
    for i in range(warm_up, micro_batches):
        order += [(FORWARD, i), (BACKWARD, i - warm_up)]
    return order + [(BACKWARD, i) for i in range(max(0, micro_batches - warm_up), micro_batches)]
