"""Pipelines: stages on several placements compute micro-batches in the order of a schedule."""

import numpy as np
import pytest
from compare import assert_close

import miniflow as flow
from miniflow import nn
from miniflow.graph.schedule import Schedule

S, B = flow.sbp.split, flow.sbp.broadcast
WIDTH, ROWS = 16, 16


class Stages(nn.Module):
    """Blocks, each on a placement of its own; local if there are none."""

    def __init__(self, placements, sbp=B, blocks=4):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(blocks)])
        self.placements, self.sbp = placements, sbp
        for block, where in zip(self.blocks, placements, strict=False):
            block.to_global(where, B)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if i and self.placements:
                x = x.to_global(placement=self.placements[i], sbp=self.sbp)
            x = block(x)
        return x


class Train(nn.Graph):
    def __init__(self, model, micro_batches, schedule="1F1B", clip=None, configure=lambda config: None):
        super().__init__()
        self.model, self.loss = model, nn.MSELoss()
        group = {"params": list(model.parameters()), **({} if clip is None else {"clip_grad_max_norm": clip})}
        self.add_optimizer(flow.optim.Adam([group], lr=0.01))
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.config.set_pipeline_schedule(schedule)
        for i, where in enumerate(model.placements):
            self.model.blocks[i].config.set_stage(i, where)
        configure(self.config)

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def batch(step):
    random = np.random.default_rng(step)
    return [flow.tensor(random.normal(size=(ROWS, WIDTH)).astype(np.float32)) for _ in range(2)]


def train(placements, sbp=B, micro_batches=4, steps=3, blocks=4, **options):
    flow.manual_seed(0)
    model = Stages(placements, sbp, blocks)
    graph, losses = Train(model, micro_batches, **options), []
    for step in range(steps):
        x, y = batch(step)
        if placements:
            x = x.to_global(placements[0], B).to_global(sbp=sbp)
            y = y.to_global(placements[-1], B).to_global(sbp=sbp)
        losses.append(graph(x, y).numpy())
    return np.array(losses), [p.numpy() for p in model.parameters()], graph


@pytest.fixture(autouse=True)
def alone():
    yield
    flow.parallel.simulate(1)


def assert_equal_training(found, want):
    assert_close(found[0], want[0], rtol=1e-5, atol=1e-6)
    for got, expected in zip(found[1], want[1], strict=True):
        assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", ["1F1B", "GPipe"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 1), (4, 8)])
def test_stages_train_as_one_device(stages, micro_batches, schedule):
    flow.parallel.simulate(stages)
    placements = [flow.placement("cpu", [s]) for s in range(stages)]
    found = train(placements, micro_batches=micro_batches, schedule=schedule, blocks=stages)
    assert_equal_training(found, train([], micro_batches=micro_batches, blocks=stages))


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("sbp", [B, S(0)], ids=["tensor", "data"])
def test_stages_of_two_ranks(sbp, clip):
    flow.parallel.simulate(4)
    placements = [flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])]
    found = train(placements, sbp, blocks=2, clip=clip)
    want = train([], blocks=2, clip=clip)
    assert_close(found[0].mean(1), want[0].mean(1), rtol=1e-5, atol=1e-6)
    assert_equal_training((want[0], found[1]), want)


def tasks_of(program):
    """The tasks of the stages in the order in which a program computes them."""
    found = [(i.stage, i.phase, i.micro_batch) for i in program.instructions if i.micro_batch is not None]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("schedule", "alive"), [("1F1B", [3, 2, 1]), ("GPipe", [8, 8, 8])])
def test_the_order_of_tasks(schedule, alive):
    """Of stage s no more than stages - s micro-batches are alive; so says the program that runs."""
    flow.parallel.simulate(3)
    placements = [flow.placement("cpu", [s]) for s in range(3)]
    *_, graph = train(placements, micro_batches=8, schedule=schedule, blocks=3, steps=1)
    order, plan = tasks_of(graph.ir), graph.schedule()
    assert len(order) == 3 * 2 * 8 and [plan.alive(s) for s in range(3)] == alive
    for stage in range(3):
        assert [task for task in order if task[0] == stage] == plan.orders[stage]
    assert plan.bubble == pytest.approx(2 / 10) and plan.ideal_bubble == 2 / 10


def test_what_is_measured():
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]
    losses, weights, graph = train(placements, blocks=2)
    want = train([], blocks=2, steps=4)
    x, y = batch(3)
    plan = graph.schedule(x.to_global(placements[0], B), y.to_global(placements[1], B))
    assert plan.seconds.keys() == plan.times.keys() and min(plan.seconds.values()) > 0
    assert 0 < plan.bubble < 1 and plan.end >= max(plan.seconds.values())
    for got, expected in zip(graph.model.parameters(), want[1], strict=True):  # it was a step of the training
        assert_close(got.numpy(), expected, rtol=1e-4, atol=1e-5)
    text = str(plan)
    assert text.startswith("1F1B: 2 stages, 4 micro-batches, a step of") and text.count("stage ") == 2
    axes = plan.picture()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0", "stage 1"]
    assert len(axes.patches) == 16 + 2


def backward_first(stage, stages, micro_batches):
    return [(phase, i) for i in range(micro_batches) for phase in ("backward", "forward")]


def crossed(stage, stages, micro_batches):
    order = range(micro_batches) if stage else reversed(range(micro_batches))
    return [(phase, i) for i in order for phase in ("forward", "backward")]


def forgetful(stage, stages, micro_batches):
    return [("forward", i) for i in range(micro_batches)]


def last_first(stage, stages, micro_batches):
    order = range(micro_batches)
    return [("forward", i) for i in order] + [("backward", i) for i in reversed(order)]


@pytest.mark.parametrize("schedule", [backward_first, crossed, last_first])
def test_a_schedule_that_hangs_is_found(schedule):
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]
    what = f"nobody is ready in the schedule {schedule.__name__}.*before that of the next"
    with pytest.raises(flow.errors.GraphError, match=what):
        train(placements, blocks=2, schedule=schedule)


class Back(Stages):
    """The second block's result goes through the first once more."""

    def forward(self, x):
        x = super().forward(x)
        for i in (0, 1):
            x = self.blocks[i](x.to_global(placement=self.placements[i]))
        return x


class Tied(Stages):
    """The second block uses the weight of the first too."""

    def __init__(self, placements, sbp=B, blocks=2):
        super().__init__(placements, sbp, blocks)
        self.blocks[1].first = self.blocks[0][0].weight

    def forward(self, x):
        first = self.blocks[0][0].weight
        if self.placements:
            first = first.to_global(placement=self.placements[1])
        return nn.functional.linear(super().forward(x), first)


def test_data_that_return_to_a_stage_are_refused():
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]
    x, y = batch(0)
    inputs = x.to_global(placements[0], B), y.to_global(placements[1], B)
    with pytest.raises(flow.errors.GraphError, match="never return to a stage: forward of stage 0 reads what stage 1"):
        Train(Back(placements, blocks=2), 2)(*inputs)
    assert Train(Back(placements, blocks=2), 1)(*inputs).shape == ()


def test_stages_share_a_weight():
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]
    losses = []
    for where in (placements, []):
        flow.manual_seed(0)
        graph = Train(Tied(where), 2)
        x, y = batch(0)
        inputs = (x.to_global(where[0], B), y.to_global(where[1], B)) if where else (x, y)
        losses.append([graph(*inputs).numpy() for _ in range(3)])
    assert_close(np.array(losses[0]), np.array(losses[1]), rtol=1e-5, atol=1e-6)


class LabelsFirst(Train):
    def build(self, x, y):
        y = y * 1
        return super().build(x, y)


def test_the_last_stage_may_begin():
    """Stages follow each other as the data do, not as the first lines of build."""
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]
    flow.manual_seed(0)
    graph, (x, y) = LabelsFirst(Stages(placements, blocks=2), 4), batch(0)
    loss = graph(x.to_global(placements[0], B), y.to_global(placements[1], B))
    assert_close(loss.numpy(), train([], blocks=2, steps=1)[0][0], rtol=1e-5, atol=1e-6)


def test_stages_on_one_placement_are_told_of():
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in (0, 1, 0)]
    with pytest.raises(flow.errors.GraphError, match=r"the stages 0 and 2 are both on .*ranks=\[0\]"):
        train(placements, blocks=3)


@pytest.mark.parametrize("order", [None, [1, 2], [("F", 0), ("B", 0)], [("forward", 0)] * 2], ids=repr)
def test_what_is_no_order(order):
    with pytest.raises(flow.errors.ArgumentError, match=r"for stage 0; expected F and B.*\('backward', 0\)"):
        Schedule(lambda *sizes: order, 1, 1)
    with pytest.raises(flow.errors.ArgumentError, match="expected one of"):
        Train(Stages([]), 1).config.set_pipeline_schedule([order])


def test_what_is_refused():
    with pytest.raises(flow.errors.ArgumentError, match="expected F and B of each micro-batch"):
        Schedule(forgetful, 2, 2)
    with pytest.raises(flow.errors.ArgumentError, match="got 'DualPipe'; expected one of"):
        Train(Stages([]), 1).config.set_pipeline_schedule("DualPipe")
    with pytest.raises(flow.errors.GraphError, match="there is no pipeline"):
        train([])[2].schedule()
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]
    model = Stages(placements, blocks=2)
    graph = Train(model, 2)
    graph.model.blocks[0].config.stage_id, graph.model.blocks[1].config.stage_id = 1, 0
    x, y = batch(0)
    with pytest.raises(flow.errors.GraphError, match=r"pass through the stages \[1, 0\]"):
        graph(x.to_global(placements[0], B), y.to_global(placements[1], B))


def test_inputs_move_to_their_stage():
    """With set_stage(id, placement) build need not move them."""
    flow.parallel.simulate(2)
    placements = [flow.placement("cpu", [s]) for s in range(2)]

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.placements = Stages(placements, blocks=2).blocks, placements

        def forward(self, x):
            return self.blocks[1](self.blocks[0](x))

    flow.manual_seed(0)
    graph = Train(Chain(), 4)
    x, y = batch(0)
    loss = graph(x.to_global(placements[0], B), y.to_global(placements[1], B))
    assert_close(loss.numpy(), train([], blocks=2, steps=1)[0][0], rtol=1e-5, atol=1e-6)


def test_stages_and_shared_states_on_cuda():
    flow.parallel.simulate(4)
    placements = [flow.placement("cuda", ranks) for ranks in ([0, 1], [2, 3])]
    share = lambda config: config.enable_zero(True, stage=3, shard_min_size=1)  # noqa: E731
    found = train(placements, S(0), micro_batches=2, blocks=2, configure=share)
    want = train([], micro_batches=2, blocks=2)
    assert_close(found[0].mean(1), want[0].mean(1), rtol=1e-5, atol=1e-6)
    assert_equal_training((want[0], found[1]), want)
