"""Detects the format in which an unknown model writes tool calls, by its tokenizer, its chat template or its name.

found = detect_format("my-tune-of-qwen", chat_template=tokenizer.chat_template)
reader = ToolCallReader(found.format, tools, prompt_suffix=found.prompt_suffix)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dragoman import formats
from dragoman.catalog import families
from dragoman.core.errors import UsageError, quote
from dragoman.identify.chat_template import match_template
from dragoman.identify.match_format import match_known_format
from dragoman.identify.response_template import spec as templates
from dragoman.identify.response_template.reader import build_format
from dragoman.parsing.format import Format

By: TypeAlias = Literal["response_template", "chat_template", "model", "nothing"]


@dataclass(frozen=True, slots=True)
class FormatMatch:
    """The format of a model, and the evidence for it."""

    format: Format
    """`auto` if there is no evidence."""
    by: By
    """The kind of evidence."""
    why: str
    """The evidence in a sentence."""
    prompt_suffix: str = ""
    """What the generation prompt of the chat template leaves open, such as `<think>`; pass it to the reader. Empty if
    the extra `templates`, which renders the template, is not installed; `why` reports that."""
    reasoning_tags: tuple[str, str] | None = None
    """The markers before and after reasoning, as in the chat template."""


def detect_format(
    model: str = "",
    *,
    chat_template: str | Mapping[str, str] = "",
    response_template: Mapping[str, Any] | None = None,
) -> FormatMatch:
    """Detects the format in which a model writes tool calls.

    The evidence, strongest first: a known format that the response template describes, a call that the chat template
    renders, a format made of the response template, the model's name, markers in the text of the chat template.

        found = detect_format("my-tune", chat_template=tokenizer.chat_template)
        reader = ToolCallReader(found.format, tools, prompt_suffix=found.prompt_suffix)

    Args:
        model: The model's name on a hub or in an engine, or its path: `Qwen/Qwen3-8B`, `qwen3:8b`.
        chat_template: The Jinja text of the chat template, or several by name. It is rendered in a sandbox, which
            requires the extra `templates`; without the extra only its text is searched for markers.
        response_template: The key `response_template` of `tokenizer_config.json`.

    Returns:
        The format with the evidence; `auto`, which recognizes most formats, where there is no evidence.

    Raises:
        UsageError: An argument has the wrong type.
        ConfigError: The response template is invalid.
    """
    if not isinstance(model, str):
        raise UsageError(f"expected str, got {type(model).__name__} - at model")
    template = match_template(_text(chat_template))
    family = families.find(model)
    named = family.format if family else "auto"

    def identified(format: str | Format, by: By, why: str) -> FormatMatch:
        resolved = formats.get(format) if isinstance(format, str) else format
        return FormatMatch(resolved, by, why, template.prompt_suffix, template.reasoning_tags)

    stated = None if response_template is None else templates.read_template(response_template)
    if stated and (format := match_known_format(stated)):
        return identified(format, "response_template", f"the response template reads what {format.name} writes")
    if stated and not template.rendered:
        return identified(build_format(stated), "response_template", "the response template describes no known format")
    if template.rendered or (template.format and named == "auto"):
        return identified(template.format, "chat_template", template.why)
    if family and named != "auto":
        # Why the template could not be rendered matters here too, because what it leaves open is not known then.
        template_reason = f"; {template.why}" if chat_template else ""
        return identified(
            named, "model", f"models of the name {quote(model)} write {named}: {family.source}{template_reason}"
        )
    about_name = f"no format is known for the name {quote(model)}" if model else "no name was given"
    return identified("auto", "nothing", f"{about_name}; {template.why}")


def _text(chat_template: object) -> str:
    """The template for tools if there are several."""
    if isinstance(chat_template, Mapping):
        chat_template = chat_template.get("tool_use", chat_template.get("default", ""))
    if not isinstance(chat_template, str):
        raise UsageError(f"expected a template's text, got {type(chat_template).__name__} - at chat_template")
    return chat_template
