"""Every rank keeps all of the velocity, of which it uses its part.

rejected by: test_sharded_optimizer
message: keep the velocity of the own part only
"""


class ShardedSGD:
    def __init__(self, comm, params, lr, momentum):
        self.comm, self.lr, self.momentum = comm, lr, momentum
        self.velocity = np.zeros_like(flatten(params))

    def step(self, params, summands):
        own = np.array_split(self.velocity, self.comm.size)[self.comm.rank]  # a view
        own *= self.momentum
        own += self.comm.reduce_scatter(flatten(summands))
        part = np.array_split(flatten(params), self.comm.size)[self.comm.rank] - self.lr * own
        return unflatten(self.comm.all_gather(part), params)
