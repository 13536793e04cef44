"""Saves all parts, but not the state of the random generator: the batches and masks are others.

rejected by: test_resumed
message: save the state of the generator
"""


def save_run(path, parts, write=flow.save):
    temporary = path.with_suffix(".tmp")
    write({name: part.state_dict() for name, part in parts.items()}, temporary)
    os.replace(temporary, path)


def load_run(path, parts):
    for name, state in flow.load(path).items():
        parts[name].load_state_dict(state)
