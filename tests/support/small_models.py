"""The tests' small model written again: with a pooling (no small trained model can be installed), quantized anew,
or with fewer layers."""

from pathlib import Path

import gguf
import numpy

MEAN, RANK = 1, 4
"""llama.cpp's numbers of ways to make one vector of a text."""


def write_pooling_model(path: Path, weights: Path, pooling: int) -> None:
    """Writes the weights again, with this pooling."""
    reader = gguf.GGUFReader(weights)
    writer = _copy_fields(reader, path)
    writer.add_uint32("llama.pooling_type", pooling)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    _write(writer)


def write_quantized_model(path: Path, weights: Path) -> None:
    """Writes the weights again, with 16 bits for each number of the embeddings."""
    reader = gguf.GGUFReader(weights)
    writer = _copy_fields(reader, path)
    for tensor in reader.tensors:
        if tensor.name == "token_embd.weight":
            numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, numbers.astype(numpy.float16))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    _write(writer)


def write_short_model(path: Path, weights: Path, layers: int) -> None:
    """Writes the weights again, with the first layers only: its text is nonsense, its tokens are the same."""
    reader = gguf.GGUFReader(weights)
    writer = _copy_fields(reader, path, "llama.block_count")
    writer.add_block_count(layers)
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) < layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    _write(writer)


def _copy_fields(reader: gguf.GGUFReader, path: Path, *omitted: str) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name in omitted:
            continue
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, inner)
    return writer


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
