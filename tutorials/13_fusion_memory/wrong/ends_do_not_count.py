"""Takes two blocks for apart if the one is read last by the group that writes the other.

rejected by: test_offsets
message: has no memory of its own while it is in use
"""


def place(found):
    offsets = {}
    for k in sorted(range(len(found)), key=lambda k: -found[k].nbytes):
        block, offset = found[k], 0
        beside = [j for j in offsets if found[j].first < block.last and block.first < found[j].last]
        for j in sorted(beside, key=lambda j: offsets[j]):
            if offset + block.nbytes <= offsets[j]:
                break
            offset = max(offset, offsets[j] + found[j].nbytes)
        offsets[k] = offset
    return [offsets[k] for k in range(len(found))]
