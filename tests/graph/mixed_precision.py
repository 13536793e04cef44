"""What the tests of the autocast pass share: running it, and what mixed precision is to compute."""

import numpy as np
from programs import assert_same_bits, assert_unchanged, numbers_of, values_of

import miniflow as flow
from miniflow.graph.interpret import execute
from miniflow.graph.ir import Instruction, Slot
from miniflow.graph.passes import autocast
from miniflow.ops.promotion import Cast

F16, BF16 = flow.float16.numpy, flow.bfloat16.numpy
UNIT = {F16: 2.0**-11, BF16: 2.0**-8}  # the relative error of one rounding


def casted(program, dtype=F16):
    """What the pass makes of a program."""
    after = assert_unchanged(program, lambda p: autocast.run(p, dtype))
    after.check()
    return after


def in_half(program):
    """The ops with a half-precision result, in order, without casts."""
    made = [i for i in program.instructions if i.op is not Cast and i.outputs[0].dtype in (F16, BF16)]
    return [i.op.function_name for i in made]


def runs(program, seed=0):
    """Outputs and writes of a program on random inputs; every result has the dtype that its slot announces."""
    inputs, _ = values_of(program, seed)
    states = [program.tensors[slot]._array for slot in program.states]
    values = dict(zip([*program.inputs, *program.states], [*inputs, *states], strict=True)) | program.constants
    numbers = numbers_of(program, seed)
    for instruction in program.instructions:
        with np.errstate(all="ignore"):
            results = execute(instruction, values, numbers)
        for slot, array in zip(instruction.outputs, results, strict=True):
            got = (tuple(array.shape), array.dtype)
            assert got == (slot.shape, slot.dtype), f"{instruction.op.__name__}: {got} for {slot}"
            values[slot] = array
    return [values[slot] for slot in program.results]


def assert_same_runs(before, after):
    """Both programs have the same results, bit for bit."""
    for old, new in zip(runs(before), runs(after), strict=True):
        assert_same_bits(new, old)


def emulated(program, dtype, seed=0):
    """What mixed precision means: an instruction of the half computes in float32 on rounded inputs, and rounds."""
    half = autocast.Choice(program).half
    inputs, _ = values_of(program, seed)
    states = [program.tensors[slot]._array for slot in program.states]
    values = dict(zip([*program.inputs, *program.states], [*inputs, *states], strict=True)) | program.constants
    numbers = numbers_of(program, seed)

    def rounded(array):
        return array.astype(dtype).astype(np.float32) if array.dtype == np.float32 else array

    for instruction in program.instructions:
        rounds = instruction in half and not autocast.has_number(instruction)
        kept = instruction.op.keeps_float32
        seen = dict(values)
        if rounds:
            twins = [x.like() if isinstance(x, Slot) else x for x in instruction.inputs]  # a slot may stand there twice
            for i, (x, twin) in enumerate(zip(instruction.inputs, twins, strict=True)):
                if isinstance(x, Slot):
                    seen[twin] = values[x] if i in kept else rounded(values[x])
            instruction = Instruction(instruction.op, twins, instruction.outputs, instruction.attrs)
        with np.errstate(all="ignore"):
            results = execute(instruction, seen, numbers)
        values.update(zip(instruction.outputs, map(rounded, results) if rounds else results, strict=True))
    return [values[slot] for slot in program.results]


def relative_error(before, after, bound):
    """No result of `after` is farther from that of `before` than `bound` times its norm; some are off."""
    off = 0.0
    for old, new in zip(runs(before), runs(after), strict=True):
        assert old.dtype == new.dtype and old.shape == new.shape
        error = np.linalg.norm((new - old).ravel()) / max(np.linalg.norm(old.ravel()), 1e-30)
        assert error <= bound, f"{error} > {bound}"
        off = max(off, error)
    assert off > 0
