"""Serves a client's request with tool calls from a generate loop of mlx_lm. See docs/embedding.md.

python examples/mlx_loop.py mlx-community/Qwen3-4B-4bit < request.json
python examples/mlx_loop.py FOLDER anthropic_messages < request.json
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler

import dragoman


def serve(model: Any, tokenizer: Any, body: bytes, api: str) -> Iterator[bytes]:
    """Yields the bytes for the client while the model writes."""
    found = dragoman.detect_format(tokenizer.name_or_path, chat_template=tokenizer.chat_template or "")
    session = dragoman.EngineSession(body, found.format, api=api, created=int(time.time()))
    prompt = tokenizer.apply_chat_template(session.messages, add_generation_prompt=True, tokenize=False)
    asked = session.request
    settings = {
        "max_tokens": asked.max_tokens or 1024,
        "sampler": make_sampler(asked.sampling.temperature or 0.0, asked.sampling.top_p or 0.0),
    }
    for piece in stream_generate(model, tokenizer, session.complete_prompt(prompt), **settings):
        yield session.feed(piece.text)
        if session.finished:  # leaving the loop ends the generation
            break
    yield session.close(
        piece.finish_reason or "stop", dragoman.types.Usage(piece.prompt_tokens, piece.generation_tokens)
    )
    for warning in session.warnings:
        sys.stderr.write(f"{warning.code}: {warning.message}\n")


def main(folder: str, api: str = "openai_chat") -> None:
    """Serves the request of standard input on standard output."""
    model, tokenizer, *_ = load(folder)
    for piece in serve(model, tokenizer, sys.stdin.buffer.read(), api):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
