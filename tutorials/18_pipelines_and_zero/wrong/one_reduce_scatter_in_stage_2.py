"""Sums the gradients of micro-batches before they are sent, as stage 1 does, also in stages 2 and 3.

rejected by: test_sent
message: which collectives are made for each micro-batch?
"""


def sent(zero, ranks, sizes, micro_batches):
    once = (ranks - 1) * sum(sizes)
    if zero == 0:
        return {"all_reduce": 2 * once, "reduce_scatter": 0, "all_gather": 0}
    gathered = micro_batches * (2 * once - (ranks - 1) * sizes[0]) if zero == 3 else once
    return {"all_reduce": 0, "reduce_scatter": once, "all_gather": gathered}
