"""A captured request as code: for curl, the SDKs of the vendors in Python, and TypeScript.

Keys are read from environment variables. A request is translated if the SDK has another API.
"""

import json
import pprint
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from dragoman import dialects
from dragoman.core.errors import DragomanError, RequestError, one_of, quote
from dragoman.server.capture.load import LoadedCapture

KEY_VARIABLE: Final = "DRAGOMAN_API_KEY"
_CHAT: Final = "openai_chat"
_RESPONSES: Final = "openai_responses"
_MESSAGES: Final = "anthropic_messages"
_WIDTH: Final = 100


def client_code(capture: LoadedCapture, language: str, gateway: str) -> str:
    """Returns a program that sends the request of an exchange.

    Args:
        capture: The exchange.
        language: One of `curl`, `python-openai`, `python-anthropic`, `typescript`.
        gateway: The URL of the gateway, without a path.

    Raises:
        RequestError: The language is unknown, or the request cannot be sent by its SDK.
    """
    if language not in LANGUAGES:
        raise RequestError(f"unknown {quote(language)}{one_of(language, LANGUAGES, 'expected ')} - at language")
    line, data = capture.json("request.json"), capture.files.get("body", b"")
    api = next((name for name in dialects.names() if dialects.get(name).path == line.get("path")), "")
    if not api:
        raise RequestError(f"expected a request for a response of a model, got one of {line.get('path')}")
    try:
        body = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise RequestError("expected a request with a JSON object, got another body; copy that instead") from None
    headers = _headers(line.get("headers", {}), api)
    return LANGUAGES[language](gateway, api, body, headers)


def _headers(sent: Mapping[str, str], api: str) -> dict[str, str]:
    """Returns the headers that an upstream server of the same API gets."""
    names = dialects.get(api).forwarded_headers
    return {name: value for name, value in sent.items() if name in names and value.isprintable() and value.isascii()}


def _translated(body: dict[str, Any], api: str, other: str) -> dict[str, Any]:
    """Returns the body for another API.

    Raises:
        RequestError: The API cannot express the request.
    """
    try:
        request = dialects.get(api).read_request(msgspec.json.encode(body))
        sent = dialects.get(other).write_request(request, request.model).body
    except DragomanError as error:
        raise RequestError(f"expected a request that {other} can express, got one that it cannot: {error}") from None
    return msgspec.json.decode(sent, type=dict[str, Any])


def _curl(gateway: str, api: str, body: dict[str, Any], headers: Mapping[str, str]) -> str:
    text = json.dumps(body, indent=2, ensure_ascii=False)
    mark = "JSON"
    while mark in text.split("\n"):
        mark += "_"
    more = "".join(f"  -H {_shell(f'{name}: {value}')} \\\n" for name, value in headers.items())
    return (
        f"curl -sS -N {_shell(gateway + dialects.get(api).path)} \\\n"
        "  -H 'content-type: application/json' \\\n"
        f'  -H "authorization: Bearer ${{{KEY_VARIABLE}:-none}}" \\\n'
        f"{more}  --data-binary @- <<'{mark}'\n{text}\n{mark}\n"
    )


def _shell(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"


def _python_openai(gateway: str, api: str, body: dict[str, Any], headers: Mapping[str, str]) -> str:
    is_translated = api == _MESSAGES
    fields = _translated(body, api, _CHAT) if is_translated else body
    method, member = ("responses", "input") if api == _RESPONSES else ("chat.completions", "messages")
    head = [
        "import os",
        "",
        "from openai import OpenAI",
        "",
        f'client = OpenAI(base_url="{gateway}/v1", api_key=os.environ.get("{KEY_VARIABLE}", "none"))',
    ]
    extra_headers = {} if is_translated else headers
    return _python(head, f"client.{method}.create", fields, ("model", member), extra_headers, ())


def _python_anthropic(gateway: str, api: str, body: dict[str, Any], headers: Mapping[str, str]) -> str:
    is_translated = api != _MESSAGES
    fields = _translated(body, api, _MESSAGES) if is_translated else body
    head = [
        "import os",
        "",
        "from anthropic import Anthropic",
        "",
        f'client = Anthropic(base_url="{gateway}", api_key=os.environ.get("{KEY_VARIABLE}", "none"), timeout=600)',
    ]
    extra_headers = {} if is_translated else headers
    return _python(
        head, "client.messages.create", fields, ("model", "max_tokens", "messages"), extra_headers, ("max_tokens",)
    )


def _python(
    head: list[str],
    create: str,
    fields: dict[str, Any],
    named: tuple[str, ...],
    headers: Mapping[str, str],
    needed: tuple[str, ...],
) -> str:
    """Returns a program in Python; members that an SDK may not know are in `extra_body`."""
    is_stream = bool(fields.get("stream"))
    own = [name for name in named if name in fields]
    missing = [f"    {name}=4096," for name in needed if name not in fields]
    arguments = [*(f"    {name}={_literal(fields[name])}," for name in own), *missing]
    if is_stream:
        arguments.append("    stream=True,")
    if headers:
        arguments.append(f"    extra_headers={_literal(dict(headers))},")
    if rest := {name: value for name, value in fields.items() if name not in (*own, "stream")}:
        arguments.append(f"    extra_body={_literal(rest)},")
    use = ["for event in response:", "    print(event)"] if is_stream else ["print(response.model_dump_json(indent=2))"]
    return "\n".join([*head, f"response = {create}(", *arguments, ")", *use, ""])


def _literal(value: Any) -> str:
    if isinstance(value, str):  # pprint would split it
        return repr(value)
    return pprint.pformat(value, width=_WIDTH, sort_dicts=False).replace("\n", "\n    ")


def _typescript(gateway: str, api: str, body: dict[str, Any], headers: Mapping[str, str]) -> str:
    methods = {_CHAT: "chat.completions", _RESPONSES: "responses", _MESSAGES: "messages"}
    if api == _MESSAGES:
        module, name, base = "@anthropic-ai/sdk", "Anthropic", gateway
    else:
        module, name, base = "openai", "OpenAI", f"{gateway}/v1"
    text = json.dumps(body, indent=2, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    options = f", {{ headers: {json.dumps(dict(headers))} }}" if headers else ""
    use = ["for await (const event of response) console.log(JSON.stringify(event));"]
    if not body.get("stream"):
        use = ["console.log(JSON.stringify(response, null, 2));"]
    lines = [
        f'import {name} from "{module}";',
        "",
        f'const client = new {name}({{ baseURL: {json.dumps(base)}, apiKey: process.env.{KEY_VARIABLE} ?? "none" }});',
        "// The type is left open: the request may have members that this version of the SDK does not declare.",
        f"const body: any = {text};",
        f"const response: any = await client.{methods[api]}.create(body{options});",
        *use,
        "",
    ]
    return "\n".join(lines)


LANGUAGES: Final[Mapping[str, Callable[[str, str, dict[str, Any], Mapping[str, str]], str]]] = {
    "curl": _curl,
    "python-openai": _python_openai,
    "python-anthropic": _python_anthropic,
    "typescript": _typescript,
}
"""Writers of a program, by language."""
