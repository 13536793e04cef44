"""Folds although another node, or the caller, reads the result of the Conv.

rejected by: test_folding
message: expected a valid model
"""


def fold(model):
    arrays, nodes = arrays_of(model), []
    for node in model.graph.node:
        conv = next((n for n in nodes if n.op_type == "Conv" and n.output[0] == node.input[0]), None)
        names = [] if conv is None else [*conv.input[1:], *node.input[1:]]
        if node.op_type != "BatchNormalization" or conv is None or not set(names) <= set(arrays):
            nodes.append(copy.deepcopy(node))
            continue
        weight, *old = [arrays[n] for n in conv.input[1:]]
        scale, bias, mean, var = [arrays[n] for n in node.input[1:]]
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        factor = scale / np.sqrt(var + np.float32(epsilon))
        conv.input[1:] = [f"{node.output[0]}.w", f"{node.output[0]}.b"]
        arrays[conv.input[1]] = weight * factor[:, None, None, None]
        arrays[conv.input[2]] = bias + (sum(old) - mean) * factor
        conv.output[0] = node.output[0]
    return rebuilt(model, nodes, arrays)
