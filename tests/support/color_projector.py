"""A projector for SmolLM2 that tells red, green and blue apart: made by hand, as no small trained one can be installed.

Its encoder is the mean colour of each of four tiles of an image. Its projection is the embedding of the word for that
colour, taken from the model's own weights, so the model reads "red red red red" in place of a red image.
"""

from pathlib import Path

import gguf
import numpy as np

_WIDTH, _TILE, _IMAGE = 32, 32, 64
_GAIN = 0.3
"""The encoder's output is normalized; this gives embeddings about the length of the model's own."""


def write_projector(path: Path, weights: Path) -> None:
    """Writes the projector for the model in `weights`."""
    words = _embeddings(weights, ("Ġred", "Ġgreen", "Ġblue"))
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_string("general.type", "mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "mlp")
    sizes = {"image_size": _IMAGE, "patch_size": _TILE, "embedding_length": _WIDTH, "feed_forward_length": _WIDTH}
    sizes |= {"projection_dim": words.shape[1], "block_count": 1, "attention.head_count": 1}
    for name, size in sizes.items():
        writer.add_uint32(f"clip.vision.{name}", size)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5] * 3)
    for name, values in _tensors(words).items():
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(words: np.ndarray) -> dict[str, np.ndarray]:
    square, zeros = np.zeros((_WIDTH, _WIDTH)), np.zeros(_WIDTH)
    means = np.zeros((_WIDTH, 3, _TILE, _TILE))
    for color in range(3):  # each mean also with the opposite sign, so that the normalization keeps their proportions
        means[color, color], means[color + 3, color] = 1 / _TILE**2, -1 / _TILE**2
    tensors = {"v.patch_embd.weight": means, "v.patch_embd.bias": zeros}
    tensors["v.position_embd.weight"] = np.zeros(((_IMAGE // _TILE) ** 2, _WIDTH))
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        tensors |= {f"v.blk.0.{name}.weight": square, f"v.blk.0.{name}.bias": zeros}
    for name in ("v.blk.0.ln1", "v.blk.0.ln2", "v.post_ln"):
        tensors |= {f"{name}.weight": np.ones(_WIDTH), f"{name}.bias": zeros}
    project = np.zeros((words.shape[1], _WIDTH))
    project[:, :3] = words.T * _GAIN
    tensors |= {"mm.0.weight": np.eye(_WIDTH), "mm.0.bias": zeros}
    return tensors | {"mm.2.weight": project, "mm.2.bias": np.zeros(words.shape[1])}


def _embeddings(weights: Path, words: tuple[str, ...]) -> np.ndarray:
    reader = gguf.GGUFReader(weights)
    field = reader.fields["tokenizer.ggml.tokens"]
    vocabulary = [bytes(field.parts[index]).decode() for index in field.data]
    table = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    rows = table.data[[vocabulary.index(word) for word in words]]
    return np.asarray(gguf.quants.dequantize(rows, table.tensor_type))
