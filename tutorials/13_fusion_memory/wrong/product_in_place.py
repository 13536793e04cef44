"""Lets a matrix product write over an operand that it still reads.

rejected by: test_blocks
message: values, and others that may not be in the block after them
"""


def blocks(program, groups):
    last = {n: position for position, group in enumerate(groups) for n in arrays(program, group)[0]}
    last.update((n, len(groups)) for n in program.outputs)
    found, block_of = [], {}
    for position, group in enumerate(groups):
        reads, writes = arrays(program, group)
        free = [block_of[n] for n in reads if n in block_of and last[n] == position]
        for name in writes:
            size = nbytes(program, name)
            block = next((b for b in free if b.nbytes == size), None)
            if block is None:
                block = Block(size, position, position, [])
                found.append(block)
            else:
                free.remove(block)
            block.names.append(name)
            block.last, block_of[name] = last[name], block
    return found
