"""The checks of lesson 18: a schedule's times by another method, training on one device, and counted bytes."""

import importlib
from fractions import Fraction

import numpy as np
import pytest

import miniflow as flow
from miniflow.graph.schedule import SCHEDULES
from tutorials import drawn, refused, same, same_all

training = importlib.import_module("tutorials.18_pipelines_and_zero.training")
S, B = flow.sbp.split, flow.sbp.broadcast
PHASES = {"F": "forward", "B": "backward"}
CLOSE = {"rtol": 1e-7, "atol": 1e-10}


@pytest.fixture(autouse=True)
def alone():
    yield
    flow.parallel.simulate(1)


def order_of(text):
    """ "F0 B0" as [("forward", 0), ("backward", 0)]."""
    return [(PHASES[word[0]], int(word[1:])) for word in text.split()]


@pytest.mark.task("18.1")
@pytest.mark.parametrize("stage, stages, micro_batches", [(0, 3, 4), (2, 3, 3), (0, 1, 2)])
def test_all_forward_all_backward(impl, stage, stages, micro_batches):
    got = impl.all_forward_all_backward(stage, stages, micro_batches)
    wanted = order_of(" ".join(f"{letter}{i}" for letter in "FB" for i in range(micro_batches)))
    same(got, wanted, f"all_forward_all_backward{stage, stages, micro_batches}", "both phases begin with micro-batch 0")


@pytest.mark.task("18.1")
@pytest.mark.parametrize(
    "stage, stages, micro_batches, wanted",
    [
        (0, 3, 4, "F0 F1 F2 B0 F3 B1 B2 B3"),
        (1, 3, 4, "F0 F1 B0 F2 B1 F3 B2 B3"),
        (2, 3, 4, "F0 B0 F1 B1 F2 B2 F3 B3"),
        (0, 4, 2, "F0 F1 B0 B1"),
        (1, 4, 1, "F0 B0"),
        (0, 1, 3, "F0 B0 F1 B1 F2 B2"),
        (0, 4, 6, "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5"),
    ],
)
def test_one_forward_one_backward(impl, stage, stages, micro_batches, wanted):
    got = impl.one_forward_one_backward(stage, stages, micro_batches)
    hint = "how many stages are behind this one, and are there as many micro-batches?"
    same(got, order_of(wanted), f"one_forward_one_backward{stage, stages, micro_batches}", hint)


def needed(stage, phase, i, stages):
    """What a task needs, as the lesson says it."""
    if phase == "forward":
        return {(stage - 1, phase, i)} if stage else set()
    return {(stage, "forward", i)} | ({(stage + 1, phase, i)} if stage + 1 < stages else set())


@pytest.mark.task("18.2")
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_needs(impl, stages):
    for stage in range(stages):
        for phase in PHASES.values():
            got = impl.needs(stage, phase, 3, stages)
            same(sorted(got), sorted(needed(stage, phase, 3, stages)), f"needs{stage, phase, 3, stages}")


def random_orders(rng, stages, micro_batches):
    """Orders of a run in which, again and again, some stage does some task that is ready."""
    orders, done = [[] for _ in range(stages)], set()
    left = {(s, phase, i) for s in range(stages) for phase in PHASES.values() for i in range(micro_batches)}
    while left:
        ready = sorted(task for task in left if needed(*task, stages) <= done)
        task = ready[rng.integers(len(ready))]
        orders[task[0]].append(task[1:])
        done.add(task)
        left.remove(task)
    return orders


def longest_paths(orders, seconds, message):
    """Starts and ends, raised until each task starts no earlier than all that it waits for has ended."""
    before = {(s, *b): (s, *a) for s, order in enumerate(orders) for a, b in zip(order, order[1:])}
    tasks = [(s, *task) for s, order in enumerate(orders) for task in order]
    start, moved = dict.fromkeys(tasks, 0.0), True
    while moved:
        moved = False
        for task in tasks:
            waits = [(need, message if need[0] != task[0] else 0.0) for need in needed(*task, len(orders))]
            waits += [(before[task], 0.0)] if task in before else []
            earliest = max((start[t] + seconds[t[1]] + delay for t, delay in waits), default=0.0)
            moved, start[task] = moved or earliest > start[task], max(earliest, start[task])
    return {task: (start[task], start[task] + seconds[task[1]]) for task in tasks}


def same_times(got, wanted, what, hint):
    same(sorted(got), sorted(wanted), f"the tasks of {what}")
    wrong = [t for t in sorted(wanted, key=wanted.get) if not np.allclose(got[t], wanted[t], 1e-9)]
    for task in wrong[:1]:
        same(tuple(map(float, got[task])), wanted[task], f"start and end of {task} in {what}", hint)


@pytest.mark.task("18.2")
@pytest.mark.parametrize("stages, micro_batches", [(1, 3), (2, 4), (4, 3), (3, 6)])
def test_simulate(impl, rng, monkeypatch, stages, micro_batches):
    monkeypatch.setattr(impl, "needs", lambda *task: sorted(needed(*task)))
    for random in (False, True, True):
        orders = [SCHEDULES["1F1B"](s, stages, micro_batches) for s in range(stages)]
        seconds, message = {"forward": 1.0, "backward": 2.0}, 0.0
        if random:
            orders = random_orders(rng, stages, micro_batches)
            seconds, message = {phase: float(rng.integers(1, 9)) for phase in seconds}, float(rng.integers(1, 5))
        given = [list(order) for order in orders]
        got = impl.simulate(given, **seconds, message=message) if random else impl.simulate(given)
        what = f"simulate of {stages} stages and {micro_batches} micro-batches with {seconds} and message={message}"
        hint = "a task waits for the one before it in its stage, and for results of others, which are on the way first"
        same_times(got, longest_paths(orders, seconds, message), what, hint)
        same(given, orders, f"the orders after {what}", "they are the caller's: work with copies")


@pytest.mark.task("18.2")
@pytest.mark.parametrize(
    "orders, waiting",
    [
        (["F0 B0", "B0 F0"], {0: "B0", 1: "B0"}),
        (["F0 B0 F1 B1", "F0 F1 B0 B1", "F0 F1 B1 B0"], {0: "B0", 1: "F1", 2: "F1"}),
        (["F0 F1", "F0 B0 F1 B1", "F0 F1 B1 B0"], {1: "B0", 2: "F1"}),
        (["F0 F1", "F0", "F1 F0"], {2: "F1"}),
    ],
)
def test_hang(impl, monkeypatch, orders, waiting):
    monkeypatch.setattr(impl, "needs", lambda *task: sorted(needed(*task)))
    what = f"simulate of {orders}, in which nobody is ready in the end"
    words = [f"stage {s} waits with {order_of(text)[0]}" for s, text in waiting.items()]
    refused(lambda: impl.simulate(list(map(order_of, orders))), impl.Hang, what, *words)
    try:
        impl.simulate(list(map(order_of, orders)))
    except impl.Hang as error:
        same(str(error).count("waits with"), len(waiting), f"how many stages wait in {what}: {error}")


@pytest.mark.task("18.3")
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_bubble(impl, rng, stages):
    times, busy = {}, 0.0
    for stage in range(stages):
        ends = np.cumsum(rng.uniform(0.5, 2, 8))
        for k, (start, end) in enumerate(zip(ends[::2], ends[1::2])):
            times[stage, "forward", k] = float(start), float(end)
            busy += float(end - start)
    last = max(end for _, end in times.values())
    hint = "a stage also waits before its first task and after its last one, until all stages are done"
    same(impl.bubble(times), 1 - busy / (stages * last), f"bubble of {stages} stages", hint)


@pytest.mark.task("18.3")
def test_alive(impl, rng):
    for stages, micro_batches in [(3, 7), (4, 2), (1, 5)]:
        for order in random_orders(rng, stages, micro_batches):
            begun = [sum(phase == "forward" for phase, _ in order[: k + 1]) for k in range(len(order))]
            ended = [sum(phase == "backward" for phase, _ in order[:k]) for k in range(len(order))]
            same(impl.alive(order), max(np.subtract(begun, ended).tolist()), f"alive({order})")


@pytest.mark.task("18.3")
def test_enough_micro_batches(impl, rng):
    for stages in (1, 2, 3, 4, 9):
        for percent in (1, 10, 20, 50, 99, int(rng.integers(2, 99))):
            enough = [k for k in range(1, 900) if Fraction(stages - 1, k + stages - 1) <= Fraction(percent, 100)]
            hint = "solve the inequality for the micro-batches, and round up"
            same(impl.enough_micro_batches(stages, percent), enough[0], f"enough_micro_batches{stages, percent}", hint)


def trained(modules, batches, lr):
    """The losses of the parts of batches on one device, and the parameters after the last step."""
    model = flow.nn.Sequential(*modules)
    optimizer, losses = flow.optim.Adam(model.parameters(), lr=lr), []
    for parts in batches:
        some = [flow.nn.functional.mse_loss(model(flow.tensor(x)), flow.tensor(y)) for x, y in parts]
        optimizer.zero_grad()
        (sum(some) / len(some)).backward()
        optimizer.step()
        losses.append(np.stack([loss.detach().numpy() for loss in some]))
    return losses, [p.detach().numpy() for p in model.parameters()]


@pytest.mark.task("18.4")
@pytest.mark.parametrize("name, micro_batches, widths", [("1F1B", 4, [5, 4, 6, 3]), ("GPipe", 3, [4, 5, 2])])
def test_pipeline(impl, rng, name, micro_batches, widths):
    seed, stages, rows, lr = int(rng.integers(1000)), len(widths) - 1, 2 * micro_batches, 0.03
    batches = [training.batch(seed + k, rows, widths) for k in range(3)]
    losses, wanted = trained(
        training.blocks(seed, widths), [list(zip(*(np.split(a, micro_batches) for a in b))) for b in batches], lr
    )
    flow.parallel.simulate(stages + 1)
    places = [flow.placement("cpu", [stages - s]) for s in range(stages)]
    graph = impl.Pipeline(training.blocks(seed, widths), places, micro_batches, SCHEDULES[name], lr)
    what = f"a Pipeline of {stages} stages with {micro_batches} micro-batches"
    for stage, where in enumerate(places):
        on = {str(p.placement) for p in graph.model[stage].parameters() if p.is_global}
        same(on, {str(where)}, f"where the parameters of stage {stage} are", "move each module to its placement")
    for k, (batch, loss) in enumerate(zip(batches, losses)):
        x, y = (training.spread(a, p) for a, p in zip(batch, (places[0], places[-1])))
        got, sent = training.counted(graph, x, y)
        same(got, loss, f"the losses of step {k} of {what}", "one for each micro-batch", rtol=1e-4)
    nbytes = 2 * rows * sum(widths[1:-1]) * 4
    same(sent, {"send": nbytes}, f"the bytes sent in {what}", "activations go to the next stage, gradients come back")
    same_all([p.numpy() for p in graph.model.parameters()], wanted, what, "trained as on one device", atol=1e-5)
    found = graph.schedule()
    orders = [[(t.phase, t.micro_batch) for t in order] for order in found.orders]
    right = [SCHEDULES[name](s, stages, micro_batches) for s in range(stages)]
    same(orders, right, f"the orders of {what}", "set stages, micro-batches and schedule in the configuration")


def shares(rng, place, *shape):
    """A partial sum: each rank has a summand."""
    ranks = len(place.ranks)
    return flow.tensor(drawn(rng, 2 * ranks, *shape, dtype=np.float64), placement=place, sbp=S(0)).sum(0)


@pytest.mark.task("18.5")
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_sharded_adam(impl, rng, ranks):
    flow.parallel.simulate(ranks)
    place, shapes, steps = flow.placement.all("cpu"), [(5, 3), (4,), (7, 2)], 3
    options = {"lr": 0.3, "betas": (float(rng.uniform(0.2, 0.8)), float(rng.uniform(0.2, 0.8))), "eps": 0.1}
    arrays = [drawn(rng, *shape, dtype=np.float64) for shape in shapes]
    gradients = [[shares(rng, place, *shape) for shape in shapes] for _ in range(steps)]
    leaves = [flow.tensor(a, requires_grad=True) for a in arrays]
    reference = flow.optim.Adam(leaves, **options)
    parameters = [training.spread(a, place) for a in arrays]
    optimizer = impl.ShardedAdam(parameters, **options)
    nbytes = (ranks - 1) * sum(a.nbytes for a in arrays)
    for step, some in enumerate(gradients):
        for leaf, g in zip(leaves, some):
            leaf.grad = flow.tensor(g.numpy())
        before, summed = [p.numpy().copy() for p in parameters], [g.numpy().copy() for g in some]
        found, sent = training.counted(optimizer.step, list(parameters), list(some))
        what = f"step {step} of ShardedAdam on {ranks} ranks"
        hint = "reduce-scatter each gradient, update the own part, all-gather the parameter; nothing else is sent"
        wanted = {name: nbytes for name in ("reduce_scatter", "all_gather") if nbytes}
        reference.step()
        same_all(found, [p.detach().numpy() for p in leaves], what, "m and v of the sum of the gradients", **CLOSE)
        same(sent, wanted, f"the bytes that all ranks send in {what}", hint)
        same([p.sbp for p in found], [(B,)] * 3, f"the SBP of the parameters after {what}")
        states = [x.sbp for x in (*optimizer.m, *optimizer.v)]
        same(states, [(S(0),)] * 6, f"the SBP of m and v after {what}", "each rank keeps its part only")
        same_all([p.numpy() for p in parameters], before, f"the parameters given to {what}", "they are not changed")
        same_all([g.numpy() for g in some], summed, f"the gradients given to {what}", "they are not changed")
        parameters = found


def step_of(ranks, zero, widths, parts):
    """The optimizer of `training.DataParallel`, and the bytes of its second step."""
    flow.parallel.simulate(ranks)
    place = flow.placement.all("cpu")
    model = training.layers(0, widths).to_global(place, B)
    optimizer = flow.optim.Adam(model.parameters())
    graph = training.DataParallel(model, optimizer, zero, parts)
    x, y = (training.spread(a, place, S(0)) for a in training.batch(0, 2 * ranks * parts, widths))
    graph(x, y)
    return optimizer, training.counted(graph, x, y)[1]


@pytest.mark.task("18.6")
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks, parts", [(1, 2), (2, 3), (3, 1), (4, 2)])
def test_sent(impl, rng, zero, ranks, parts):
    widths = rng.integers(4, 9, 4).tolist()
    _, counted = step_of(ranks, zero, widths, parts)
    sizes = [4 * m * n for m, n in zip(widths, widths[1:])]
    wanted = {name: counted.get(name, 0) for name in ("all_reduce", "reduce_scatter", "all_gather")}
    hint = "which collectives are made for each micro-batch? which weight does backward not read?"
    same(impl.sent(zero, ranks, sizes, parts), wanted, f"sent({zero}, {ranks}, {sizes}, {parts})", hint)


@pytest.mark.task("18.6")
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_kept(impl, rng, zero, ranks):
    widths = (4 * rng.integers(1, 4, 4)).tolist()
    optimizer, _ = step_of(ranks, zero, widths, 2)
    nbytes = sum(4 * m * n for m, n in zip(widths, widths[1:]))
    parameters, states = training.held(optimizer, ranks - 1)
    wanted = {"parameters": parameters, "states": states, "gradients": nbytes // ranks if zero > 1 else nbytes}
    same(impl.kept(zero, ranks, nbytes), wanted, f"kept({zero}, {ranks}, {nbytes})", "what does this stage share out?")
