"""Takes the weight of a linear layer for (in, out): transB is missing.

rejected by: test_translated_step
message: for a batch of 4: expected a valid model
"""

translate_others = translate


def translate(step):
    node, constants = translate_others(step)
    if step.op == "linear":
        del node.attribute[:]
    return node, constants
