"""Prompt trimming for small models: shortens descriptions of tools and the agent's system prompt, in named tiers.

    off         no change
    tools       of each tool's description the first sentence, and of each parameter's a short one
    aggressive  parameters without descriptions; of the system prompt no examples, of long lines the first sentence, of
                long sections the beginning
    max         only required parameters; of the system prompt the first sentence, facts such as the folder or the date,
                and a project's own instructions, all of it before the conversation, with a sentence added on when to
                call a tool; in the conversation the lines of `hints`

A tool keeps its name and kind, and a schema keeps all that decides validity: names, types, required members, choices.
The user's text is never cut, and calls and results stay as they are. Of the system prompt these parts stay: everything
from the line on that begins a project's own instructions (`_PROJECT_START`), lines that begin with a tag, short lines,
named list items (skills, kinds of agents) with the file or tools at their end, and sentences that forbid or emphasize.

The same text is always cut in the same way, so a trimmed conversation grows only at its end. docs/local.md shows what
these rules leave of real agents' requests.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.core.events import Notice
from dragoman.core.messages import SYSTEM_ROLES, JsonText, Message, Part, Request, Text, Tool, tools_before_conversation
from dragoman.core.token_estimate import TokenEstimator
from dragoman.prompting import hints
from dragoman.schema.keywords import LISTED, NAMED, SINGLE

MAX_TOOL_CHARS: Final = 200
"""Maximum length of a tool's description whose first sentence is longer."""
MAX_PARAMETER_CHARS: Final = 80
MAX_LINE_CHARS: Final = 200
"""A longer line of the system prompt is cut to its first sentence."""
MAX_SECTION_CHARS: Final = 1200
"""After this length of a section, only short lines and named list items stay."""
SHORT_LINE_CHARS: Final = 100
"""Length of a line that stays because it can be a fact: a date, a folder, a name."""

_PROJECT_START: Final = re.compile(
    r"(Contents of |Instructions from: |--- Context from: |# [\w.]+\.md instructions"
    r"|(## )?(?i:user's custom instructions)|# Project Context|# claudeMd"
    r"|<(INSTRUCTIONS|user_instructions|project_instructions)>)"
)
"""As Claude Code 2.1.329, OpenCode 1.18.33 and Codex 0.169.0 send them (2026-11); Gemini CLI and Qwen Code, Cline, Roo
Code and Zed, Hermes and OpenClaw as in their sources."""
_SENTENCE: Final = re.compile(r"(?<![A-Z])(?<!e\.g)(?<!i\.e)(?<!\beg)(?<!\bie)(?<!etc)[.!?](?=\s+[^a-z\s])|[。！？]")
_EMPHASIS: Final = re.compile(r"\b(IMPORTANT|NEVER|MUST)\b|^(Never|Do not|Don't|Refuse)\b")
_TRAILING_PARENTHESES: Final = re.compile(r" \([^()]{1,120}\)$")
"""The parentheses at the end of a list item: its file, its tools."""
_EXAMPLE: Final = re.compile(r"^<([\w-]*example[\w-]*)>\n.*?^</\1>\n?|^```.*?^```[ ]*$\n?", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"#{1,6} ")
_NAMED_ITEM: Final = re.compile(r"\s*[-*] [`*]*[\w./-]+[`*]*:")
"""An item such as `- code-review: …`"""
_FACT: Final = re.compile(r"\s*+[-*]?\s*+[A-Z][\w '()/-]{1,40}: \S|.*\b\d{4}-\d\d-\d\d\b")
"""A line such as `- Platform: linux` or `Today's date is 2026-11-22.`"""
HINT: Final = "Call a tool only if the user asks for something that needs it; otherwise answer in words."
FILES_HINT: Final = (
    "To see or change files, or to run a command, call a tool: you cannot answer without it. "
    "Greetings and small talk you answer in words."
)
"""Replaces `HINT` if tools for files or commands are offered: with `HINT`, Qwen2.5-Coder 1.5B named the command instead
of calling the tool (docs/local.md)."""
_FOR_FILES: Final = re.compile(r"\b(files?|commands?)\b", re.IGNORECASE)
MAX_FACTS_CHARS: Final = 800
"""Characters of a message's facts that stay in the last tier."""
_DESCRIPTIVE_KEYWORDS: Final = frozenset({"description", "title", "examples", "$comment"})
_DEPENDENCY_KEYWORDS: Final = (
    "anyOf",
    "allOf",
    "oneOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "minProperties",
)
"""Keywords of a schema that can make an optional parameter necessary."""


_OMITTED: Final = "; tools that the model is not offered: "
_WARNING_TIER: Final = re.compile(r"trimmed \((\w+)\)")


class TrimmedRequest(NamedTuple):
    """A trimmed request."""

    request: Request
    saved_tokens: int
    """Estimated number of tokens saved."""
    omitted_tools: tuple[str, ...] = ()
    """Names of tools that the model is not offered."""

    def warnings(self, tier: str) -> tuple[Notice, ...]:
        """Returns the warning about the trimming by this tier; empty if nothing was saved."""
        message = f"tool descriptions and system text were trimmed ({tier}), about {self.saved_tokens} tokens"
        if self.omitted_tools:
            message += f"{_OMITTED}{', '.join(self.omitted_tools)}"
        return (Notice("prompt_trimmed", message),) if self.saved_tokens else ()


def parse_warning(message: str) -> tuple[str, tuple[str, ...]]:
    """Returns the tier and the omitted tools that the message of the warning `prompt_trimmed` names."""
    match, (_, _, omitted) = _WARNING_TIER.search(message), message.partition(_OMITTED)
    return match[1] if match else "off", tuple(omitted.split(", ")) if omitted else ()


class Tier(NamedTuple):
    """What a tier does to each kind of text."""

    tool_description: Callable[[str], str]
    """Shortens a tool's description."""
    parameter_description: Callable[[str], str]
    """Shortens a description in a schema; "" removes it."""
    system: Callable[[str], str]
    keep_optional: bool = True
    """Whether parameters that are not required stay."""
    gather_system: bool = False
    """Whether system text within the first turn is moved before it."""


def validate_tier(tier: str, path: str) -> str:
    """Returns the tier unchanged.

    Args:
        tier: The name of a tier.
        path: The setting that contains it, for the error.

    Raises:
        ConfigError: The tier is unknown.
    """
    if tier not in NAMES:
        raise ConfigError(f"unknown tier {quote(tier)}{one_of(tier, NAMES, 'there are ')} - at {path}")
    return tier


def trim_request(request: Request, tier: str, vocabulary: TokenEstimator) -> TrimmedRequest:
    """Trims a request by a tier.

    Args:
        request: The request to trim.
        tier: The name of a tier; for "off" the request stays as it is.
        vocabulary: Estimates how many tokens are saved.
    """
    if tier not in TIERS:
        return TrimmedRequest(request, 0)
    tools = tuple(_tool(tool, tier) for tool in request.tools)
    messages = tuple(_message(message, tier) for message in request.messages)
    if TIERS[tier].gather_system:
        listed = tools_before_conversation(tools)
        messages = _gather_system_text(messages, _call_hint(listed))
        if request.tool_choice.mode != "none":
            messages = hints.add_hints(messages, [t.name for t in listed if _FOR_FILES.search(t.description)])
    trimmed = replace(request, tools=tools, messages=messages)
    saved = _estimate(vocabulary, _trimmable_texts(request)) - _estimate(vocabulary, _trimmable_texts(trimmed))
    return TrimmedRequest(trimmed, saved) if saved > 0 else TrimmedRequest(request, 0)


def _estimate(vocabulary: TokenEstimator, texts: Iterable[str]) -> int:
    return vocabulary.estimate("\n".join(texts))


def _trimmable_texts(request: Request) -> Iterator[str]:
    """All text that can be trimmed."""
    for tool in tools_before_conversation(request.tools):
        if tool.kind == "function":
            yield tool.description
            yield tool.parameters
    for message in request.messages:
        if message.role in SYSTEM_ROLES:
            yield from (part.text for part in message.parts if isinstance(part, Text))


def _tool(tool: Tool, tier: str) -> Tool:
    if tool.kind != "function" or tool.loading == "search":  # whose description lists the tools that it finds
        return tool
    return replace(
        tool, description=TIERS[tier].tool_description(tool.description), parameters=_schema(tool.parameters, tier)
    )


def _required_only(schema: Any) -> Any:
    """A tool's schema without its optional parameters; unchanged if no parameter is required."""
    if not (isinstance(schema, dict) and isinstance(schema.get("properties"), dict) and schema.get("required")):
        return schema
    required = {name: each for name, each in schema["properties"].items() if name in schema["required"]}
    if any(word in schema for word in _DEPENDENCY_KEYWORDS) or not required:
        return schema
    return {word: value for word, value in schema.items() if word != "$schema"} | {"properties": required}


def _message(message: Message, tier: str) -> Message:
    if message.role not in SYSTEM_ROLES:
        return message
    parts = (replace(p, text=_system(p.text, tier)) if isinstance(p, Text) else p for p in message.parts)
    return replace(message, parts=tuple(parts))


def _call_hint(tools: Iterable[Tool]) -> tuple[Text, ...]:
    """When to call one of these tools."""
    described = [tool.description for tool in tools]
    if not described:
        return ()
    return (Text(FILES_HINT if any(map(_FOR_FILES.search, described)) else HINT),)


def _gather_system_text(messages: tuple[Message, ...], hint: tuple[Text, ...]) -> tuple[Message, ...]:
    """Moves the agent's text before the first response into one system message at the beginning.

    A small model takes what comes last for its task, so the user's text must be last.
    """
    end = next((n for n, message in enumerate(messages) if message.role == "assistant"), len(messages))
    parts: list[Part] = []
    rest: list[Message] = []
    for message in messages[:end]:
        if message.role in SYSTEM_ROLES:
            parts += message.parts
            continue
        own = [part for part in message.parts if not hints.is_reminder(part)]
        reminders = (
            _project_instructions(p.text) for p in message.parts if isinstance(p, Text) and hints.is_reminder(p)
        )
        parts += [Text(text) for text in reminders if text]
        rest.append(replace(message, parts=tuple(own)) if own else message)
    parts = [part for part in [*parts, *hint] if not isinstance(part, Text) or part.text]
    return (*([Message("system", tuple(parts))] if parts else ()), *rest, *messages[end:])


@lru_cache(maxsize=64)
def _system(text: str, tier: str) -> str:
    return TIERS[tier].system(text)


@lru_cache(maxsize=512)
def _schema(schema: JsonText, tier: str) -> JsonText:
    """The schema with its descriptions trimmed; unchanged if it is not JSON or is nested too deeply."""
    try:
        parsed = json.loads(schema, parse_int=_as_written, parse_float=_as_written)
        parsed = _trim_descriptions(
            parsed if TIERS[tier].keep_optional else _required_only(parsed), TIERS[tier].parameter_description
        )
        return msgspec.json.encode(parsed).decode()
    except (ValueError, RecursionError):
        return schema


def _as_written(digits: str) -> msgspec.Raw:
    return msgspec.Raw(digits.encode())


def _trim_descriptions(schema: Any, cut: Callable[[str], str]) -> Any:
    if isinstance(schema, list):  # `items` of older drafts
        return [_trim_descriptions(each, cut) for each in schema]
    if not isinstance(schema, dict):
        return schema
    trimmed = {}
    for word, value in schema.items():
        if word in NAMED and isinstance(value, dict):
            value = {name: _trim_descriptions(each, cut) for name, each in value.items()}
        elif word in LISTED and isinstance(value, list):
            value = [_trim_descriptions(each, cut) for each in value]
        elif word in SINGLE:
            value = _trim_descriptions(value, cut)
        elif word in _DESCRIPTIVE_KEYWORDS:
            value = cut(value) if word == "description" and isinstance(value, str) else ""
            if not value:
                continue
        trimmed[word] = value
    return trimmed


def first_sentence(text: str, most_chars: int) -> str:
    """Returns the first sentence of the first paragraph, cut at a word if it is longer than `most_chars`."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    end = _SENTENCE.search(paragraph)
    sentence = paragraph[: end.end()] if end else paragraph
    if len(sentence) <= most_chars:
        return sentence
    beginning = sentence[:most_chars]
    return (beginning.rpartition(" ")[0] or beginning).rstrip(",;:—- ") + " …"  # not all languages have spaces


def _aggressive_system(text: str) -> str:
    """Trims the system prompt up to a project's own instructions."""
    lines = text.split("\n")
    own = next((n for n, line in enumerate(lines) if _PROJECT_START.match(line)), len(lines))
    before = _EXAMPLE.sub("", "\n".join(lines[:own]) + "\n" if own else "")
    cut = _shorten_sections(_shorten_line(line) for line in before.splitlines())
    return "\n".join([*cut, *lines[own:]]).strip("\n")


def _shorten_line(line: str) -> str:
    """The line, or of a long one the first sentence, emphasized sentences and the parentheses at the end of a list
    item.
    """
    text = line.lstrip()
    if len(line) <= MAX_LINE_CHARS or text.startswith(("<", "IMPORTANT")):
        return line
    first, *more = _sentences(text)
    parentheses = _TRAILING_PARENTHESES.search(text) if more else None
    shortened = " ".join([first, *(each for each in more if _EMPHASIS.search(each))])
    return (
        line[: len(line) - len(text)]
        + shortened
        + (parentheses[0] if parentheses and not shortened.endswith(parentheses[0]) else "")
    )


def _sentences(text: str) -> list[str]:
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    return [text[a:b].strip() for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def _shorten_sections(lines: Iterable[str]) -> Iterator[str]:
    """The lines, of a long section only the beginning; at most one empty line in a row."""
    length, blank = 0, True
    for line in lines:
        if _HEADING.match(line):
            length = 0
        stays = length < MAX_SECTION_CHARS or len(line) <= SHORT_LINE_CHARS or line.startswith("<")
        stays = stays or _NAMED_ITEM.match(line) is not None or _EMPHASIS.search(line) is not None
        length += len(line)
        if stays and (line.strip() or not blank):
            blank = not line.strip()
            yield line


def _max_system(text: str) -> str:
    """Keeps the model's role, facts, and a project's own instructions."""
    lines = text.split("\n")
    own = next((n for n, line in enumerate(lines) if _PROJECT_START.match(line)), len(lines))
    first = next((n for n, line in enumerate(lines[:own]) if line.strip() and not _HEADING.match(line)), own)
    shortened, chars = list[str](), 0
    for n, line in enumerate(lines[:own]):
        if n == first and not _is_fact(line):
            shortened.append(first_sentence(line, MAX_LINE_CHARS))
        elif _is_fact(line) and chars < MAX_FACTS_CHARS:
            shortened.append(line)
            chars += len(line)
    return "\n".join([*shortened, *lines[own:]]).strip("\n")


def _project_instructions(text: str) -> str:
    """A project's own instructions; empty if there are none."""
    lines = text.split("\n")
    own = next((n for n, line in enumerate(lines) if _PROJECT_START.match(line)), len(lines))
    return "\n".join(lines[own:])


def _is_fact(line: str) -> bool:
    return len(line) <= MAX_LINE_CHARS and _FACT.match(line) is not None


def _unchanged(text: str) -> str:
    return text


def _empty(_: str) -> str:
    return ""


def _tool_description(text: str) -> str:
    return first_sentence(text, MAX_TOOL_CHARS)


def _short_tool_description(text: str) -> str:
    return first_sentence(text, MAX_PARAMETER_CHARS)


def _parameter_description(text: str) -> str:
    return first_sentence(text, MAX_PARAMETER_CHARS)


TIERS: Final = {
    "tools": Tier(_tool_description, _parameter_description, _unchanged),
    "aggressive": Tier(_tool_description, _empty, _aggressive_system),
    "max": Tier(_short_tool_description, _empty, _max_system, keep_optional=False, gather_system=True),
}
"""The tiers that change something."""
NAMES: Final = ("off", *TIERS)
