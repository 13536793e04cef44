"""The picture of lesson 17: the nodes of an exported network, before and after folding."""

import matplotlib.pyplot as plt

COLORS = {"Conv": "lightsteelblue", "BatchNormalization": "lightsalmon", "Gemm": "lightsteelblue"}


def draw(impl):
    """A box for each node, an arrow for each value that one node reads from another."""
    model = impl.export(impl.network())
    figure, axes = plt.subplots(2, 1, figsize=(13, 3.8), layout="constrained", sharex=True)
    for axis, name, some in zip(axes, ("exported", "folded"), (model, impl.fold(model))):
        draw_nodes(axis, some)
        axis.set_title(f"{name}: {len(some.graph.node)} nodes, {len(some.SerializeToString()):,} bytes", loc="left")
    return figure


def draw_nodes(axis, model):
    """The nodes from left to right; arrows that skip nodes are arcs."""
    place = {value.name: -1 for value in model.graph.input}
    for k, node in enumerate(model.graph.node):
        shown = node.op_type.replace("BatchNormalization", "Batch-\nnormal-\nization")
        box = {"boxstyle": "round", "facecolor": COLORS.get(node.op_type, "whitesmoke")}
        axis.text(k, 0, shown, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
        for name in node.input:
            if name in place:
                bend = 0 if place[name] == k - 1 else -0.3
                arrow = {"arrowstyle": "->", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 22, "shrinkB": 24}
                axis.annotate("", (k, 0), (place[name], 0), arrowprops=arrow)
        place[node.output[0]] = k
    axis.text(-1, 0, "x", ha="center", va="center")
    axis.set(xlim=(-1.3, 12), ylim=(-0.6, 0.9))
    axis.axis("off")
