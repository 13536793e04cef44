"""Writes the recorded batch into the shapes of inputs and outputs.

rejected by: test_exported_model
message: the first size is the text
"""

export_dynamic = export


def export(program):
    model = export_dynamic(program)
    for infos, shapes in ((model.graph.input, program.inputs), (model.graph.output, program.outputs)):
        for info in infos:
            info.type.tensor_type.shape.dim[0].dim_value = shapes[info.name][0]
    return model
