"""Changes the number of the opset, and not the nodes.

rejected by: test_upgrade
message: expected a valid model
"""


def upgrade(model):
    return rebuilt(model, model.graph.node, arrays_of(model), opset=13)
