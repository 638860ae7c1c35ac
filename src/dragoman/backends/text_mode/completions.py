"""Asking for the completion of a prompt that is made here, of the model's own chat template: `POST /v1/completions`.

    {"model": "m", "prompt": "<|im_start|>system\\n…", "stream": true, "max_tokens": 99}
    data: {"choices": [{"text": "Bern", "index": 0, "finish_reason": null}]}

Nothing stands between the conversation and the model then: not the server's own idea of a template, nor of tools, and
what the template opens of the reply, such as `<think>`, is known. The template is that of a file, or what llama.cpp's
server tells of the model, asked for anew now and then, as another may run there by now. The token that a text begins
with is left out, as servers put it there themselves.

Source: https://platform.openai.com/docs/api-reference/completions; llama.cpp, tools/server/README.md, `/props` and
`/v1/completions`, server-models.cpp, `proxy_get`, which loads a model before it tells of it (2026-11), b11549 of
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
from dragoman.wire.call_assembler import ToolCallAssembler
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.response_reader import BaseResponseReader
from dragoman.wire.translation import notices_by_name

if TYPE_CHECKING:
    from dragoman.backends.text_mode.chat_template import ChatTemplate, Prompt

PATH: Final = "/v1/completions"
RENEW_S: Final = 180.0
"""After which a server is asked anew for the template of a model: it may run another under the same name."""
_BRACKETED: Final = re.compile(r"\[/?[A-Z_]{2,20}\]")
"""What also looks like a control token where it stands in a template."""


class Templates:
    """The chat templates of one server's models: each of a file, which is read once, or else as the server tells it."""

    def __init__(self, name: str, loads_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        """`loads_s`: the time that the server may take to load a model of which it is asked."""
        self._name, self._loads_s, self._now_s = name, loads_s, now_s
        self._known: dict[tuple[str, str], ChatTemplate] = {}
        """By the model and the file; "": what the server tells."""
        self._asked_s: dict[tuple[str, str], float] = {}

    def of(self, model: str, file: str) -> "ChatTemplate":
        """The one that has been prepared."""
        return self._known[model, file]

    def facts(self, model: str, file: str) -> Mapping[str, str]:
        """What the template is, once there is one."""
        known = self._known.get((model, file))
        return {"template": known.source, "eos": known.eos} if known else {}

    def take(self, model: str, file: str, source: str, eos: str) -> None:
        """From now on this is the template of that model."""
        from dragoman.backends.text_mode.chat_template import ChatTemplate

        control = find_control_tokens(source) | set(_BRACKETED.findall(source)) | ({eos} if eos else set())
        self._known[model, file] = ChatTemplate(source, "", eos, sorted(control))
        self._asked_s[model, file] = self._now_s()

    async def prepare(self, model: str, file: str, connection: UpstreamConnection) -> None:
        """Have the one of this model at hand. Where a server that has told it does not tell it again, it stays.

        Raises: ConfigError: the file cannot be read, or is none, or the extra `templates` is missing.
            BackendUnavailableError: the server tells none.
        """
        key, now_s = (model, file), self._now_s()
        is_known = key in self._known
        if is_known and (file or now_s - self._asked_s[key] < RENEW_S):
            return
        self._asked_s[key] = now_s
        try:
            await self._ask(model, file, connection, REQUEST_TIMEOUT_S if is_known else self._loads_s)
        except BackendUnavailableError:
            if not is_known:
                raise

    async def _ask(self, model: str, file: str, connection: UpstreamConnection, timeout_s: float) -> None:
        name = self._name
        told = await _props(model, connection, timeout_s)
        source = read(file, name) if file else told.get("chat_template", "")
        if not source:
            raise BackendUnavailableError(
                f"{name} tells no chat template; name the file of one in servers.{name}.template"
            )
        await asyncio.to_thread(self.take, model, file, source, told.get("eos_token", ""))


def read(file: str, server: str) -> str:
    """The chat template of a file that the settings name.

    Raises: ConfigError: it cannot be read.
    """
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the chat template {file}: {e} - at servers.{server}.template") from None


def written(request: Request, prompt: "Prompt") -> UpstreamRequest:
    """The body that asks the server for more of this prompt."""
    body: dict[str, Any] = {"model": request.model, "prompt": prompt.text, "stream": True}
    body |= {"stream_options": {"include_usage": True}, **sampling.settings(request)}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    named = {name: name for name in sampling.ignored(request)}
    told = tuple(notices_by_name("unsupported_parameter", "where prompts are rendered here, {} has no effect", named))
    return UpstreamRequest(msgspec.json.encode(body), told, request.stop, prompt.tail)


class Reader(BaseResponseReader):
    """Reads the text of one completion."""

    __slots__ = ("_heard", "_reason")

    _nothing = "no choice"

    def __init__(self, request: Request, turn: ExchangeContext) -> None:
        super().__init__(ToolCallAssembler(turn, request.model))
        self._reason: FinishReason | None = None
        self._heard = False

    def _frame(self, fields: Fields) -> None:
        self._out.start()
        for said in lenient_values.objects(fields.pop("choices")):
            self._heard = True
            self._out.text(lenient_values.string(said.pop("text")))
            if reason := lenient_values.string_or_json(said.pop("finish_reason")):
                self._reason = "length" if reason == "length" else "stop"
        if (usage := lenient_values.fields(fields.pop("usage"))) is not None:
            self._out.usage(_usage(usage))

    def _is_empty(self) -> bool:
        return not self._heard

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


async def _props(model: str, connection: UpstreamConnection, timeout_s: float) -> dict[str, str]:
    """What the server tells of the model's template; nothing where it is none of llama.cpp's."""
    said = await connection.request(f"/props?model={quote(model, safe='')}", timeout_s=timeout_s)
    if said.status != 200:
        said = await connection.request("/props")
    try:
        fields = json_cursor.parse(said.body).fields() if said.status == 200 else None
    except RequestError:
        fields = None
    return {key: fields.string(key) for key in ("chat_template", "eos_token")} if fields else {}
