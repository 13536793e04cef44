"""Fuses only instructions that stand one after the other in the program.

rejected by: test_fusion
message: expected as few groups as possible
"""


def fuse(program):
    groups, made = [], {}
    for number, (output, op, inputs) in enumerate(program.instructions):
        last = groups[-1] if groups else []
        if (
            last
            and op in FORMULAS
            and any(made.get(n) in last for n in inputs)
            and program.instructions[last[0]].op in FORMULAS
        ):
            last.append(number)
        else:
            groups.append([number])
        made[output] = number
    return groups
