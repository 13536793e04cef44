"""Each formula reads from the array again, and not from a variable.

rejected by: test_loop
message: reads of each element
"""


def source(program, group):
    reads, writes = arrays(program, group)
    lines = [f"def loop({', '.join([*reads, *(f'out_{name}' for name in writes)])}):"]
    lines.append(f"    for i in range(out_{writes[0]}.size):")
    for number in group:
        output, op, inputs = program.instructions[number]
        lines.append(
            f"        v_{output} = " + FORMULAS[op].format(*(f"{n}[i]" if n in reads else f"v_{n}" for n in inputs))
        )
    lines += [f"        out_{name}[i] = v_{name}" for name in writes]
    return "\n".join(lines)
