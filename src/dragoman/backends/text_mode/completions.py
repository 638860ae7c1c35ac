r"""Requests the completion of a prompt rendered here, with the model's own chat template: `POST /v1/completions`.

    {"model": "m", "prompt": "<|im_start|>system\n…", "stream": true, "max_tokens": 99}
    data: {"choices": [{"text": "Bern", "index": 0, "finish_reason": null}]}

The server's template and its handling of tools do not apply then, and what the template opens of the reply, such as
`<think>`, is known. The template is that of a file, or the one that llama.cpp's server reports for the model; that is
fetched again from time to time, as the server may have loaded another model. The token that begins every text is left
out, as servers add it themselves.

Source: https://platform.openai.com/docs/api-reference/completions; llama.cpp, tools/server/README.md, `/props` and
`/v1/completions`, server-models.cpp, `proxy_get`, which loads a model before it reports it (2026-11), b11549 of
xllamacpp, run.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from dragoman.backends.http.connection import REQUEST_TIMEOUT_S, UpstreamConnection
from dragoman.backends.text_mode import sampling
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import BackendUnavailableError, ConfigError, RequestError
from dragoman.core.messages import FinishReason, Request, Usage
from dragoman.text import json_cursor, lenient_values
from dragoman.text.control_tokens import find_control_tokens
from dragoman.text.json_cursor import Fields
from dragoman.wire.call_assembly.assembler import ToolCallAssembler
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.response_reader import BaseResponseReader
from dragoman.wire.translation import notices_by_name

if TYPE_CHECKING:
    from dragoman.backends.text_mode.chat_template import ChatTemplate, Prompt

PATH: Final = "/v1/completions"
REFRESH_INTERVAL_S: Final = 180.0
"""After this time the template of a model is fetched again, as the server may run another model by the same name."""
_BRACKETED_TOKEN: Final = re.compile(r"\[/?[A-Z_]{2,20}\]")
"""Text in a template that also looks like a control token."""


class ChatTemplates:
    """Chat templates of one server's models: each from a file, which is read once, or from the server."""

    def __init__(self, name: str, loads_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            name: the server's name.
            loads_s: how long the server may take to load a model.
            now_s: monotonic clock, in seconds.
        """
        self._name, self._load_timeout_s, self._now_s = name, loads_s, now_s
        self._known: dict[tuple[str, str], ChatTemplate] = {}
        """By model and file; file "": the server's template."""
        self._fetched_at_s: dict[tuple[str, str], float] = {}

    def get(self, model: str, file: str) -> "ChatTemplate":
        """Returns a template that has been prepared."""
        return self._known[model, file]

    def describe(self, model: str, file: str) -> Mapping[str, str]:
        """Returns the source of the template and its end token; empty if there is none yet."""
        known = self._known.get((model, file))
        return {"template": known.source, "eos": known.eos} if known else {}

    def set(self, model: str, file: str, source: str, eos: str) -> None:
        """Sets the template of this model.

        Args:
            model: The model's name.
            file: The path of a template file in the settings; "": the server's own template.
            source: The text of the template.
            eos: The token that ends a text; "": not known.
        """
        from dragoman.backends.text_mode.chat_template import ChatTemplate

        control = find_control_tokens(source) | set(_BRACKETED_TOKEN.findall(source)) | ({eos} if eos else set())
        self._known[model, file] = ChatTemplate(source, "", eos, sorted(control))
        self._fetched_at_s[model, file] = self._now_s()

    async def prepare(self, model: str, file: str, connection: UpstreamConnection) -> None:
        """Loads the template of this model. If the server does not report it again later, the earlier one stays.

        Raises:
            ConfigError: the file cannot be read or is not a template, or the extra `templates` is missing.
            BackendUnavailableError: the server reports no template.
        """
        key, now_s = (model, file), self._now_s()
        is_known = key in self._known
        if is_known and (file or now_s - self._fetched_at_s[key] < REFRESH_INTERVAL_S):
            return
        self._fetched_at_s[key] = now_s
        try:
            await self._fetch(model, file, connection, REQUEST_TIMEOUT_S if is_known else self._load_timeout_s)
        except BackendUnavailableError:
            if not is_known:
                raise

    async def _fetch(self, model: str, file: str, connection: UpstreamConnection, timeout_s: float) -> None:
        name = self._name
        props = await _fetch_props(model, connection, timeout_s)
        source = read_template_file(file, name) if file else props.get("chat_template", "")
        if not source:
            raise BackendUnavailableError(
                f"{name} tells no chat template; name the file of one in upstreams.{name}.chat_template"
            )
        await asyncio.to_thread(self.set, model, file, source, props.get("eos_token", ""))


def read_template_file(file: str, server: str) -> str:
    """Returns the chat template in a file of the settings.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the chat template {file}: {e} - at upstreams.{server}.chat_template") from None


def write_request(request: Request, prompt: "Prompt") -> UpstreamRequest:
    """Returns the request for a completion of this prompt."""
    body: dict[str, Any] = {"model": request.model, "prompt": prompt.text, "stream": True}
    body |= {"stream_options": {"include_usage": True}, **sampling.engine_settings(request)}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    named = {name: name for name in sampling.ignored_settings(request)}
    warnings = tuple(
        notices_by_name("unsupported_parameter", "where prompts are rendered here, {} has no effect", named)
    )
    return UpstreamRequest(msgspec.json.encode(body), warnings, request.stop, prompt.suffix)


class CompletionReader(BaseResponseReader):
    """Reads the stream of one completion."""

    __slots__ = ("_has_choice", "_reason")

    _nothing = "no choice"

    def __init__(self, request: Request, context: ExchangeContext) -> None:
        super().__init__(ToolCallAssembler(context, request.model))
        self._reason: FinishReason | None = None
        self._has_choice = False

    def _frame(self, fields: Fields) -> None:
        self._out.start()
        for choice in lenient_values.objects(fields.pop("choices")):
            self._has_choice = True
            self._out.text(lenient_values.string(choice.pop("text")))
            if reason := lenient_values.string_or_json(choice.pop("finish_reason")):
                self._reason = "length" if reason == "length" else "stop"
        if (usage := lenient_values.fields(fields.pop("usage"))) is not None:
            self._out.usage(_usage(usage))

    def _is_empty(self) -> bool:
        return not self._has_choice

    def _ended(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason)
        return True


def _usage(counts: Fields) -> Usage:
    return Usage(
        input_tokens=lenient_values.count_at(counts, "prompt_tokens"),
        output_tokens=lenient_values.count_at(counts, "completion_tokens"),
        cached_input_tokens=lenient_values.count_at(counts, "prompt_tokens_details", "cached_tokens"),
    )


async def _fetch_props(model: str, connection: UpstreamConnection, timeout_s: float) -> dict[str, str]:
    """Returns what llama.cpp's server reports of the model's template; empty for other servers."""
    response = await connection.request(f"/props?model={quote(model, safe='')}", timeout_s=timeout_s)
    if response.status != 200:
        response = await connection.request("/props")
    try:
        fields = json_cursor.parse(response.body).fields() if response.status == 200 else None
    except RequestError:
        fields = None
    return {key: fields.string(key) for key in ("chat_template", "eos_token")} if fields else {}
