"""Takes the number of characters of a text for the number of its bytes.

rejected by: test_field
message: the length of a text is that of its bytes
"""


def field(number, value):
    if isinstance(value, int):
        return varint(8 * number) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(8 * number + 2) + varint(len(value)) + data
