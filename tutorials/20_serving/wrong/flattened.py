"""Lets NumPy find out a size: a shape of -1 is taken for a valid one.

rejected by: test_values_are_counted
message: for the shape [-1
"""


def values(entry, raw=None):
    if entry["datatype"] not in DTYPES:
        raise ValueError("unknown datatype")
    dtype = DTYPES[entry["datatype"]]
    array = np.array(entry["data"], dtype) if raw is None else np.frombuffer(raw, dtype)
    return array.reshape(entry["shape"])
