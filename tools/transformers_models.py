"""Architectures of Hugging Face's transformers on miniflow beside PyTorch, for docs/pytorch_programs.md.

    pip install "transformers==4.57.1" torch          # or transformers==4.40.2
    python tools/transformers_models.py [architecture ...]

Each is made with a small configuration and weights drawn from the names of its parameters, once under PyTorch and once
under `miniflow.mock_torch`. Printed are the largest differences of the outputs, relative to the largest of them, and of
the squared norms of the gradients of all parameters.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

TEXT = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
}  # fmt: skip
GPT = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 2}
SEQUENCES = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip
IMAGE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
CLIP = {"text_config": {**TEXT, "eos_token_id": 2}, "vision_config": {**IMAGE, "num_hidden_layers": 1}}
ONE_HEAD = {**TEXT, "num_key_value_heads": 1}
DISTIL = {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
NEO = {
    "vocab_size": 100, "hidden_size": 32, "num_layers": 2, "attention_types": [[["global", "local"], 1]],
    "num_heads": 2, "intermediate_size": 64, "window_size": 4,
}  # fmt: skip
OPT = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64,
    "word_embed_proj_dim": 32,
}  # fmt: skip
T5 = {
    "vocab_size": 100, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2,
    "decoder_start_token_id": 0,
}  # fmt: skip
SEGFORMER = {
    "hidden_sizes": [16, 32], "depths": [1, 1], "num_encoder_blocks": 2, "sr_ratios": [2, 1], "patch_sizes": [7, 3],
    "num_attention_heads": [1, 2], "strides": [4, 2], "mlp_ratios": [2, 2],
}  # fmt: skip
WAV2VEC2 = {
    **TEXT, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False,
}  # fmt: skip
PERCEIVER = {
    "d_latents": 32, "d_model": 32, "num_latents": 4, "num_self_attends_per_block": 1, "num_blocks": 1,
    "num_self_attention_heads": 2, "num_cross_attention_heads": 2,
}  # fmt: skip
# name -> class, options of its configuration, inputs
MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "Bert": ("BertForMaskedLM", TEXT, "language"),
    "Roberta": ("RobertaForMaskedLM", TEXT, "language"),
    "XLMRoberta": ("XLMRobertaForMaskedLM", TEXT, "language"),
    "Electra": ("ElectraForMaskedLM", {**TEXT, "embedding_size": 32}, "language"),
    "Albert": ("AlbertForMaskedLM", {**TEXT, "embedding_size": 16}, "language"),
    "DistilBert": ("DistilBertForMaskedLM", DISTIL, "language"),
    "Deberta": ("DebertaForMaskedLM", TEXT, "language"),
    "DebertaV2": (
        "DebertaV2ForMaskedLM", {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}, "language"
    ),
    "MPNet": ("MPNetForMaskedLM", TEXT, "language"),
    "Longformer": ("LongformerModel", {**TEXT, "attention_window": [4, 4]}, "text"),
    "BigBird": ("BigBirdModel", {**TEXT, "attention_type": "original_full"}, "text"),
    "GPT2": ("GPT2LMHeadModel", GPT, "language"),
    "GPTNeo": ("GPTNeoForCausalLM", NEO, "language"),
    "GPTNeoX": ("GPTNeoXForCausalLM", TEXT, "language"),
    "GPTJ": ("GPTJForCausalLM", {**GPT, "rotary_dim": 8}, "language"),
    "CodeGen": ("CodeGenForCausalLM", {**GPT, "n_head": 4, "rotary_dim": 4}, "language"),
    "OPT": ("OPTForCausalLM", OPT, "language"),
    "Bloom": ("BloomForCausalLM", {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 2}, "language"),
    "Llama": ("LlamaForCausalLM", TEXT, "language"),
    "Mistral": ("MistralForCausalLM", ONE_HEAD, "language"),
    "Mixtral": ("MixtralForCausalLM", {**ONE_HEAD, "num_local_experts": 4}, "language"),
    "Gemma": ("GemmaForCausalLM", {**ONE_HEAD, "head_dim": 16}, "language"),
    "Phi": ("PhiForCausalLM", TEXT, "language"),
    "Qwen2": ("Qwen2ForCausalLM", ONE_HEAD, "language"),
    "Falcon": ("FalconForCausalLM", TEXT, "language"),
    "Cohere": ("CohereForCausalLM", TEXT, "language"),
    "Olmo": ("OlmoForCausalLM", TEXT, "language"),
    "Mamba": ("MambaForCausalLM", {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2}, "unmasked"),
    "T5": ("T5ForConditionalGeneration", T5, "language"),
    "Bart": ("BartForConditionalGeneration", SEQUENCES, "language"),
    "Pegasus": ("PegasusForConditionalGeneration", SEQUENCES, "language"),
    "ViT": ("ViTModel", IMAGE, "image"),
    "DeiT": ("DeiTModel", IMAGE, "image"),
    "Beit": ("BeitModel", IMAGE, "image"),
    "Swin": (
        "SwinModel",
        {"embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2], "image_size": 32, "patch_size": 4, "window_size": 4},
        "image",
    ),
    "ConvNext": ("ConvNextModel", {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}, "image"),
    "Segformer": ("SegformerModel", SEGFORMER, "image"),
    "ResNet": ("ResNetModel", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}, "image"),
    "Dinov2": ("Dinov2Model", {**IMAGE, "image_size": 32, "patch_size": 16}, "image"),
    "CLIP": ("CLIPModel", CLIP, "pairs"),
    "Perceiver": ("PerceiverModel", PERCEIVER, "vectors"),
    "Wav2Vec2": ("Wav2Vec2Model", WAV2VEC2, "sound"),
    "Whisper": (
        "WhisperModel",
        {
            **SEQUENCES, "max_source_positions": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        "speech",
    ),
}  # fmt: skip


def inputs_of(kind: str, torch: Any) -> dict[str, Any]:
    """The arguments of a model."""
    draw = np.random.default_rng(0)
    ids = torch.from_numpy(draw.integers(3, 90, (2, 12)))
    mask = torch.from_numpy(np.arange(24).reshape(2, 12) < 20).long()
    normal = [torch.from_numpy(draw.standard_normal(shape).astype(np.float32))
              for shape in ((2, 3, 32, 32), (1, 4000), (1, 80, 64), (2, 6, 32))]  # fmt: skip
    text = {"input_ids": ids, "attention_mask": mask}
    return {
        "text": text,
        "language": {**text, "labels": ids},
        "unmasked": {"input_ids": ids, "labels": ids},
        "image": {"pixel_values": normal[0]},
        "pairs": {"input_ids": ids, "pixel_values": normal[0], "return_loss": True},
        "sound": {"input_values": normal[1]},
        "speech": {"input_features": normal[2], "decoder_input_ids": ids[:1]},
        "vectors": {"inputs": normal[3]},
    }[kind]


def fill(model: Any, torch: Any) -> None:
    """Give each parameter numbers that depend on its name alone."""
    for name, parameter in model.named_parameters():
        draw = np.random.default_rng(zlib.crc32(name.encode()))
        values = draw.uniform(-0.15, 0.15, tuple(parameter.shape)) + ("norm" in name.lower() and "weight" in name)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.asarray(values, np.float32)))


def tensors_in(output: Any, torch: Any) -> list[Any]:
    """The floating tensors of an output, from left to right."""
    if isinstance(output, torch.Tensor):
        return [output] if output.dtype.is_floating_point else []
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors_in(part, torch)]


def compute(name: str) -> dict[str, Any]:
    """Outputs and squared norms of gradients of an architecture, under what `import torch` gives."""
    import torch
    import transformers

    class_name, options, kind = MODELS[name]
    model = getattr(transformers, class_name)(getattr(transformers, f"{name}Config")(**options)).eval()
    fill(model, torch)
    output = model(**inputs_of(kind, torch))
    found = tensors_in(dict(output), torch)
    loss = output.get("loss")
    (sum((y * y).mean() for y in found if y.requires_grad) if loss is None else loss).backward()
    gradients = {n: p.grad.double().square().sum().item() for n, p in model.named_parameters() if p.grad is not None}
    return {"outputs": [y.detach().float().numpy().ravel().tolist() for y in found], "gradients": gradients}


def write(names: list[str], path: str) -> None:
    """Compute some architectures into a file; of one that fails, the error."""
    results = {}
    for name in names:
        try:
            results[name] = compute(name)
        except Exception as error:  # said in the table
            results[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    Path(path).write_text(json.dumps(results))


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """A row of the table, from the second column on."""
    for library, result in (("PyTorch", theirs), ("miniflow", ours)):
        if "error" in result:
            return f"{library}: {result['error']}"
    if list(map(len, ours["outputs"])) != list(map(len, theirs["outputs"])):
        return "other outputs"
    if ours["gradients"].keys() != theirs["gradients"].keys():
        return "gradients of other parameters"
    pairs = [(np.array(a), np.array(b)) for a, b in zip(ours["outputs"], theirs["outputs"], strict=True)]
    of_outputs = max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs)
    least = 1e-5 * max(theirs["gradients"].values())
    of_gradients = max(abs(ours["gradients"][n] - g) / max(g, least) for n, g in theirs["gradients"].items())
    return f"{of_outputs:.0e} | {of_gradients:.0e}"


def main(names: list[str]) -> None:
    """Run both and print the table."""
    if unknown := set(names) - MODELS.keys():
        sys.exit(f"got {', '.join(sorted(unknown))}; expected some of {', '.join(MODELS)}")
    names = names or list(MODELS)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for library, options in (("miniflow", ["-m", "miniflow.mock_torch"]), ("torch", [])):
            path = f"{folder}/{library}.json"
            subprocess.run([sys.executable, *options, __file__, "--write", path, *names], check=True)
            found.append(json.loads(Path(path).read_text()))
    print("| architecture | outputs | gradients |\n| --- | --- | --- |")
    for name in names:
        print(f"| {name} | {differences(found[0][name], found[1][name])} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(sys.argv[3:], sys.argv[2])
    else:
        main(sys.argv[1:])
