"""Averages the ranks' means as if all parts had the same number of rows.

rejected by: test_data_parallel
message: how much does a mean of few rows count?
"""


def own_summands(comm, params, x, labels):
    mine = np.array_split(x, comm.size)[comm.rank]
    loss, gradients = loss_and_gradients(params, mine, np.array_split(labels, comm.size)[comm.rank])
    return loss / comm.size, [g / comm.size for g in gradients]
