"""`config.pbtxt`: what Triton is told of a model, as a message of protobuf with the fields that are used here.

Source: `model_config.proto` of https://github.com/triton-inference-server/common. Fields that do not stand here are
passed over; Triton reads them itself.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory, text_format

from miniflow.dtype import ALL
from miniflow.errors import ArgumentError
from miniflow.serialization.atomic import replacing, writing

CONFIG = "config.pbtxt"
NAMES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}
DATATYPES = {t.numpy: NAMES.get(t.name, t.name.upper()) for t in ALL}  # NumPy's dtype -> KServe's name
ENUMS = {
    "DataType": ("TYPE_INVALID", *(f"TYPE_{name}" for name in DATATYPES.values()), "TYPE_STRING"),
    "Kind": ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"),
}
MESSAGES = {  # name -> fields, as the language of protobuf declares them
    "Tensor": "string name; DataType data_type; repeated int64 dims",
    "InstanceGroup": "Kind kind; int32 count; repeated int32 gpus",
    "DynamicBatching": "uint64 max_queue_delay_microseconds",
    "Value": "string string_value",
    "ParametersEntry": "string key; Value value",
    "ModelConfig": "string backend; int32 max_batch_size; repeated Tensor input; repeated Tensor output; "
    "repeated InstanceGroup instance_group; DynamicBatching dynamic_batching; repeated ParametersEntry parameters",
}


@cache
def message_class() -> type:
    """The class of `ModelConfig`. Numbers of fields and values are not those of Triton: text does not have them."""
    file = descriptor_pb2.FileDescriptorProto(name="miniflow/config.proto", package="miniflow.serve", syntax="proto3")
    for name, values in ENUMS.items():
        file.enum_type.add(name=name, value=[{"name": value, "number": i} for i, value in enumerate(values)])
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, declaration in enumerate(fields.split("; "), 1):
            *repeated, kind, field = declaration.split()
            typed = {"type_name": f".miniflow.serve.{kind}"} if kind[0].isupper() else {"type": f"TYPE_{kind.upper()}"}
            message.field.add(name=field, number=number, label=3 if repeated else 1, **typed)
    return message_factory.GetMessages([file])["miniflow.serve.ModelConfig"]


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


def device_of(config: Any) -> str:
    """Where the instances of a model run: the CPU, or a GPU if the config says so."""
    groups = [group for group in config.instance_group if ENUMS["Kind"][group.kind] == "KIND_GPU"]
    return f"cuda:{[*groups[0].gpus, 0][0]}" if groups else "cpu"


def datatype_of(tensor: Any) -> str:
    """The datatype of an input or output of a config as KServe calls it: "FP32"."""
    return ENUMS["DataType"][tensor.data_type].removeprefix("TYPE_")
