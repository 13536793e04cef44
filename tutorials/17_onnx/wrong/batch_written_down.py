"""Reshapes to the recorded shape, in which the batch is a number.

rejected by: test_translated_step
message: for a batch of 1: expected a valid model
"""

translate_others = translate


def translate(step):
    node, constants = translate_others(step)
    if step.op == "reshape":
        constants = {name: np.array(step.options["shape"], np.int64) for name in constants}
    return node, constants
