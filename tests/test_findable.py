"""A function is in the file that someone who knows PyTorch's documentation opens first."""

import inspect
from pathlib import Path

import pytest

import miniflow as flow
from miniflow.nn import functional as F

FILES = {
    "creation": "zeros ones full empty arange linspace eye tensor from_numpy zeros_like",
    "random": "rand randn randint randperm normal bernoulli multinomial",
    "arithmetic": "add sub mul div abs clamp floor round sign remainder",
    "exponential": "exp log sqrt pow log1p",
    "trigonometry": "sin cos atan2",
    "special_functions": "erf lgamma",
    "activation": "relu gelu sigmoid tanh silu leaky_relu",
    "softmax": "softmax log_softmax",
    "comparison": "eq isnan maximum allclose logical_and",
    "reduction": "sum mean max argmax logsumexp all prod amin",
    "statistics": "var std median quantile norm",
    "scans": "cumsum cumprod",
    "sorting": "sort topk argsort unique searchsorted",
    "shape": "reshape view squeeze unsqueeze flatten expand tile",
    "permute": "permute transpose flip roll",
    "joining": "cat stack split chunk",
    "indexing": "where masked_fill masked_select nonzero",
    "gather": "gather index_select",
    "scatter": "scatter scatter_add",
    "diagonal": "diagonal diag tril triu",
    "matmul": "matmul bmm addmm linear",
    "einsum": "einsum",
    "convolution": "conv2d conv_transpose2d unfold",
    "pooling": "max_pool2d avg_pool2d adaptive_max_pool2d",
    "normalization": "layer_norm batch_norm group_norm normalize",
    "losses": "cross_entropy mse_loss huber_loss kl_div",
    "dropout": "dropout",
    "embedding": "embedding embedding_bag one_hot",
    "attention": "scaled_dot_product_attention",
    "padding": "pad",
    "vision": "interpolate pixel_shuffle",
}
OPS = Path(flow.__file__).parent / "ops"


@pytest.mark.parametrize("file", FILES)
def test_functions_are_in_the_file_of_their_section(file):
    names = FILES[file].split()
    functions = [getattr(F, name, None) or getattr(flow, name) for name in names]
    found = {name: Path(inspect.getsourcefile(inspect.unwrap(f))) for name, f in zip(names, functions, strict=True)}
    assert found == dict.fromkeys(names, OPS / f"{file}.py")


def test_no_file_of_operators_is_long():
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in OPS.glob("*.py")}
    assert len(lines) > 40 and {name: n for name, n in lines.items() if n > 600} == {}


def test_the_root_holds_what_users_know():
    public = {path.stem for path in OPS.parent.glob("*.py")}
    assert public == {
        "__init__", "__main__", "cuda", "device", "distributions", "dtype", "errors", "linalg", "mock_torch",
        "profiler", "sbp", "special", "tensor", "typing", "warm",
    }  # fmt: skip
