"""Fuses whatever is pointwise and is joined by a read: a way out of the group and back is not noticed.

rejected by: test_fusion
message: Hint: a group runs as a whole
"""


def fuse(program):
    groups, home = [], {}
    for number, (output, op, inputs) in enumerate(program.instructions):
        near = [home[n] for n in inputs if n in home and program.instructions[home[n][0]].op in FORMULAS]
        if op in FORMULAS and near:
            near[0].append(number)
            home[output] = near[0]
        else:
            home[output] = [number]
            groups.append(home[output])
    return groups
