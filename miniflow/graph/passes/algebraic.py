"""Algebraic rules that are exact in floating point: for NaN, infinities, zeros of either sign, and every rounding.

    x * 1, x / 1, x - 0, x + -0, x ** 1         -> x           but not x + 0: it turns -0 into 0
    --x, x.to(wider).to(back), x.to(own dtype)  -> x
    where(c, x, x), x.sum_to_shape(own shape)   -> x
    x + -y, x - -y, -x + y                      -> x - y, x + y, y - x
    -(x * 2), -x * 2, -x / 2                    -> x * -2, x / -2
    |-x|, ||x||, floor(floor(x)) ...            -> |x|, floor(x) ...
    x.to(wider).to(any)                         -> x.to(any)
    expand(x) * y                               -> x * y       where the product is broadcast by itself

Each saves one pass over an array. Many come from autograd: the gradient of x ** 2 contains x ** 1, that of x - y a
negation that is then added, that of a sum an expansion. A rule looks at an instruction and at what computed its inputs;
what it leaves behind without readers is dropped by `dead_code`.

Source: Goldberg, "What every computer scientist should know about floating-point arithmetic", 1991, section 3.2.3, on
which identities hold; LLVM's InstSimplify.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.graph.ir import Instruction, Program, Slot, follow, replaced
from miniflow.graph.uses import Uses
from miniflow.ops.arithmetic import Add, Mul, Neg, Sub
from miniflow.ops.pointwise import Pointwise
from miniflow.ops.promotion import Cast, ToInteger, broadcast_shape
from miniflow.ops.random import range_of

IDEMPOTENT = {"Abs", "Floor", "Ceil", "Trunc", "Round", "Sign"}

Made = dict[Slot, Instruction]
# What a rule returns: a slot that already holds the result, a changed instruction, or None where it does not apply.
Rewrite = Slot | Instruction | None


def run(program: Program) -> Program:
    """The program after all rules; each sees its inputs as the rules before left them."""
    uses = Uses(program)
    made: Made = {}
    new: dict[Slot, Slot] = {}
    kept = []
    for instruction in program.instructions:
        changed = simplified(rewired(instruction, new), made, uses)
        if isinstance(changed, Slot):
            new[instruction.output] = changed
        else:
            kept.append(changed)
            made.update(dict.fromkeys(changed.outputs, changed))
    if all(a is b for a, b in zip(kept, program.instructions, strict=False)) and not new:
        return program
    return replaced(program, new, kept)


def rewired(instruction: Instruction, new: dict[Slot, Slot]) -> Instruction:
    """The instruction reading what its inputs have become."""
    if not any(slot in new for slot in instruction.reads):
        return instruction
    return instruction.with_(inputs=[follow(new, x) if isinstance(x, Slot) else x for x in instruction.inputs])


def simplified(instruction: Instruction, made: Made, uses: Uses) -> Slot | Instruction:
    """The instruction after the rules for its op, again and again until none applies.

    A slot stands for a result only if nothing is broadcast or converted between them, and if it lies in memory alike.
    """
    for rule in (*RULES.get(instruction.op.__name__, ()), *GENERAL):
        result = rule(instruction, made)
        if isinstance(result, Instruction):
            return simplified(result, made, uses)
        if isinstance(result, Slot) and uses.same_layout(result, instruction.output):
            return result
    return instruction


def is_number(x: Any, value: float) -> bool:
    """Whether an input is the Python number `value`, with its sign if it is a zero."""
    return isinstance(x, bool | int | float) and x == value and math.copysign(1, x) == math.copysign(1, value)


def negated(x: Any, made: Made) -> Any:
    """The y of x = -y, else None."""
    return made[x].inputs[0] if isinstance(x, Slot) and x in made and made[x].op is Neg else None


# rules that leave an input


def minus_zero_added(i: Instruction, made: Made) -> Rewrite:
    x, y = i.inputs
    zero = 0 if i.output.dtype.kind in "iub" else -0.0
    return x if is_number(y, zero) else y if is_number(x, zero) else None


def zero_subtracted(i: Instruction, made: Made) -> Rewrite:
    x, y = i.inputs
    return x if is_number(y, 0) else None


def times_one(i: Instruction, made: Made) -> Rewrite:
    x, y = i.inputs
    return x if is_number(y, 1) else y if is_number(x, 1) else None


def divided_by_one(i: Instruction, made: Made) -> Rewrite:
    x, y = i.inputs
    return x if is_number(y, 1) else None


def either_way_the_same(i: Instruction, made: Made) -> Rewrite:
    _, x, y = i.inputs
    return x if x is y else None


def nothing_done(i: Instruction, made: Made) -> Rewrite:
    return i.inputs[0]  # if it has the shape and dtype of the output


# rules with signs


def added_negation(i: Instruction, made: Made) -> Rewrite:
    x, y = i.inputs
    plus, minus = negated(y, made), negated(x, made)
    if plus is not None:
        return i.with_(op=Sub, inputs=[x, plus])
    return None if minus is None else i.with_(op=Sub, inputs=[y, minus])


def subtracted_negation(i: Instruction, made: Made) -> Rewrite:
    x, y = i.inputs
    plus = negated(y, made)
    return None if plus is None else i.with_(op=Add, inputs=[x, plus])


def negation_of_negation(i: Instruction, made: Made) -> Rewrite:
    return negated(i.inputs[0], made)


def negation_of_scaled(i: Instruction, made: Made) -> Rewrite:
    source = made.get(i.inputs[0])
    if source is None or source.op is not Mul or not can_be_negated(source.inputs[1], i.output):
        return None
    x, number = source.inputs
    return i.with_(op=Mul, inputs=[x, -number])


def scaled_negation(i: Instruction, made: Made) -> Rewrite:
    x, number = i.inputs
    plain = negated(x, made)
    return i.with_(inputs=[plain, -number]) if plain is not None and can_be_negated(number, i.output) else None


def can_be_negated(number: Any, result: Slot) -> bool:
    """Whether the sign of a factor can be changed instead of that of the floating product."""
    return isinstance(number, float) and result.dtype.kind == "f"


def sign_ignored(i: Instruction, made: Made) -> Rewrite:
    if i.output.dtype.kind == "u":
        return None  # -1 is 255
    plain = negated(i.inputs[0], made)
    return None if plain is None else i.with_(inputs=[plain])


def done_before(i: Instruction, made: Made) -> Rewrite:
    source = made.get(i.inputs[0])
    return i.inputs[0] if source is not None and source.op is i.op else None


# rules about dtypes and shapes


def cast_of_widened(i: Instruction, made: Made) -> Rewrite:
    """A dtype on the way that holds every value changes nothing."""
    source = made.get(i.inputs[0])
    if source is None or source.op not in (Cast, ToInteger):
        return None
    (x,) = source.inputs
    first, middle, last = x.dtype, source.output.dtype, i.output.dtype
    to_integer = last.kind in "iu" and not holds(last, first)  # floats out of range become anything
    if not holds(middle, first) or to_integer and not middle.kind == first.kind == "i":
        return None
    return x if first == last else i.with_(inputs=[x])


def holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """Whether `wide` represents every value of `narrow`, integers without rounding."""
    if narrow.kind in "iu" and wide.kind not in "iub":
        return range_of(wide)[0] <= range_of(narrow)[0] and range_of(narrow)[1] <= range_of(wide)[1]
    return np.can_cast(narrow, wide, "safe")


def expanded_operand(i: Instruction, made: Made) -> Rewrite:
    """Such an op broadcasts by itself; an expanded operand that is written out would take memory."""
    if not issubclass(i.op, Pointwise):
        return None
    for position, x in enumerate(i.inputs):
        source = made.get(x) if isinstance(x, Slot) else None
        if source is not None and source.op.__name__ == "Expand":
            inputs = [source.inputs[0] if k == position else other for k, other in enumerate(i.inputs)]
            shapes = [y.shape for y in inputs if isinstance(y, Slot)]
            if broadcast_shape("", *shapes) == i.output.shape:
                return i.with_(inputs=inputs)
    return None


RULES: dict[str, tuple[Callable[[Instruction, Made], Rewrite], ...]] = {
    "Add": (minus_zero_added, added_negation),
    "Sub": (zero_subtracted, subtracted_negation),
    "Mul": (times_one, scaled_negation),
    "Div": (divided_by_one, scaled_negation),
    "Neg": (negation_of_negation, negation_of_scaled),
    "Where": (either_way_the_same,),
    "Abs": (sign_ignored,),
    "Cast": (nothing_done, cast_of_widened),
    "ToInteger": (nothing_done, cast_of_widened),
    "SumToShape": (nothing_done,),
    **dict.fromkeys(IDEMPOTENT - {"Abs"}, (done_before,)),
}
RULES["Abs"] += (done_before,)
GENERAL = (expanded_operand,)
