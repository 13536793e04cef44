"""Writes the highest seven bits first, as people write numbers.

rejected by: test_varint
message: 128 is added to each byte but the last
"""


def varint(n):
    data = [n % 128]
    while n := n // 128:
        data.insert(0, n % 128 + 128)
    return bytes(data)
