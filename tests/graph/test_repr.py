"""How graphs print, before and after they are compiled, and what `debug` prints meanwhile."""

import re

import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, GraphError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3, affine=False)

    def forward(self, x):
        return self.norm(self.fc(x))


class Linear(nn.Graph):
    def __init__(self, model=None, **options):
        super().__init__(**options)
        self.model = Net().eval() if model is None else model

    def build(self, x):
        return self.model(x) + 1


def lines_of(graph):
    return [line.strip() for line in repr(graph).splitlines()]


def test_before_the_first_call():
    graph = Linear()
    assert re.fullmatch(r"Linear_\d+", graph.name)
    assert repr(graph) == (
        f"(GRAPH:{graph.name}:Linear): (\n"
        "  (CONFIG:config:GraphConfig(training=False, ))\n"
        "  (MODULE:model:Net()): (\n"
        "    (MODULE:model.fc:Linear(in_features=4, out_features=3, bias=True)): (\n"
        "      (PARAMETER:model.fc.weight:tensor(..., size=(3, 4), dtype=miniflow.float32, requires_grad=True)): ()\n"
        "      (PARAMETER:model.fc.bias:tensor(..., size=(3,), dtype=miniflow.float32, requires_grad=True)): ()\n"
        "    )\n"
        "    (MODULE:model.norm:BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=False, bias=False, "
        "track_running_stats=True)): (\n"
        "      (BUFFER:model.norm.running_mean:tensor(..., size=(3,), dtype=miniflow.float32)): ()\n"
        "      (BUFFER:model.norm.running_var:tensor(..., size=(3,), dtype=miniflow.float32)): ()\n"
        "      (BUFFER:model.norm.num_batches_tracked:tensor(..., size=(), dtype=miniflow.int64)): ()\n"
        "    )\n"
        "  )\n"
        ")"
    )


def test_after_the_first_call():
    graph = Linear(nn.Linear(4, 3))
    graph(flow.ones(8, 4))
    name = graph.name
    place = 'placement=(miniflow.placement(type="cpu", ranks=[0]))'
    line = int(re.search(r"location=\(test_repr.py:(\d+)\)", repr(graph))[1])
    f32 = "dtype=(miniflow.float32)"
    assert lines_of(graph) == [
        f"(GRAPH:{name}:Linear): (",
        "(CONFIG:config:GraphConfig(training=False, ))",
        f"(INPUT:_{name}_input.0.0_2:tensor(..., size=(8, 4), dtype=miniflow.float32))",
        "(MODULE:model:Linear(in_features=4, out_features=3, bias=True)): (",
        "(INPUT:_model_input.0.0_2:tensor(..., is_lazy='True', size=(8, 4), dtype=miniflow.float32))",
        "(PARAMETER:model.weight:tensor(..., size=(3, 4), dtype=miniflow.float32, requires_grad=True)): ()",
        "(PARAMETER:model.bias:tensor(..., size=(3,), dtype=miniflow.float32, requires_grad=True)): ()",
        "(GraphModule:model()): (",
        f"(OPERATOR: model-linear-0({name}_input.0.0_2:(sbp=(B), size=(8, 4), {f32}), "
        f"model.weight:(sbp=(B), size=(3, 4), {f32}), model.bias:(sbp=(B), size=(3,), {f32})) -> "
        f"(model-linear-0/y_0:(sbp=(B), size=(8, 3), {f32})), {place}, location=(test_repr.py:{line}))",
        ")",
        "(OUTPUT:_model_output.0.0_2:tensor(..., is_lazy='True', size=(8, 3), dtype=miniflow.float32))",
        ")",
        f"(OPERATOR: add-1(model-linear-0/y_0:(sbp=(B), size=(8, 3), {f32}), 1) -> "
        f"(add-1/y_0:(sbp=(B), size=(8, 3), {f32})), {place}, location=(test_repr.py:{line}))",
        f"(OUTPUT:_{name}_output.0.0_2:tensor(..., size=(8, 3), dtype=miniflow.float32))",
        ")",
    ]


def test_a_module_prints_as_its_part_of_the_graph():
    graph = Linear()
    assert repr(graph.model.fc).startswith("(MODULE:model.fc:Linear(in_features=4, out_features=3, bias=True)): (\n")
    assert "OPERATOR" not in repr(graph.model.fc)
    graph(flow.ones(8, 4))
    text = repr(graph.model.fc)
    assert "(OPERATOR: model.fc-linear-0(" in text and "model.norm" not in text
    graph.model.fc.config.activation_checkpointing = True
    assert "(CONFIG:config:GraphModule(activation_checkpointing=True, ))" in repr(graph)


@pytest.mark.slow
def test_devices_and_training_are_shown(checked_executor):
    model = nn.Linear(4, 3).cuda()

    class Train(Linear):
        def build(self, x):
            loss = self.model(x).mean()
            loss.backward()
            return loss, None

    graph = Train(model)
    graph.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
    graph(flow.ones(8, 4).cuda())
    lines = lines_of(graph)
    assert "(CONFIG:config:GraphConfig(training=True, ))" in lines
    assert (
        f"(INPUT:_{graph.name}_input.0.0_2:tensor(..., device='cuda:0', size=(8, 4), dtype=miniflow.float32))" in lines
    )
    assert f"(OUTPUT:_{graph.name}_output.0.1_3:None)" in lines
    assert not [line for line in lines if "sgd" in line]  # forward only
    assert any('placement=(miniflow.placement(type="cuda", ranks=[0]))' in line for line in lines)


def test_names_are_counted_by_class():
    class Counted(Linear):
        pass

    assert [Counted().name for _ in range(3)] == ["Counted_0", "Counted_1", "Counted_2"]


def test_programs_can_be_read():
    graph = Linear()
    for name in ("ir", "recorded"):
        with pytest.raises(GraphError, match=f"{graph.name}.{name}: graph must be compiled first."):
            getattr(graph, name)
    graph(flow.ones(8, 4))
    text = str(graph.recorded)
    assert re.search(r"linear\(%0, %1, %2\) +# model.fc  test_repr.py:\d+", text)
    assert f"input {graph.name}_input.0.0_2" in text and "parameter model.fc.weight" in text
    assert str(graph.ir).startswith(f"{graph.name}:")
    assert graph._full_graph_proto is graph.recorded and graph._compiled_graph_proto is graph.ir


# debug


STAGES = r"""\(GRAPH:NAME:Linear\) start building graph.
\(GRAPH:NAME:Linear\) building graph Done! Cost time: \d+.\d\ds.

\(GRAPH:NAME:Linear\) start optimizing graph.
\(GRAPH:NAME:Linear\) optimizing graph Done! Cost time: \d+.\d\ds.

\(GRAPH:NAME:Linear\) start building plan.
\(GRAPH:NAME:Linear\) building plan Done! Cost time: \d+.\d\ds.

"""


def output_of(capsys, **options):
    graph = Linear()
    graph.debug(**options)
    graph(flow.ones(8, 4))
    graph(flow.ones(8, 4))
    return graph.name, capsys.readouterr().out


def test_level_0_prints_stages_with_their_times(capsys):
    name, out = output_of(capsys)
    assert re.fullmatch(STAGES.replace("NAME", name), out)
    graph = Linear(debug_v_level=0)
    graph(flow.ones(8, 4))
    assert re.fullmatch(STAGES.replace("NAME", graph.name), capsys.readouterr().out)


def test_level_1_prints_modules(capsys):
    name, out = output_of(capsys, v_level=1)
    lines = out.splitlines()
    wanted = [
        f"(INPUT:_{name}_input.0.0_2:tensor(..., size=(8, 4), dtype=miniflow.float32))",
        "(MODULE:model:Net())",
        "(MODULE:model.fc:Linear(in_features=4, out_features=3, bias=True))",
        "(INPUT:_model.fc_input.0.0_2:tensor(..., is_lazy='True', size=(8, 4), dtype=miniflow.float32))",
        "(PARAMETER:model.fc.weight:tensor(..., size=(3, 4), dtype=miniflow.float32, requires_grad=True)): ()",
        "(OUTPUT:_model.fc_output.0.0_2:tensor(..., is_lazy='True', size=(8, 3), dtype=miniflow.float32))",
        f"(OUTPUT:_{name}_output.0.0_2:tensor(..., size=(8, 3), dtype=miniflow.float32))",
    ]
    positions = [lines.index(line) for line in wanted]
    assert positions == sorted(positions) and "OPERATOR" not in out
    assert re.search(rf"\(GRAPH:{name}:Linear\) recorded \d+ operators over \d+ states.", out)


def test_level_2_prints_operators_and_level_3_programs(capsys):
    _, out = output_of(capsys, v_level=2)
    assert "(OPERATOR: model.fc-linear-0(" in out and "location=(test_repr.py:" in out and "linear(%0" not in out
    _, out = output_of(capsys, v_level=2, max_py_stack_depth=0)
    assert "(OPERATOR: model.fc-linear-0(" in out and "location" not in out
    here = r"test_repr\.py:\d+"
    for depth, wanted in ((1, here), (2, f"{here} < {here}"), (9, f"{here} < {here}")):  # forward, which build called
        _, out = output_of(capsys, v_level=2, max_py_stack_depth=depth)
        assert re.search(rf"\(OPERATOR: model\.fc-linear-0\(.*location=\({wanted}\)\)$", out, re.MULTILINE)
    _, out = output_of(capsys, v_level=3)
    assert "linear(%0, %1, %2)" in out and re.search(r"^dead_code: \d+ -> \d+ instructions, ", out, re.MULTILINE)


def test_ranks_choose_who_prints(capsys):
    for ranks in (None, 0, -1, [0, 1]):
        assert output_of(capsys, ranks=ranks)[1] != ""
    for ranks in (1, [1, 2]):
        assert output_of(capsys, ranks=ranks)[1] == ""
    assert output_of(capsys, v_level=-1)[1] == ""
    with pytest.raises(ArgumentError, match=r"debug: got v_level=4; expected -1 \(off\), 0, 1, 2 or 3"):
        Linear().debug(4)


def test_an_error_says_how_far_it_came(capsys):
    graph = Linear(nn.Linear(5, 3))
    graph.debug(0)
    with pytest.raises(flow.errors.ShapeError):
        graph(flow.ones(8, 4))
    name = graph.name
    assert capsys.readouterr().out == (
        f"(GRAPH:{name}:Linear) start building graph.\n"
        f"[ERROR](GRAPH:{name}:Linear) building graph got error: ShapeError.\n"
    )
