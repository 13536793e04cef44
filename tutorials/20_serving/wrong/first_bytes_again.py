"""Gives each input the bytes at the beginning.

rejected by: test_read
message: each input begins where the one before has ended
"""


def read(body, length):
    found, used = {}, 0
    for entry in json.loads(body[:length])["inputs"]:
        size = entry.get("parameters", {}).get("binary_data_size")
        found[entry["name"]] = right(entry, None if size is None else body[length : length + size])
        used += size or 0
    if used != len(body) - length:
        raise ValueError("bytes left over")
    return found


def right(entry, raw):
    dtype = DTYPES[entry["datatype"]]
    array = (
        np.array(entry["data"], dtype) if raw is None else np.resize(np.frombuffer(raw, np.uint8), len(raw)).view(dtype)
    )
    return np.resize(array, entry["shape"])
