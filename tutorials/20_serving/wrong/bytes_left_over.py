"""Forgets to look whether bytes are left over.

rejected by: test_bodies_are_whole
message: 4 bytes too many
"""


def read(body, length):
    raw, found = body[length:], {}
    for entry in json.loads(body[:length])["inputs"]:
        size = entry.get("parameters", {}).get("binary_data_size")
        found[entry["name"]] = values(entry, None if size is None else raw[:size])
        raw = raw[size or 0 :]
    return found
