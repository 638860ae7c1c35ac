"""The small model as one that makes embeddings or ranks documents, as no small trained one can be installed."""

from pathlib import Path

import gguf

MEAN, RANK = 1, 4
"""llama.cpp's numbers of ways to make one vector of a text."""


def write_pooling_model(path: Path, weights: Path, pooling: int) -> None:
    """Writes the weights again, with this pooling."""
    reader = gguf.GGUFReader(weights)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, inner)
    writer.add_uint32("llama.pooling_type", pooling)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
