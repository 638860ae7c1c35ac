"""Control tokens: strings that a tokenizer reads as the start or end of a turn, wherever they occur in a text.

    <|im_end|>  <｜User｜>  <end_of_turn>  <|turn>  [INST]  </s>  [|user|]  ]~b]  <seed:eos>

An upstream server that renders the prompt itself tokenizes the text of messages along with it. The tokens of its model
are not known to the caller, so the known tokens of all model families count. Only HTML's `<s>` also occurs in ordinary
text.

Source: the chat templates of each family, as in trl 1.16 and llama.cpp (2026-10), and the special tokens of
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


def _first_chars() -> Iterable[str]:
    for first in _FIRST:
        yield f"{first}(?={'|'.join(token.removeprefix(first) for token in _TOKENS if token.startswith(first))})"


CONTROL_TOKEN_START: Final = re.compile("|".join(_first_chars()))
"""Matches the first character of each control token."""


def find_control_tokens(text: str) -> set[str]:
    """Returns the control tokens in a text, such as a chat template."""
    return {match[0] for match in _TOKEN.finditer(text)}
