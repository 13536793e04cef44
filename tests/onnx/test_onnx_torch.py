"""Models that torch.onnx.export writes: their results are those of onnxruntime."""

from __future__ import annotations

import io
import warnings

import onnx
import pytest
from models import needed, torch, vary

import miniflow as flow
from tests.onnx.test_onnx_models import assert_close, run, run_onnxruntime

pytestmark = pytest.mark.peers


def cnn() -> tuple:
    layers = torch.nn
    model = layers.Sequential(
        layers.Conv2d(3, 8, 3, stride=2, padding=1), layers.BatchNorm2d(8), layers.SiLU(), layers.MaxPool2d(2),
        layers.Conv2d(8, 8, 3, groups=8, padding="same"), layers.GroupNorm(2, 8), layers.Hardswish(),
        layers.ConvTranspose2d(8, 4, 2, stride=2), layers.Upsample(scale_factor=2, mode="bilinear"), layers.PReLU(4),
        layers.AdaptiveAvgPool2d(2), layers.Flatten(), layers.Linear(16, 5), layers.LogSoftmax(-1),
    )  # fmt: skip
    return model, torch.randn(2, 3, 32, 28)


def torchvision_model(name: str, **options) -> tuple:
    return needed("torchvision").models.get_model(name, **options), torch.randn(1, 3, 64, 64)


class LSTM(torch.nn.Module):
    def __init__(self, kind=torch.nn.LSTM):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(11, 6), torch.nn.Linear(10, 3)
        self.rnn = kind(6, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


class GPTBlock(torch.nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.embed, self.position = torch.nn.Embedding(13, width), torch.nn.Embedding(20, width)
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(approximate="tanh"), torch.nn.Linear(4 * width, width)
        )

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.embed(tokens) + self.position(torch.arange(t))
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        x = x + self.mlp(self.norm2(x))
        return x @ self.embed.weight.T


MODELS = {
    "cnn": cnn,
    "mobilenet_v2": lambda: torchvision_model("mobilenet_v2"),
    "vit_b_32": lambda: torchvision_model("vit_b_32", image_size=64),
    "swin_t": lambda: torchvision_model("swin_t"),
    "lstm": lambda: (LSTM(), torch.randint(11, (2, 7))),
    "gru": lambda: (LSTM(torch.nn.GRU), torch.randint(11, (2, 7))),
    "gpt_block": lambda: (GPTBlock(), torch.randint(13, (2, 9))),
}


def export(model: torch.nn.Module, inputs: torch.Tensor, dynamo: bool, **keywords) -> onnx.ModelProto:
    """What torch writes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.eval(), (inputs,), None if dynamo else file, dynamo=dynamo, **{"verbose": False, **keywords}
        )
    return program.model_proto if dynamo else onnx.load_model_from_string(file.getvalue())


@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_torch(name, dynamo):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    vary(model)
    with torch.no_grad():
        expected = [model.eval()(inputs).numpy()]
    exported = export(model, inputs, dynamo)
    module = flow.onnx.load(exported)
    results = run(module, inputs.numpy())
    assert_close(results, run_onnxruntime(exported, inputs.numpy()))
    assert_close(results, expected)
