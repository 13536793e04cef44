"""Each rank computes with all rows: the numbers are right, but nothing is gained.

rejected by: test_data_parallel
message: only its own part
"""


def own_summands(comm, params, x, labels):
    loss, gradients = loss_and_gradients(params, x, labels)
    return loss / comm.size, [g / comm.size for g in gradients]
