"""Models of Keras and of PaddlePaddle in miniflow: `python tools/onnx_models.py FOLDER > tools/onnx_models.md`.

Each framework is installed into a virtual environment in FOLDER, with its converter to ONNX. There it makes each model
with random weights, runs it on random images and converts it; miniflow loads the file and must compute the same. The
architectures are those that OneFlow lists as converted (oneflow_convert, "X2OneFlow model zoo").
`python tools/onnx_table.py > docs/onnx.md` copies the table into the page. A model that fails is named on stderr, and
the exit status is 1. Results are kept in FOLDER: a run that was cut off goes on with the next model.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
WORST = 1e-4  # of the range of the outputs; of EfficientNetV2, Keras itself is 5e-5 from what float64 gives
PACKAGES = {"Keras": ["tensorflow-cpu", "tf2onnx"], "PaddlePaddle": ["paddlepaddle", "paddle2onnx", "packaging"]}
MODELS = {  # framework -> OneFlow's name -> the models; none where the framework does not ship the architecture
    "Keras": {
        "VGGNet": "VGG16", "ResNet": "ResNet50", "ResNetV2": "ResNet50V2",
        "XceptionNet": "Xception", "MobileNetV1": "MobileNet", "MobileNetV2": "MobileNetV2",
        "MobileNetV3": "MobileNetV3Small MobileNetV3Large", "DenseNet": "DenseNet121",
        "EfficientNet": "EfficientNetB0 EfficientNetV2B0", "InceptionNet": "InceptionV3",
    },
    "PaddlePaddle": {
        "AlexNet": "alexnet", "VGGNet": "vgg11", "GoogleNet": "googlenet", "ResNet": "resnet18 resnet50",
        "ResNext": "resnext50_32x4d", "MobileNetV1": "mobilenet_v1", "MobileNetV2": "mobilenet_v2",
        "MobileNetV3": "mobilenet_v3_small mobilenet_v3_large", "DenseNet": "densenet121",
        "InceptionNet": "inception_v3", "ShuffleNetV2": "shufflenet_v2_x1_0", "SqueezeNet": "squeezenet1_0",
        **dict.fromkeys(["SE_ResNext", "SENet", "RegNet", "EfficientNet", "DPNNet", "DarkNet", "GhostNet", "RepVGG",
                         "XceptionNet", "Xception_DeepLab", "Vision_Transformer", "Res2Net"], ""),
    },
}  # fmt: skip
TEXT = """`python tools/onnx_models.py FOLDER > tools/onnx_models.md` writes this: the architectures that OneFlow lists
as converted, each from its framework, with random weights. The difference is the largest one between the outputs of
miniflow and those of the framework, as a part of the range of the outputs. That of EfficientNetV2B0 is rounding:
Keras, onnxruntime and miniflow are 5e-5, 4e-5 and 3e-5 from the results in float64.
"""


def images(shape: tuple[int, ...]) -> np.ndarray:
    """Two images, of about the values that pixels have."""
    return (64 * np.random.default_rng(0).standard_normal((2, *shape))).astype(np.float32)


def varied(values: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Weights; vectors, such as biases and running statistics, are made random where frameworks begin with 0 and 1."""
    return draw.uniform(0.5, 1.5, values.shape).astype(values.dtype) if values.ndim == 1 else values


def keras(name: str, path: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    """The images for a model of Keras and its outputs; it is written to the path."""
    import tensorflow as tf
    import tf2onnx

    tf.keras.utils.set_random_seed(0)
    options = {"weights": None, "classifier_activation": None, "classes": 10, "input_shape": (80, 80, 3)}  # for memory
    model, draw = getattr(tf.keras.applications, name)(**options), np.random.default_rng(0)
    model.set_weights([varied(w, draw) for w in model.get_weights()])
    x = images(options["input_shape"])
    tf2onnx.convert.from_keras(model, [tf.TensorSpec((None, *x.shape[1:]), name="x")], output_path=str(path))
    return x, [model(x, training=False).numpy()]


def paddle(name: str, path: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    """The images for a model of paddle.vision and its outputs; it is written to the path."""
    import paddle as pd

    pd.seed(0)
    model, draw = getattr(pd.vision.models, name)(), np.random.default_rng(0)
    model.eval()
    for values in model.state_dict().values():
        values.set_value(varied(values.numpy(), draw))
    x = images((3, 224, 224))
    pd.onnx.export(model, str(path.with_suffix("")), [pd.static.InputSpec([None, *x.shape[1:]], "float32", "x")])
    with pd.no_grad():
        results = model(pd.to_tensor(x))
    return x, [y.numpy() for y in (results if isinstance(results, list | tuple) else [results])]


MAKE: dict[str, Callable[..., Any]] = {"Keras": keras, "PaddlePaddle": paddle}


def make(framework: str, name: str, path: Path) -> None:
    """In the framework's environment: write the model, its input and outputs, and the versions of the packages."""
    x, outputs = MAKE[framework](name, path)
    np.savez(path.with_suffix(".npz"), x, *outputs)
    path.with_suffix(".json").write_text(json.dumps({name: version(name) for name in PACKAGES[framework][:2]}))


def environment(folder: Path, framework: str) -> Path:
    """The interpreter of an environment with the framework's packages, which is made if it is not there."""
    python = folder / framework.lower() / "bin" / "python"
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES[framework]], check=True)
    return python


def difference(path: Path) -> float:
    """The largest difference between miniflow's outputs and the framework's, as a part of the range of these."""
    import miniflow as flow

    x, *expected = np.load(path.with_suffix(".npz")).values()
    with flow.no_grad():
        results = flow.onnx.load(path)(x)
    results = [y.numpy() for y in (results if isinstance(results, tuple) else (results,))]
    if [y.shape for y in results] != [y.shape for y in expected]:
        raise ValueError(f"{path}: got outputs {[y.shape for y in results]}; expected {[y.shape for y in expected]}")
    return max(float(np.abs(y - z).max() / np.ptp(z)) for y, z in zip(results, expected, strict=True))


def measured(python: Path, folder: Path, framework: str, name: str) -> float:
    """`difference` of a model that the framework makes now; infinite for one that miniflow does not run."""
    path = folder / f"{name}.onnx"
    subprocess.run([python, __file__, folder, framework, name], check=True, stdout=sys.stderr)
    try:
        return difference(path)
    except Exception as error:  # also what would be a fault of miniflow: the table goes on with the next model
        print(f"{framework} {name}: {type(error).__name__}: {error}", file=sys.stderr)
        return math.inf
    finally:
        for file in (path, path.with_suffix(".npz")):
            file.unlink()


def table(folder: Path, framework: str) -> tuple[str, bool]:
    """The table of a framework, and whether all its models agree."""
    python, rows, good, versions = environment(folder, framework), [], True, {}
    for family, models in MODELS[framework].items():
        for name in models.split():
            result = folder / f"{name}.json"
            if not result.exists() or "worst" not in json.loads(result.read_text()):
                worst = measured(python, folder, framework, name)
                result.write_text(json.dumps({**json.loads(result.read_text()), "worst": worst}))
            versions = json.loads(result.read_text())
            worst = versions.pop("worst")
            print(f"{framework} {name}: {worst:.1e}", file=sys.stderr)
            good &= worst < WORST
            rows.append(f"| {family} | {name} | {f'{worst:.1e}' if worst < WORST else 'fails'} |\n")
    rest = [family for family, models in MODELS[framework].items() if not models]
    rest = f"\nThe framework does not ship these: {', '.join(rest)}.\n" if rest else ""
    title = ", ".join(f"{name} {number}" for name, number in versions.items())
    return (
        f"\n{framework}, {title}:\n\n| architecture | model | difference |\n|---|---|---|\n{''.join(rows)}{rest}",
        good,
    )


def main(folder: Path) -> bool:
    """Print the tables; return whether all models agree."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [table(folder, framework) for framework in PACKAGES]
    print(TEXT + "".join(text for text, _ in tables), end="")
    return all(good for _, good in tables)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if len(sys.argv) == 4:
        make(sys.argv[2], sys.argv[3], Path(sys.argv[1], f"{sys.argv[3]}.onnx"))
    else:
        sys.exit(not main(Path(sys.argv[1]).resolve()))
