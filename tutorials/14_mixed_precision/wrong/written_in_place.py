"""Writes over the old file, which is lost if that fails.

rejected by: test_a_failure_leaves_the_old_file
message: the file after save_run whose write failed
"""


def save_run(path, parts, write=flow.save):
    state = {name: part.state_dict() for name, part in parts.items()}
    write({**state, "random": flow.get_rng_state()}, path)
