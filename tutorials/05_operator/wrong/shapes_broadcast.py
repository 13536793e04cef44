"""Accepts shapes that broadcast: the kernels would read beyond the end of the smaller array.

rejected by: test_what_is_refused
message: infer for shapes (3, 5) and (1, 5): expected a ShapeError
"""


def infer(x, a):
    require_floating("recurrence", x)
    require_one_dtype("recurrence", x, a)
    if x.ndim != 2:
        raise ShapeError(f"recurrence: got shapes {x.shape} and {a.shape}; expected two dims")
    try:
        return flow.broadcast_shapes(x.shape, a.shape), x.dtype
    except (RuntimeError, ValueError) as error:
        raise ShapeError(f"recurrence: {x.shape} and {a.shape} do not fit") from error


Recurrence.infer = staticmethod(infer)
