"""GGUF files of a few bytes."""

import struct

FORMS = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i")}
FORMS |= {"f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def number(kind: str, value: float) -> bytes:
    code, form = FORMS[kind]
    return struct.pack(f"<I{form}", code, value)


def text(value: str) -> bytes:
    return struct.pack("<I", 8) + string(value)


def array(kind: str, values: list) -> bytes:
    if kind == "string":
        return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(string, values))
    code, form = FORMS[kind]
    return struct.pack(f"<IIQ{len(values)}{form}", 9, code, len(values), *values)


def gguf(fields: dict[str, bytes]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields))
    return head + b"".join(string(k) + v for k, v in fields.items())


TOKENS = ["<unk>", "<s>", "</s>", "a", "<|im_end|>"]


WHOLE = {
    "general.architecture": text("llama"),
    "general.name": text("Tiny"),
    "llama.context_length": number("u32", 4096),
    "llama.scale": number("f32", 1.5),
    "tokenizer.ggml.tokens": array("string", TOKENS),
    "tokenizer.ggml.scores": array("f32", [0.0] * 5),
    "tokenizer.ggml.token_type": array("i32", [2, 3, 3, 1, 4]),
    "tokenizer.ggml.bos_token_id": number("u32", 1),
    "tokenizer.ggml.eos_token_id": number("u32", 4),
    "tokenizer.chat_template": text("{{ messages }}"),
}
