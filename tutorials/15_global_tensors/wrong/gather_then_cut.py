"""Goes from one split to another by way of broadcast: n times the bytes of an all-to-all.

rejected by: test_boxing
message: there is a collective that sends less
"""

right_box = box


def box(shards, before, after, network):
    if before.kind == after.kind == "S" and before != after:
        return right_box(right_box(shards, before, B, network), B, after, network)
    return right_box(shards, before, after, network)
