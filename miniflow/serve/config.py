"""`config.pbtxt`: what Triton is told of a model, as a message of protobuf with the fields that are used here.

Source: `model_config.proto` of https://github.com/triton-inference-server/common. Fields that do not stand here are
passed over; Triton reads them itself.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from miniflow.dtype import ALL
from miniflow.errors import ArgumentError
from miniflow.serialization.atomic import replacing, writing

CONFIG = "config.pbtxt"
NAMES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}
DATATYPES = {t.numpy: NAMES.get(t.name, t.name.upper()) for t in ALL}  # NumPy's dtype -> KServe's name
ENUMS = {
    "DataType": (
        "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32",
        "FP64", "STRING", "BF16",
    ),
    "Kind": ("AUTO", "GPU", "CPU", "MODEL"),
}  # fmt: skip
TENSOR = {"name": "string", "data_type": "DataType", "dims": "*int64", "reshape": "Reshape"}
MESSAGES = {  # name -> field -> type; "*" for several
    "Reshape": {"shape": "*int64"},
    "Tensor": TENSOR,
    "InstanceGroup": {"name": "string", "kind": "Kind", "count": "int32", "gpus": "*int32"},
    "DynamicBatching": {"preferred_batch_size": "*int32", "max_queue_delay_microseconds": "uint64"},
    "Value": {"string_value": "string"},
    "ParametersEntry": {"key": "string", "value": "Value"},
    "ModelConfig": {
        "name": "string", "backend": "string", "max_batch_size": "int32", "input": "*Tensor", "output": "*Tensor",
        "instance_group": "*InstanceGroup", "dynamic_batching": "DynamicBatching", "parameters": "*ParametersEntry",
    },
}  # fmt: skip


@cache
def message_class() -> type:
    """The class of `ModelConfig`."""
    file = descriptor_pb2.FileDescriptorProto(name="miniflow/config.proto", package="miniflow.serve", syntax="proto3")
    for name, values in ENUMS.items():
        prefix, numbers = {"DataType": "TYPE_", "Kind": "KIND_"}[name], enumerate(values)
        file.enum_type.add(name=name, value=[{"name": prefix + value, "number": number} for number, value in numbers])
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            added = message.field.add(name=field, number=number, label=3 if kind[0] == "*" else 1)
            kind = kind.removeprefix("*")
            if kind in ENUMS or kind in MESSAGES:
                added.type, added.type_name = 14 if kind in ENUMS else 11, f".miniflow.serve.{kind}"
            else:
                added.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("miniflow.serve.ModelConfig"))


def read_config(model: str | os.PathLike) -> Any:
    """The message in the `config.pbtxt` of a model's folder.

    Raises:
        ArgumentError: if there is none, or none that can be read; says where.
    """
    path = Path(model, CONFIG)
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message_class()(), allow_unknown_field=True)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        remedy = "mend it, or delete it: `python -m miniflow.serve prepare` writes one where there is none"
        raise ArgumentError(f"serve: cannot read {path}: {error}; {remedy}") from error


def write_config(model: str | os.PathLike, config: Any) -> None:
    """Write a message to the `config.pbtxt` of a model's folder, whole or not at all."""
    path = Path(model, CONFIG)
    with writing("serve", path), replacing(path) as temporary:
        temporary.write_text(text_format.MessageToString(config), encoding="utf-8")


def engine_of(config: Any) -> str | None:
    """What runs the model: OneFlow's parameter `xrt`, "openvino" or "tensorrt"; None for the replay."""
    return next((entry.value.string_value for entry in config.parameters if entry.key == "xrt"), None)


def datatype_of(tensor: Any) -> str:
    """The datatype of an input or output of a config as KServe calls it: "FP32"."""
    return tensor.DESCRIPTOR.file.enum_types_by_name["DataType"].values_by_number[tensor.data_type].name[5:]
