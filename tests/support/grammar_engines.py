"""XGrammar and LLGuidance for tests: whether they accept a grammar, and which texts it accepts.

XGrammar depends on torch and transformers, gigabytes that are needed only for tensors: it is installed without them
(`make test`), and uses stubs here.
"""

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import chain
from typing import Any
from unittest.mock import MagicMock

import llguidance

from support import lazy_imports


@contextmanager
def _stand_ins() -> Iterator[None]:
    import tvm_ffi  # noqa: F401 before the stand-ins, which it would take for what they stand for

    absent = [name for name in ("torch", "transformers") if name not in sys.modules]
    sys.modules.update({name: MagicMock() for name in absent})
    yield
    for name in absent:
        del sys.modules[name]


lazy_imports.defer("xgrammar", within=_stand_ins)
import xgrammar  # noqa: E402 as it is not executed here

_BYTES = [bytes([i]) for i in range(256)]


@cache
def _compiler() -> Any:
    tokens = xgrammar.TokenizerInfo([*_BYTES, b"<end>"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[256])
    return xgrammar.GrammarCompiler(tokens, cache_enabled=False)


@lru_cache(maxsize=32)
def _compiled(grammar: str) -> Any:
    load = xgrammar.Grammar.from_structural_tag if grammar.startswith("{") else xgrammar.Grammar.from_ebnf
    return _compiler().compile_grammar(load(grammar))


_BYTE_TOKENS = llguidance.LLTokenizer("byte")


class _Lark:
    """LLGuidance's matcher with the methods of XGrammar's matcher."""

    def __init__(self, grammar: str) -> None:
        self._matcher = llguidance.LLMatcher(_BYTE_TOKENS, grammar)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def accept_string(self, text: str | bytes) -> bool:
        tokens = list(text.encode() if isinstance(text, str) else text)
        taken = self._matcher.try_consume_tokens(tokens)
        if taken < len(tokens):
            self._matcher.rollback(taken)
        return bool(taken == len(tokens))

    def is_terminated(self) -> bool:
        return bool(self._matcher.is_accepting())


def matcher(grammar: str) -> Any:
    """A matcher for a structural tag, GBNF (also XGrammar's notation), or LLGuidance's Lark."""
    if grammar.startswith("%llguidance"):
        return _Lark(grammar)
    return xgrammar.GrammarMatcher(_compiled(grammar), terminate_without_stop_token=True)


def accepts(grammar: str, text: str) -> bool:
    """Whether the grammar accepts the whole text."""
    m = matcher(grammar)
    return m.accept_string(text) and m.is_terminated()


def sampled(grammar: str, chance: random.Random, likely: Sequence[str] = (), limit: int = 400) -> str | None:
    """A random text of the grammar, which prefers ends; None if it does not end within the limit.

    The `likely` texts are chosen more often than at random.
    """
    m, text = matcher(grammar), bytearray()
    while not (m.is_terminated() and chance.random() < 0.5):
        first, step = chance.randrange(256), chance.randrange(1, 256, 2)
        order: Iterable[bytes] = (_BYTES[(first + n * step) % 256] for n in range(256))
        if chance.random() < 0.4:
            order = chain((bytes([i]) for i in chance.sample(b'"}],>', 5)), order)
        if likely and chance.random() < 0.3:
            order = chain([each.encode() for each in chance.sample(likely, min(len(likely), 5))], order)
        more = next((b for b in order if m.accept_string(b)), None)
        if more is None and m.is_terminated():
            break
        if more is None or len(text) > limit:
            return None
        text += more
    written = text.decode(errors="ignore")  # some tokens contain bytes that are no complete character
    return written if accepts(grammar, written) else None
