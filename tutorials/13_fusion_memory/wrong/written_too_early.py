"""Writes each result as soon as it is there: in place, a later read finds the new value.

rejected by: test_loop
message: read all elements at i before you write one
"""


def source(program, group):
    reads, writes = arrays(program, group)
    lines = [f"def loop({', '.join([f'in_{n}' for n in reads] + [f'out_{n}' for n in writes])}):"]
    lines.append(f"    for i in range(out_{writes[0]}.size):")
    known = []
    for output, op, inputs in (program.instructions[number] for number in group):
        for name in inputs:
            if name in reads and name not in known:
                known.append(name)
                lines.append(f"        {name} = in_{name}[i]")
        lines.append(f"        {output} = {FORMULAS[op].format(*inputs)}")
        if output in writes:
            lines.append(f"        out_{output}[i] = {output}")
    return "\n".join(lines)
