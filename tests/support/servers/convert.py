"""The small model's weights as Hugging Face files, for servers that do not read GGUF: mlx_lm.server, vLLM, exo.

    python -m support.servers.convert    (in tests/) prints the folder, made next to the weights unless it exists

The weights are converted back to 16-bit floats: bfloat16, with which MLX on a CPU is twice as fast as with float16.
Sources: the names of the tensors, https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/tensor_mapping.py; the
order of the rows of q and k, `permute` of https://github.com/ggml-org/llama.cpp/blob/master/conversion/llama.py; the
tokenizer's parts, `smollm` in https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp; the file of
weights, https://huggingface.co/docs/safetensors (2026-11).
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from dragoman.backends.embedded import weights

MODEL: Final = "smollm2-135m"
VERSION: Final = 1
"""Version of the conversion; a new version creates a new folder."""
_TENSORS: Final = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL: Final = 3
"""The type of a token that is never text, by gguf's `TokenType`."""


def folder() -> Path:
    """Returns the folder, and creates the files if they do not exist.

    Raises: ConfigError: the weights are not on this machine.
    """
    source = weights.find_weights(MODEL)
    made = source.with_name(f"{MODEL}-hf{VERSION}")
    if not made.is_dir():
        half = Path(tempfile.mkdtemp(dir=source.parent))
        try:
            _write(gguf.GGUFReader(source), half)
            half.rename(made)
        except OSError:  # another process created it first
            if not made.is_dir():
                raise
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return made


def _write(reader: gguf.GGUFReader, to: Path) -> None:
    def said(name: str) -> Any:
        return reader.fields[name].contents()

    heads = {"attn_q": said("llama.attention.head_count"), "attn_k": said("llama.attention.head_count_kv")}
    tensors = dict(_tensor(each, heads) for each in reader.tensors)
    _save(tensors, to / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
    (to / "model.safetensors.index.json").write_text(json.dumps(index))  # exo needs one for a single file too
    ids = {f"{name}_token_id": said(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": said("llama.embedding_length"),
        "intermediate_size": said("llama.feed_forward_length"),
        "max_position_embeddings": said("llama.context_length"),
        "num_attention_heads": heads["attn_q"],
        "num_hidden_layers": said("llama.block_count"),
        "num_key_value_heads": heads["attn_k"],
        "rms_norm_eps": round(said("llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": said("llama.rope.freq_base"),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "vocab_size": len(said("tokenizer.ggml.tokens")),
        **ids,
    }
    (to / "config.json").write_text(json.dumps(config, indent=1))
    (to / "generation_config.json").write_text(json.dumps({**ids, "do_sample": False}))
    tokens = said("tokenizer.ggml.tokens")
    _tokenizer(tokens, said("tokenizer.ggml.token_type"), said("tokenizer.ggml.merges")).save(
        str(to / "tokenizer.json")
    )
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[ids["bos_token_id"]],
        "eos_token": tokens[ids["eos_token_id"]],
        "pad_token": tokens[ids["eos_token_id"]],
        "model_max_length": said("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": said("tokenizer.chat_template"),
    }
    (to / "tokenizer_config.json").write_text(json.dumps(told))
    (to / "chat_template.jinja").write_text(said("tokenizer.chat_template"))


def _tensor(tensor: gguf.ReaderTensor, heads: dict[str, int]) -> tuple[str, Any]:
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
    *block, kind, _ = tensor.name.split(".")
    if kind in heads:  # llama.cpp interleaves the two halves of each head's rotations
        rows, columns = values.shape
        values = values.reshape(heads[kind], rows // heads[kind] // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    if kind == "output":
        name = "lm_head"
    else:
        name = ".".join(["model", *(["layers", block[1]] if block else []), _TENSORS[kind]])
    return f"{name}.weight", _halved(values)


def _halved(values: Any) -> Any:
    """The upper halves of 32-bit floats, rounded to the nearest, which is what bfloat16 is."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _save(tensors: dict[str, Any], to: Path) -> None:
    """Writes the file directly, since numpy has no bfloat16 and so safetensors' numpy writer does not support it."""
    head: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, values in tensors.items():
        head[name] = {"dtype": "BF16", "shape": values.shape, "data_offsets": (at, at := at + values.nbytes)}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with to.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(values.tobytes())


def _tokenizer(tokens: list[str], kinds: list[int], merges: list[str]) -> Tokenizer:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


if __name__ == "__main__":
    print(folder())
