"""Pipelines and ZeRO. Fill in what raises Todo, then run: python -m tutorials check 18

A task of a pipeline is a tuple (stage, phase, micro-batch), where the phase is "forward" or "backward". The order of a
stage is a list of its (phase, micro-batch): what the stage does, one after the other.
"""

import miniflow as flow
from miniflow import nn
from tutorials import Todo  # noqa: F401

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
FORWARD, BACKWARD = "forward", "backward"


def all_forward_all_backward(stage, stages, micro_batches):
    """The order of a stage in GPipe: forward of all micro-batches, then backward of all; both begin with number 0."""
    # task 18.1: schedules
    return [(phase, i) for phase in (FORWARD, BACKWARD) for i in range(micro_batches)]
    # end


def one_forward_one_backward(stage, stages, micro_batches):
    """The order of a stage in 1F1B.

    First forward, as many times as there are stages behind this one. Then one forward and one backward in turns. When
    no forward is left, the other backwards.
    """
    # task 18.1: schedules
    warm_up = min(stages - stage - 1, micro_batches)
    order = [(FORWARD, i) for i in range(warm_up)]
    for i in range(micro_batches):
        if i + warm_up < micro_batches:
            order.append((FORWARD, i + warm_up))
        order.append((BACKWARD, i))
    return order
    # end


def needs(stage, phase, micro_batch, stages):
    """The tasks whose results a task needs: a list of tuples (stage, phase, micro-batch).

    Forward needs that of the stage before. Backward needs that of the stage behind, and forward of its own stage.
    """
    # task 18.2: a simulator
    if phase == FORWARD:
        return [(stage - 1, FORWARD, micro_batch)] if stage > 0 else []
    own = [(stage, FORWARD, micro_batch)]
    return own + [(stage + 1, BACKWARD, micro_batch)] if stage < stages - 1 else own
    # end


class Hang(Exception):
    """Tasks are left, and each stage waits for another one."""


def simulate(orders, forward=1.0, backward=2.0, message=0.0):
    """When each task runs.

    Args:
        orders: the order of each stage, a list of lists.
        forward, backward: the seconds that a task of this phase takes.
        message: the seconds until a result arrives at another stage. Both stages go on meanwhile.

    Returns:
        a dict from (stage, phase, micro-batch) to (start, end). Each task starts as soon as the task before it in its
        stage has ended, and all that it needs has arrived. The first one starts at 0.0.

    Raises:
        Hang: if no stage can go on. The message says "stage 1 waits with ('forward', 3)" for each stage that is not
            done.
    """
    # task 18.2: a simulator
    stages, times = len(orders), {}
    left, free = [list(order) for order in orders], [0.0] * len(orders)
    while any(left):
        ready = [s for s in range(stages) if left[s] and all(n in times for n in needs(s, *left[s][0], stages))]
        if not ready:
            raise Hang(", ".join(f"stage {s} waits with {left[s][0]}" for s in range(stages) if left[s]))
        for stage in ready:
            phase, i = left[stage].pop(0)
            arrived = [times[n][1] + (0 if n[0] == stage else message) for n in needs(stage, phase, i, stages)]
            start = max([free[stage], *arrived])
            free[stage] = start + (forward if phase == FORWARD else backward)
            times[stage, phase, i] = start, free[stage]
    return times
    # end


def bubble(times):
    """The part of the time of all stages in which they wait, a float, from what `simulate` returns.

    The time of a stage begins at 0 and lasts until the last task of all stages ends.
    """
    # task 18.3: what a schedule costs
    end = max(end for _, end in times.values())
    stages = 1 + max(stage for stage, _, _ in times)
    return 1 - sum(end - start for start, end in times.values()) / (stages * end)
    # end


def alive(order):
    """Of how many micro-batches a stage with this order keeps activations at once, at the most.

    It keeps those of a micro-batch from its forward until its backward has ended.
    """
    # task 18.3: what a schedule costs
    now = most = 0
    for phase, _ in order:
        now += 1 if phase == FORWARD else -1
        most = max(most, now)
    return most
    # end


def enough_micro_batches(stages, percent):
    """The fewest micro-batches with which (stages - 1) / (micro-batches + stages - 1) is at most so many percent.

    Args:
        percent: an integer from 1 to 99.
    """
    # task 18.3: what a schedule costs
    return max(1, -(-(stages - 1) * (100 - percent) // percent))
    # end


class Pipeline(nn.Graph):
    """Trains modules with Adam and the mean squared error, each module as a stage on a placement of its own.

    Args:
        modules: a list; each takes the result of the one before.
        placements: a list, one for each module. Parameters are B there.
        micro_batches: into how many parts each batch is cut.
        schedule: a function of stage, stages and micro-batches that returns the order of the stage.
        lr: of Adam.
    """

    def __init__(self, modules, placements, micro_batches, schedule, lr):
        super().__init__()
        self.model = nn.Sequential(*modules)
        # task 18.4: a pipeline
        for stage, (module, placement) in enumerate(zip(modules, placements)):
            module.to_global(placement, B)
            self.model[stage].config.set_stage(stage, placement)
        self.add_optimizer(flow.optim.Adam(self.model.parameters(), lr=lr))
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.config.set_pipeline_schedule(schedule)
        # end

    def build(self, x, y):
        """The loss of each micro-batch.

        Args:
            x: global, on the first placement.
            y: global, on the last placement.
        """
        # task 18.4: a pipeline
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        return loss
        # end


class ShardedAdam:
    """Adam for global parameters that all ranks hold whole (B), where each rank has only its part of the two states.

    m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g g, p <- p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps), in
    step t = 1, 2, ...

    Attributes:
        m, v: lists with one global tensor for each parameter, S(0).
    """

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8):
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 0
        # task 18.5: ZeRO by hand
        self.m = [flow.zeros_like(p).to_global(sbp=S(0)) for p in parameters]
        self.v = [flow.zeros_like(p).to_global(sbp=S(0)) for p in parameters]
        # end

    def step(self, parameters, gradients):
        """The new parameters, a list of global tensors with SBP B.

        Args:
            parameters: a list of global tensors with SBP B. Not changed.
            gradients: their gradients, global tensors with SBP P. Not changed.
        """
        # task 18.5: ZeRO by hand
        self.t += 1
        b1, b2 = self.betas
        new = []
        for k, (p, g) in enumerate(zip(parameters, gradients)):
            p, g = p.to_global(sbp=S(0)), g.to_global(sbp=S(0))
            self.m[k] = b1 * self.m[k] + (1 - b1) * g
            self.v[k] = b2 * self.v[k] + (1 - b2) * g * g
            root = flow.sqrt(self.v[k] / (1 - b2**self.t)) + self.eps
            p = p - self.lr * (self.m[k] / (1 - b1**self.t)) / root
            new.append(p.to_global(sbp=B))
        return new
        # end


def sent(zero, ranks, sizes, micro_batches):
    """The bytes that all ranks together send in a step of data parallel training, a dict by collective.

    Args:
        zero: the stage of ZeRO; 0 for none, where one all-reduce is made for each parameter.
        ranks: how many ranks there are.
        sizes: the bytes of the weights, one for each layer, the first layer first.
        micro_batches: how many there are.

    Returns:
        for "all_reduce", "reduce_scatter" and "all_gather" the bytes, 0 where there is none.
    """
    # task 18.6: bytes and memory
    once = (ranks - 1) * sum(sizes)
    if zero == 0:
        return {"all_reduce": 2 * once, "reduce_scatter": 0, "all_gather": 0}
    gathered = micro_batches * (2 * once - (ranks - 1) * sizes[0]) if zero == 3 else once
    return {"all_reduce": 0, "reduce_scatter": once if zero == 1 else micro_batches * once, "all_gather": gathered}
    # end


def kept(zero, ranks, nbytes):
    """The bytes that a rank keeps from step to step and from micro-batch to micro-batch, a dict.

    Args:
        zero: the stage of ZeRO, 0 for none.
        nbytes: of all parameters; every rank's part is equally large.

    Returns:
        for "parameters", "states" of Adam, and "gradients", the sum over micro-batches, the bytes.
    """
    # task 18.6: bytes and memory
    part = nbytes // ranks
    return {
        "parameters": part if zero == 3 else nbytes,
        "states": 2 * part if zero >= 1 else 2 * nbytes,
        "gradients": part if zero >= 2 else nbytes,
    }
    # end
