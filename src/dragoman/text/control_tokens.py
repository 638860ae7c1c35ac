"""Control tokens: what a tokenizer takes for the end of a turn, or the beginning of one, wherever it stands in a text.

    <|im_end|>  <｜User｜>  <end_of_turn>  <|turn>  [INST]  </s>  [|user|]  ]~b]  <seed:eos>

A server that renders the prompt itself tokenises whatever stands in a message's text along with it. Which tokens its
model has is not known there, so all that are known of any family count. HTML's `<s>` is the one that stands in ordinary
text too.

Source: the chat templates of each family, as trl 1.16 and llama.cpp (2026-10) have them, and the special tokens of
mistral-common 1.8, `SpecialTokens`.
"""

import re
from collections.abc import Iterable
from typing import Final

_TOKENS: Final = (
    r"<\|[^|<>\s]{1,40}\|>",  # ChatML, Llama 3 and 4, Phi, GLM, Cohere, harmony, Kimi, Granite and most others
    r"<｜[^｜<>\s]{1,40}｜>",  # DeepSeek, Hunyuan, Step
    r"<\|/?\w{1,30}>",  # Gemma 4
    r"<\w{1,30}\|>",
    r"</?(?:start|end|begin|beginning)_of_\w{1,20}>",  # Gemma, MiniMax M1
    r"</?s>",  # Llama 2, Mistral
    r"<</?SYS>>",
    r"<(?:bos|eos|pad|unk|sop|eop)>",  # Gemma, GLM
    r"<seed:\w{1,20}>",  # Seed-OSS
    r"<SPECIAL_\d{1,4}>",  # Nemotron
    r"<(?:unused|reserved_|extra_id_)\d{1,5}>",
    r"\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS)\]",  # Mistral
    r"\[[gs]MASK\]",  # GLM
    r"\[\|\w{1,20}\|\]",  # EXAONE
    r"\[unused\d{1,4}\]",  # Pangu
    r"\[e~\[",  # MiniMax M2 and M3
    r"\]~b\]",
    r"\]~!b\[",
    r"\]<\]minimax\[>\[",
)
_TOKEN: Final = re.compile("|".join(_TOKENS))
_FIRST: Final = {"<": "<", r"\[": "[", r"\]": "]"}


def _beginnings() -> Iterable[str]:
    for written in _FIRST:
        yield f"{written}(?={'|'.join(token.removeprefix(written) for token in _TOKENS if token.startswith(written))})"


CONTROL: Final = re.compile("|".join(_beginnings()))
"""The first character of each."""


def control_tokens(text: str) -> set[str]:
    """Those that stand in the text, such as a chat template."""
    return {found[0] for found in _TOKEN.finditer(text)}
