"""Breadth first, and then reversed: a parent may come after its child.

rejected by: test_order
message: which was computed from it
"""


def order(root):
    result, seen = [root], {root}
    for variable in result:
        for parent in variable.parents:
            if parent not in seen:
                seen.add(parent)
                result.append(parent)
    return result[::-1]
