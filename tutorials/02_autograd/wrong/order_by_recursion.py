"""Right, but for programs that are deeper than Python's stack.

rejected by: test_doublings_and_a_long_chain
message: too deep for recursion
"""


def order(root):
    result, seen = [], set()

    def visit(variable):
        if variable not in seen:
            seen.add(variable)
            for parent in variable.parents:
                visit(parent)
            result.append(variable)

    visit(root)
    return result
