"""Draw the diagrams of docs/architecture.md: `python tools/diagrams.py` writes docs/images/*.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
BLUE, ORANGE, GREEN, GRAY = (
    ("#e8f0fe", "#3567c8"),
    ("#fff0dd", "#c76a12"),
    ("#e5f4ea", "#2a7f4f"),
    ("#f2f3f5", "#70757d"),
)
LINE = 19  # pixels


class Drawing:
    """Boxes, text and arrows, in pixels from the upper left corner."""

    def __init__(self, title: str, width: int, height: int):
        self.title, self.width, self.height, self.parts = title, width, height, []

    def text(
        self, x: float, y: float, line: str, *, code: bool = False, anchor: str = "middle", style: str = ""
    ) -> None:
        """A line of text around or from `x`, with its middle at `y`."""
        font = ' font-family="ui-monospace, Menlo, DejaVu Sans Mono, monospace" font-size="13"' if code else ""
        form = f'x="{x}" y="{y + 5}" text-anchor="{anchor}" xml:space="preserve"{font} {style}'
        self.parts.append(f"<text {form}>{escape(line)}</text>")

    def box(self, x, y, width, height, lines="", color=GRAY, *, code=False, left=False, dashed=False) -> None:
        """A box with lines of text in its middle, or from its left border; one that ends with a colon is bold."""
        fill, stroke = color
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        form = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="6"'
        self.parts.append(f'<rect {form} fill="{fill}" stroke="{stroke}"{dash}/>')
        lines = lines.split("\n") if lines else []
        for number, line in enumerate(lines):
            style = 'font-weight="bold"' if line.endswith(":") and not code else ""
            at = y + height / 2 + (number - (len(lines) - 1) / 2) * LINE
            start = {"anchor": "start"} if left else {}
            self.text(x + 12 if left else x + width / 2, at, line.removesuffix(":") if style else line,
                      code=code, style=style, **start)  # fmt: skip

    def arrow(self, *points: tuple[float, float], label: str = "", at=(0, -10), dashed: bool = False) -> None:
        """A line through these points with a head at its end; the label is `at` from the middle of its start."""
        path = " ".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="#444" marker-end="url(#head)"{dash}/>')
        (x0, y0), (x1, y1) = points[:2]
        if label:
            self.text((x0 + x1) / 2 + at[0], (y0 + y1) / 2 + at[1], label, style='fill="#444" font-size="13"')

    def write(self, name: str) -> None:
        """Write the file; it is white behind, so that it can be read on dark pages too."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, Helvetica, sans-serif"'
            ' font-size="14" fill="#1b1e23">',
            f"<title>{escape(self.title)}</title>",
            f'<defs>{head}<path d="M0,0 L8,4 L0,8 z" fill="#444"/></marker></defs>',
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#fff"/>',
            *self.parts,
            "</svg>",
        ]
        (IMAGES / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


def call() -> None:
    """The life of one call."""
    d = Drawing("A call passes through dispatch, which finds the kernel by the class of the arrays", 760, 300)
    d.box(8, 60, 145, 50, "y = flow.relu(x)", BLUE, code=True)
    d.box(172, 20, 436, 110, color=(GRAY[0], GRAY[1]), dashed=True)
    d.text(390, 38, "miniflow/dispatch/dispatcher.py", code=True)
    d.box(180, 55, 128, 60, "autocast\ncasts the inputs")
    d.box(326, 55, 128, 60, "the kernel\ncomputes", ORANGE)
    d.box(472, 55, 128, 60, "the tape\nrecords a node")
    d.box(626, 60, 126, 50, "y, a Tensor", BLUE)
    d.arrow((153, 85), (178, 85))
    d.arrow((308, 85), (324, 85))
    d.arrow((454, 85), (470, 85))
    d.arrow((600, 85), (624, 85))
    targets = {
        "ndarray": "NumPy, numba\nbackends/cpu",
        "DeviceArray": "numba.cuda\nbackends/cuda",
        "GlobalArray": "each shard\nparallel/dispatch",
        "symbolic array": "an instruction\ngraph/trace",
    }
    for k, (name, what) in enumerate(targets.items()):
        x = 22 + 185 * k
        d.text(x + 80, 185, name, code=True)
        d.box(x, 205, 160, 70, what, ORANGE)
        d.arrow((390, 115), (390, 150), (x + 80, 150), (x + 80, 172))
    d.write("dispatch")


def operator() -> None:
    """What is written of an operator, and what follows from it."""
    d = Drawing("An operator is written once; functions, kernels, gradients and tests follow from it", 760, 330)
    d.text(165, 22, "written, in one file", style='font-weight="bold"')
    source = '@pointwise(nn="SiLU")\ndef silu(x):\n    return x * sigmoid(x)\n\n@silu.gradient\n'
    source += "def silu_grad(dy, x):\n    s = sigmoid(x)\n    return dy * s * (1 + x * (1 - s))"
    d.box(15, 40, 310, 180, source, BLUE, code=True, left=True)
    d.box(
        15,
        235,
        310,
        78,
        "any other operator:\na class with infer, backward and sbp,\nand a kernel for each device",
        BLUE,
    )
    d.text(570, 22, "what follows", style='font-weight="bold"')
    rows = ["flow.silu, x.silu(), F.silu, nn.SiLU", "loops of numba on the CPU", "kernels of numba.cuda",
            "gradients of any order", "mixed precision: its class", "nn.Graph: recorded, fused",
            "global tensors: signatures", "its row in the tests and in the table"]  # fmt: skip
    for k, row in enumerate(rows):
        d.box(425, 40 + 34.5 * k, 320, 28, row, GREEN)
        d.arrow((325, 176), (372, 176), (372, 54 + 34.5 * k), (423, 54 + 34.5 * k))
    d.write("operator")


def tape() -> None:
    """The tape of three lines, and the order of backward."""
    d = Drawing("Nodes point to the nodes of their inputs; backward visits the newest first", 760, 270)
    d.box(
        15,
        30,
        190,
        120,
        "a = x * w    # 1\nb = a.exp()  # 2\ny = a + b    # 3\ny.backward()",
        BLUE,
        code=True,
        left=True,
    )
    d.text(15, 185, "numbers: when it was recorded", anchor="start", style='font-size="13"')
    d.text(15, 205, "arrows: edges to the inputs", anchor="start", style='font-size="13"')
    d.box(640, 105, 105, 50, "Node 3\nadd", ORANGE)
    d.box(500, 40, 105, 50, "Node 2\nexp", ORANGE)
    d.box(375, 105, 105, 50, "Node 1\nmul", ORANGE)
    d.box(240, 40, 105, 50, "Leaf x\nx.grad", GREEN)
    d.box(240, 170, 105, 50, "Leaf w\nw.grad", GREEN)
    d.arrow((692, 105), (692, 65), (607, 65))
    d.arrow((640, 130), (482, 130), label="dy", at=(0, 14))
    d.arrow((552, 90), (552, 112), (482, 112))
    d.arrow((375, 115), (292, 115), (292, 92))
    d.arrow((375, 145), (292, 145), (292, 168))
    d.text(560, 195, "backward: 3, then 2, then 1. Node 1 gets both of", style='font-size="13"')
    d.text(560, 215, "its gradients before it passes their sum on.", style='font-size="13"')
    d.arrow((725, 245), (385, 245), dashed=True)
    d.write("tape")


def graph() -> None:
    """What happens at the first call of a graph, and at those after it."""
    d = Drawing("The first call records and compiles a step; later calls replay it", 760, 320)
    d.text(15, 22, "first call", anchor="start", style='font-weight="bold"')
    d.box(15, 40, 160, 116, "build(x, label):\nforward\nbackward\nupdate", BLUE)
    d.box(205, 40, 160, 116, "the record:\n%4 = mm(%0, %1)\n%5 = add(%4, %2)\n%6 = relu(%5)")
    d.box(395, 40, 160, 116, "passes:\ndead code, folding,\nfusion, one update\nfor all parameters")
    d.box(585, 40, 160, 116, "the plan:\nwho lives when,\nwhich values share\nmemory")
    d.arrow((175, 98), (203, 98))
    d.arrow((365, 98), (393, 98))
    d.arrow((555, 98), (583, 98))
    d.text(15, 204, "later calls", anchor="start", style='font-weight="bold"')
    d.box(15, 220, 160, 78, "graph(x, label)", BLUE, code=True)
    d.box(
        205,
        220,
        350,
        78,
        "replay, one Python function:\neach line calls a kernel, or a fused loop,\nwith its output given",
        ORANGE,
    )
    d.box(585, 220, 160, 78, "loss, and new\nparameters", GREEN)
    d.arrow((175, 259), (203, 259))
    d.arrow((555, 259), (583, 259))
    d.arrow((665, 156), (665, 188), (380, 188), (380, 218), label="")
    d.write("graph")


def parallel() -> None:
    """A product of split matrices on two ranks: partial sums, then boxing."""
    d = Drawing("Each rank multiplies its shards; boxing adds the partial sums up", 760, 340)
    columns = {"x, S(1)": 120, "w, S(0)": 265, "x @ w, P": 415, "boxed to B": 640}
    for name, x in columns.items():
        d.text(x, 25, name, code=True)
    d.text(120, 47, "split by columns", style='font-size="13"')
    d.text(265, 47, "split by rows", style='font-size="13"')
    d.text(415, 47, "partial sums", style='font-size="13"')
    d.text(640, 47, "broadcast", style='font-size="13"')
    for rank, y in enumerate((70, 205)):
        d.box(10, y, 740, 115, color=("#fafbfc", GRAY[1]), dashed=True)
        d.text(22, y + 16, f"rank {rank}", anchor="start", style='font-weight="bold"')
        left = 75 + 45 * rank
        d.box(75, y + 25, 90, 75, color=("#fff", "#b8bcc4"))
        d.box(left, y + 25, 45, 75, f"x{rank}", BLUE)
        d.box(235, y + 17, 60, 90, color=("#fff", "#b8bcc4"))
        d.box(235, y + 17 + 45 * rank, 60, 45, f"w{rank}", BLUE)
        d.box(375, y + 25, 80, 75, f"x{rank} @ w{rank}", ORANGE)
        d.box(575, y + 25, 130, 75, "x0 @ w0\n+ x1 @ w1", GREEN)
        d.text(200, y + 62, "@")
        d.arrow((300, y + 62), (373, y + 62), label="matmul")
        d.arrow((455, y + 62), (573, y + 62))
    d.arrow((514, 132), (514, 267))
    d.arrow((514, 267), (514, 132))
    d.text(524, 196, "all-reduce", anchor="start", style='font-size="13"')
    d.write("global_tensors")


def hostcuda() -> None:
    """A kernel is cut at its barrier into loops over the threads of a block."""
    d = Drawing("A kernel is cut at its barriers into loops over the threads", 760, 300)
    d.text(135, 22, "what one of 64 threads does", style='font-weight="bold"')
    d.box(15, 40, 240, 45, "tile[i] = x[i]", BLUE, code=True, left=True)
    d.box(15, 93, 240, 30, "cuda.syncthreads()", GRAY, code=True, left=True, dashed=True)
    d.box(15, 131, 240, 45, "y[i] = tile[63 - i]", BLUE, code=True, left=True)
    d.text(430, 22, "what the CPU does for a block", style='font-weight="bold"')
    d.box(320, 40, 220, 60, "for i in range(64):\n    tile[i] = x[i]", ORANGE, code=True, left=True)
    d.box(320, 116, 220, 60, "for i in range(64):\n    y[i] = tile[63 - i]", ORANGE, code=True, left=True)
    d.arrow((255, 62), (318, 62))
    d.arrow((255, 153), (318, 153))
    d.box(605, 40, 140, 136, "LLVM, by numba:\nloops of vector\ninstructions,\nblocks on several\nCPU threads", GREEN)
    d.arrow((540, 108), (603, 108))
    d.box(
        15,
        205,
        350,
        78,
        "check=True:\nshadow memory finds races, wrong indices,\ndivergent barriers and what was never written",
    )
    d.box(
        395,
        205,
        350,
        78,
        "profile=True:\ncounts reads and writes, the sectors they\ntouch, and conflicts of shared-memory banks",
    )
    d.arrow((430, 176), (430, 190), (190, 190), (190, 203), dashed=True)
    d.arrow((430, 176), (430, 190), (570, 190), (570, 203), dashed=True)
    d.write("hostcuda")


def serving() -> None:
    """The way of requests through a server: checked, joined, computed, divided again."""
    d = Drawing("Requests are checked and joined to a batch, which the saved graph answers", 760, 190)
    for k, rows in enumerate(("1 row", "3 rows", "1 row")):
        d.box(15, 15 + 56 * k, 100, 44, f"client\n{rows}", BLUE)
        d.arrow((115, 37 + 56 * k), (153, 37 + 56 * k))
    d.box(155, 15, 135, 156, "check:\nnames, dtypes,\nshapes against\nconfig.pbtxt;\nelse 400 and why")
    d.box(330, 15, 125, 156, "wait:\nuntil the batch\nbefore is done,\nor for the delay")
    d.box(495, 15, 125, 156, "batch:\n5 rows\nthrough the\nreplay of the\nsaved graph", ORANGE)
    d.box(660, 15, 85, 156, "answers:\n1 row\n3 rows\n1 row", GREEN)
    for start in (290, 455, 620):
        d.arrow((start, 93), (start + 38, 93))
    d.write("serving")


def layers() -> None:
    """Who imports whom: downwards only."""
    d = Drawing("Each layer imports only from those below it", 760, 330)
    rows = [
        ("onnx    serve", "files of other frameworks, answers over HTTP", GREEN),
        ("graph    show    vision", "programs, pictures, models", ORANGE),
        ("nn    optim    data    utils    distributed", "layers, updates, batches, ranks", GREEN),
        ("autograd    amp    parallel", "backward, precision, sharding", ORANGE),
        ("ops", "rules, gradients, signatures", ORANGE),
        ("tensor    dispatch", "an array; calls, and what they leave on the tape", BLUE),
        ("backends/cpu    backends/cuda    kernels", "what computes", BLUE),
        ("hostcuda    formulas    dtype    device    sbp    errors", "the ground", GRAY),
    ]
    for k, (names, what, color) in enumerate(rows):
        d.box(15, 15 + 38 * k, 460, 30, names, color, code=True)
        d.text(490, 30 + 38 * k, what, anchor="start")
    d.write("layers")


if __name__ == "__main__":
    for draw in (call, operator, tape, graph, parallel, hostcuda, serving, layers):
        draw()
