"""The layout of the picture of a program: boxes of instructions, bands of modules, frames around them.

Values flow down in the column of forward and up again in that of backward, so that the gradient of an instruction
stands beside it. What a module's instructions do among themselves is laid out as `show.layout` has it. All lengths are
in inches, y points down.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from miniflow.graph.ir import BACKWARD, FORWARD, INPUT, PARAMETER, UPDATE, Instruction, Program, Slot
from miniflow.show.layout import layered

POINTS = 8
CHARACTER = 0.602 * POINTS / 72  # width of one in the font of the picture
LINE = 0.155  # height of a line of text
PADDING = 0.09  # around the text of a box
ROW = 0.24  # between the boxes of a column
LABEL = 0.24  # height of a module's name
GAP = 0.12  # between bands
COLUMN = 0.7  # between columns, where arrows turn
INSET = 0.11  # of a module's frame within that of its parent
WIDEST = 44  # characters of a line
PHASES = (FORWARD, BACKWARD, UPDATE)


@dataclass(eq=False)
class Box:
    """An instruction, or an input of the program.

    Attributes:
        lines: its text.
        phase: FORWARD, BACKWARD or UPDATE; INPUT for inputs.
        scope: of the module whose band it is in.
        reads: the slots that arrows come from.
        writes: the slots that arrows start with.
        fused: whether a pass made it of several instructions.
        result: whether the program returns it.
        x, y: the centre, in inches, y pointing down.
    """

    lines: list[str]
    phase: str
    scope: str
    reads: list[Slot]
    writes: list[Slot]
    fused: bool = False
    result: bool = False
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """In inches."""
        return CHARACTER * max(map(len, self.lines)) + 2 * PADDING

    @property
    def height(self) -> float:
        """In inches."""
        return LINE * len(self.lines) + 2 * PADDING


@dataclass
class Band:
    """The instructions of one module, from top to bottom of the picture.

    Attributes:
        scope: the module's dotted name.
        columns: the boxes of each phase.
        depth: how many frames lie around it.
        opens: how many frames begin above it.
        closes: how many frames end below it.
        top, bottom: where it lies.
    """

    scope: str
    columns: dict[str, list[Box]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    depth: int = 0
    opens: int = 0
    closes: int = 0
    top: float = 0.0
    bottom: float = 0.0


@dataclass
class Frame:
    """A box around the bands of a module and of the modules in it: numbers `first` to `last`."""

    scope: str
    label: str
    first: int
    last: int
    depth: int


# what is to be drawn


def boxes_of(program: Program) -> list[Box]:
    """A box for each input that is read and for each instruction."""
    read = {slot for instruction in program.instructions for slot in instruction.reads}
    returned = set(program.outputs)
    boxes = [
        Box([slot.name.removeprefix(f"{program.name}_"), slot.type], INPUT, "", [], [slot])
        for slot in program.inputs
        if slot in read | returned
    ]
    states = {slot: state for state, slot in program.writes.items()}
    for instruction in program.instructions:
        lines = [title(instruction), shapes(instruction.outputs)]
        lines += changed(instruction, states)
        boxes.append(
            Box(
                [shortened(line) for line in lines],
                instruction.phase,
                home(instruction),
                [slot for slot in dict.fromkeys(instruction.reads)],
                instruction.outputs,
                fused=instruction.op.made_by_passes,
                result=not returned.isdisjoint(instruction.outputs),
            )
        )
    return boxes


def title(instruction: Instruction) -> str:
    """The name of the op; for a fused region the names of the ops in it."""
    body = instruction.attrs.get("body")
    if body is None or not hasattr(body, "steps"):
        return instruction.op.function_name
    return " + ".join(step.function for step in body.steps)


def shapes(slots: Sequence[Slot]) -> str:
    """The types of some slots, the same ones counted: `f32[8] x 3`."""
    counts: dict[str, int] = {}
    for slot in slots:
        counts[slot.type] = counts.get(slot.type, 0) + 1
    return ", ".join(kind if number == 1 else f"{kind} x {number}" for kind, number in counts.items())


def changed(instruction: Instruction, states: dict[Slot, Slot]) -> list[str]:
    """A line that names the states which take the results, parameters first."""
    written = [states[slot] for slot in instruction.outputs if slot in states]
    if not written:
        return []
    names = [slot.name.rpartition(".")[2] for slot in written if slot.kind == PARAMETER] or [
        slot.name.rpartition(".")[2] for slot in written
    ]
    return [f"-> {names[0]}" if len(names) == 1 else f"-> {len(names)} states" if len(names) > 3 else
            f"-> {', '.join(names)}"]  # fmt: skip


def shortened(line: str) -> str:
    """At most WIDEST characters."""
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 3]}..."


def home(instruction: Instruction) -> str:
    """The module beside which an instruction is drawn: for the update of one parameter the one that has it."""
    if instruction.phase != UPDATE:
        return instruction.scope
    parameters = [x for x in instruction.inputs if isinstance(x, Slot) and x.kind == PARAMETER]
    return parameters[0].name.rpartition(".")[0] if len(parameters) == 1 else instruction.scope


def bands_of(boxes: Iterable[Box]) -> list[Band]:
    """Bands in the order in which forward enters the modules.

    What a module computes itself, between and after the modules in it, stands there too: it may have several bands, as
    has what lies outside of all modules. A module of which passes have left only gradients stands above the one whose
    gradients come before.
    """
    bands: list[Band] = []
    of_scope: dict[str, list[Band]] = {}
    backward: Band | None = None  # the band of the newest gradient
    for box in boxes:
        phase = FORWARD if box.phase == INPUT else box.phase
        of_module = of_scope.setdefault(box.scope, [])
        band = of_module[-1] if of_module else None
        if phase == FORWARD and band is not None and bands[-1] is not band and related(bands[-1].scope, box.scope):
            band = None
        if phase == BACKWARD and backward is not None:
            above = [one for one in of_module if bands.index(one) <= bands.index(backward)]
            band = above[-1] if above else band
        if band is None:
            band = Band(box.scope)
            of_module.append(band)
            below = bands.index(backward) if phase == BACKWARD and backward is not None else len(bands)
            bands.insert(below, band)
        if phase == BACKWARD:
            backward = band
        band.columns[phase].append(box)
    return together(bands)


def together(bands: list[Band]) -> list[Band]:
    """The bands with those of one module next to each other: a module may be entered again after others."""
    result: list[Band] = []
    for band in bands:
        package = band.scope.rpartition(".")[0]
        at = len(result)
        while package and at and not related(result[at - 1].scope, package):
            at -= 1
        result.insert(at or len(result), band)
    return result


def related(scope: str, package: str) -> bool:
    """Whether a module is `package` or in it; all are in "", which is outside of all."""
    return not package or scope == package or scope.startswith(f"{package}.")


def frames_of(bands: list[Band]) -> list[Frame]:
    """The frames, outer ones first; they tell the bands how many of them lie around, open and close."""
    frames: list[Frame] = []
    enclose(bands, 0, len(bands), "", 0, frames)
    for frame in frames:
        bands[frame.first].opens += 1
        bands[frame.last].closes += 1
        for band in bands[frame.first : frame.last + 1]:
            band.depth += 1
    return frames


def enclose(bands: list[Band], start: int, stop: int, outer: str, depth: int, frames: list[Frame]) -> None:
    """Add frames for the modules within `outer`, which has the bands from `start` to before `stop`."""
    i = start
    while i < stop:
        name = below(bands[i].scope, outer)
        if not name:
            i += 1
            continue
        scope = f"{outer}.{name}" if outer else name
        end = i + 1
        while end < stop and related(bands[end].scope, scope):
            end += 1
        label = name
        while all(below(b.scope, scope) == below(bands[i].scope, scope) != "" for b in bands[i:end]):
            label = f"{label}.{below(bands[i].scope, scope)}"  # a module with a single module in it: one frame for both
            scope = f"{scope}.{below(bands[i].scope, scope)}"
        frames.append(Frame(scope, label, i, end - 1, depth))
        enclose(bands, i, end, scope, depth + 1, frames)
        i = end


def below(scope: str, outer: str) -> str:
    """The first part of a name after that of an outer module: "fc" for "model.fc.act" in "model"."""
    if not outer:
        return scope.partition(".")[0]
    return scope[len(outer) + 1 :].partition(".")[0] if scope.startswith(f"{outer}.") else ""


# where it is to be drawn


def place(bands: list[Band]) -> dict[str, tuple[float, float]]:
    """Give every box its place; returns left and right of each column."""
    inner = {(id(band), phase): arrange(band.columns[phase], phase) for band in bands for phase in PHASES}
    deepest = max((band.depth for band in bands), default=0)
    columns, x = {}, deepest * INSET
    for phase in PHASES:
        width = max((inner[id(band), phase][0] for band in bands), default=0.0)
        columns[phase] = x, x + width
        x += width + (COLUMN if width else 0.0)
    y = 0.0
    for band in bands:
        y += band.opens * (LABEL + INSET) + GAP
        band.top = y
        height = max(inner[id(band), phase][1] for phase in PHASES)
        for phase in PHASES:
            left, right = columns[phase]
            for box in band.columns[phase]:
                box.x += (left + right) / 2
                box.y += y + (height - inner[id(band), phase][1]) / 2
        y += height
        band.bottom = y
        y += band.closes * INSET + GAP
    return columns


def arrange(boxes: list[Box], phase: str) -> tuple[float, float]:
    """Lay out the boxes of one column of a band around x = 0, from y = 0 on; returns width and height."""
    if not boxes:
        return 0.0, 0.0
    maker = {slot: box for box in boxes for slot in box.writes}
    edges = [(maker[slot], box) for box in boxes for slot in box.reads if slot in maker]
    if phase == UPDATE:  # below each other, so that the gradients reach each at its own height
        edges = list(zip(boxes, boxes[1:], strict=False))
    layout = layered({box: box.width for box in boxes}, edges)
    rows = sorted({y for _, y in layout.places.values()}, reverse=phase != BACKWARD)
    heights = {row: max(box.height for box in boxes if layout.places[box][1] == row) for row in rows}
    middle, top = {}, 0.0
    for row in rows:
        middle[row] = top + heights[row] / 2
        top += heights[row] + ROW
    left = min(layout.places[box][0] - box.width / 2 for box in boxes)
    right = max(layout.places[box][0] + box.width / 2 for box in boxes)
    for box in boxes:
        x, row = layout.places[box]
        box.x, box.y = x - (left + right) / 2, middle[row]
    return right - left, top - ROW
