"""Renders a model's own chat template (Jinja) as its tokenizer would.

If the template supports Hermes tool calls, tools, calls and results are passed to it, as the model was trained on that.
Otherwise it gets plain turns, into which the format has written the tools.

Source of the template's interface: https://huggingface.co/docs/transformers/chat_templating (2026-11).
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from dragoman.backends.text_mode import template_frame
from dragoman.core.errors import RequestError
from dragoman.core.messages import (
    JsonText,
    Message,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    part_text,
    tools_before_conversation,
)
from dragoman.parsing.format import Format
from dragoman.prompting import jinja_sandbox, render_process
from dragoman.prompting.chat_renderer import model_markup, reasoning_text, render_chat
from dragoman.prompting.example_calls import EXAMPLES_KEY
from dragoman.prompting.jinja_sandbox import VerbatimJson
from dragoman.text.control_tokens import CONTROL_TOKEN_START, find_control_tokens
from dragoman.text.escape import escape_markers_in_request, escape_markers_in_strings, escape_markers_json
from dragoman.wire.history import hoist_system_messages


class Prompt(NamedTuple):
    """A rendered prompt."""

    text: str
    suffix: str
    """The part of the reply that the prompt has already opened, for the reader."""


class ChatTemplate:
    """One model's chat template."""

    def __init__(
        self, source: str, bos: str, eos: str, control: Iterable[str], user_tokens: Iterable[str] = ()
    ) -> None:
        self.source, self.eos = source, eos
        self._template = render_process.load_template(source or _CHATML)
        self._variables = {"bos_token": bos, "eos_token": eos}
        # A single character would match in ordinary text, and in JSON outside of its strings.
        marked = (
            t for t in user_tokens if t.startswith(("<|", "[", "<s", "</s", "<｜")) or t in find_control_tokens(t)
        )
        tokens = dict.fromkeys((*control, *marked, *template_frame.turn_markers(self._render_plain)))
        self.special_tokens = tuple(t for t in tokens if len(t.strip()) > 1)
        """The texts of the model's control tokens, which only the template may write."""
        # Qwen3-Coder and similar models put XML inside the same tag: that is another format.
        self.knows_tools = "<tool_call>" in source and "tools" in source and "<function=" not in source
        self._markup = template_frame.call_markers(self._render_plain) if self.knows_tools else ()

    def render(self, request: Request, format: Format) -> Prompt:
        """Renders the whole conversation, up to the position where the model begins to write.

        The format's markup and the model's special tokens are escaped in all text that the model did not write; special
        tokens in the model's own earlier text too. A trailing assistant message is continued. If the template rejects
        system messages in the middle of the conversation, they are moved to the beginning.

        Raises:
            RequestError: the template rejects the conversation.
        """
        original = request
        for tokens in (CONTROL_TOKEN_START, self.special_tokens):
            request = escape_markers_in_request(
                request, tokens, include_assistant=True, keep_verbatim=model_markup(format)
            )
        prefill = ""
        if request.messages[-1].role == "assistant":
            *earlier, last = request.messages
            prefill = "".join(turn.text for turn in render_chat(Request(request.model, (last,)), format))
            request = msgspec.structs.replace(request, messages=tuple(earlier))
        tools: list[dict[str, Any]] | None = None
        if self.knows_tools:
            markup = tuple(dict.fromkeys((*format.markers, *self._markup, *self.special_tokens)))
            neutral = escape_markers_in_request(request, markup)
            messages = [
                m for message in neutral.messages for m in _messages(message, reasoning_text(message, format), markup)
            ]
            if request.tool_choice.mode != "none":
                listed = tools_before_conversation(neutral.tools)
                tools = [_tool(t, markup) for t in listed if t.kind == "function"] or None
        else:
            messages = [{"role": t.role, "content": t.text} for t in render_chat(request, format)]
        try:
            text = self._render(messages, tools)
        except RequestError:
            hoisted = hoist_system_messages(original.messages)
            if hoisted == original.messages:
                raise
            return self.render(msgspec.structs.replace(original, messages=hoisted), format)
        opened = _OPEN_REASONING.search(text)
        return Prompt(text + prefill, (opened[0] if opened else "") + prefill)

    def _render_plain(self, messages: list[dict[str, Any]]) -> str:
        return self._render(messages, None)

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        try:
            return self._template.render(messages=messages, tools=tools, add_generation_prompt=True, **self._variables)
        except jinja_sandbox.RENDER_ERRORS as e:
            why = str(e) if any(m["role"] == "user" for m in messages) else "expected a user message, got none"
            raise RequestError(f"the model's chat template refuses the conversation: {why}", "$.messages") from e


def _messages(message: Message, reasoning: str, markup: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns the message in the template's interface, in which a tool result is a message of its own."""
    if message.verbatim_text:
        return [{"role": "assistant", "content": message.verbatim_text}]
    results = [p for p in message.parts if isinstance(p, ToolResult)]
    out = [{"role": "tool", "content": _result_text(r), "tool_call_id": r.call_id} for r in results]
    calls = [p for p in message.parts if isinstance(p, ToolCall)]
    text = "\n".join(t for p in message.parts if (t := part_text(p)))
    if text or calls or not results:
        role = "system" if message.role == "developer" else "user" if message.role == "tool" else message.role
        assistant: dict[str, Any] = {"role": role, "content": text}
        if reasoning:  # the template decides how long a model is shown its reasoning
            assistant["reasoning_content"] = reasoning
        if calls:
            assistant["tool_calls"] = [{"type": "function", "function": _call(c, markup)} for c in calls]
        out.append(assistant)
    return out


def _result_text(result: ToolResult) -> str:
    text = "\n".join(map(part_text, result.parts))
    return f"Error: {text}" if result.is_error else text


def _call(call: ToolCall, markup: tuple[str, ...]) -> dict[str, Any]:
    # Templates insert the name between quotes unescaped; no valid name has a character that JSON would escape.
    name = json.dumps(call.name, ensure_ascii=False)[1:-1]
    try:
        return {"name": name, "arguments": VerbatimJson(_escaped_value(call.arguments, markup), call.arguments)}
    except (*_JSON_ERRORS, TypeError):
        return {"name": name, "arguments": call.arguments}


def _tool(tool: Tool, markup: tuple[str, ...]) -> dict[str, Any]:
    name, description = (json.dumps(x, ensure_ascii=False) for x in (tool.name, tool.description))
    try:
        schema = json.dumps(json.loads(tool.parameters), ensure_ascii=False)
        parameters = _escaped_value(schema, markup)
    except _JSON_ERRORS:
        parameters, schema = {}, tool.parameters

    def as_text(value: Any, text: JsonText) -> VerbatimJson:
        return VerbatimJson(value, escape_markers_json(escape_markers_json(text, CONTROL_TOKEN_START), markup))

    schema_shown = as_text(parameters, schema)
    members: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": schema_shown}
    text = f'"name": {name}, "description": {description}, "parameters": {schema}'
    if tool.examples:  # in the form of the model's own calls
        calls = [f'{{"name": {name}, "arguments": {arguments}}}' for arguments in tool.examples]
        members[EXAMPLES_KEY] = [as_text(_escaped_value(call, markup), call) for call in calls]
        text += f', "{EXAMPLES_KEY}": [{", ".join(calls)}]'
    text = f"{{{text}}}"
    function = as_text(members, text)
    return as_text({"type": "function", "function": function}, f'{{"type": "function", "function": {text}}}')


def _escaped_value(text: JsonText, markup: tuple[str, ...]) -> Any:
    """Returns the value with markers escaped, for templates that show strings decoded."""
    return json.loads(escape_markers_in_strings(escape_markers_in_strings(text, CONTROL_TOKEN_START), markup))


_JSON_ERRORS = (ValueError, RecursionError)
"""Raised by Python's JSON decoder for thousands of digits or levels."""
_OPEN_REASONING = re.compile(r"<think>\s*\Z")
_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For files without a chat template: ChatML, which most models understand."""
