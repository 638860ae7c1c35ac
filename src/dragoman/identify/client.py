"""Identifies the agent or SDK that sent a request, the part of it that asks, and the conversation.

    identify_client({"user-agent": "claude-cli/2.1"}, request)      ClientFacts(agent="claude-code", role="main")

The facts are in `catalog/clients.toml`. Headers are compared first; of the prompt only the beginnings of the first
blocks and of the last message are searched, so the cost does not depend on its length. All values come from the
client, which can send any: they select a model, and grant nothing.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final, TypeAlias

from dragoman.catalog import clients
from dragoman.catalog.clients import ClientRole, KnownClient
from dragoman.core.client import ANONYMOUS, ClientFacts
from dragoman.core.messages import SYSTEM_ROLES, Request, Text

SESSION_LIMIT_CHARS: Final = 128
"""Maximum length of a session's id; a longer one is ignored."""
_PREFIX_CHARS: Final = 400
"""Characters of a block of the prompt that are searched."""
_SYSTEM_BLOCKS: Final = 3
_PRODUCT_CHARS: Final = 32
_RECENT: Final = 256
"""Number of `user-agent` values whose client is remembered."""
_EXTRA_BYTES: Final = 1000
"""Maximum size of a field of the body that is searched for a session."""
_PRODUCT: Final = re.compile(r"[^/ ]+")
_SESSION: Final = re.compile(rb'_session_([0-9a-f-]{36})|session_id\\":\s?\\"([0-9a-f-]{36})')
"""The session in `metadata.user_id` of Claude Code: at the end of a name, or in JSON."""
_SESSION_HEADERS: Final = ("x-session-id", "x-session-affinity", "session-id")
"""Headers of clients that are not in the catalogue."""
_CACHE_KEY: Final = re.compile(rb'"([^"\\]{1,128})"')

_Check: TypeAlias = Callable[[Mapping[str, str], Request], bool]


def identify_client(
    headers: Mapping[str, str], request: Request, known: ClientFacts = ANONYMOUS, exchange: str = ""
) -> ClientFacts:
    """Returns the facts about the client, with the agent, its role and its session, as far as they can be recognized.

    Args:
        headers: The headers of the request, with names in lower case.
        request: The request.
        known: Other facts about the client, such as the name of its key.
        exchange: The gateway's id of the request and its response.
    """
    row = _row_of(headers.get("user-agent", "")[:_PRODUCT_CHARS])
    if row is None or row.is_sdk:
        row = _row_by_prompt(request) or row
    session = ""
    for name in _SESSION_HEADERS if row is None else row.sessions:
        if name in headers:
            session = headers[name]
            break
    if not session and request.extra:
        session = _session_in_body(request)
    if row is None and not session and not exchange:
        return known
    agent, role = ("", "") if row is None else (row.name, "" if row.is_sdk else _role(row, headers, request))
    session = session if len(session) <= SESSION_LIMIT_CHARS else ""
    # As `replace`, which takes three times as long.
    return ClientFacts(known.key, agent, role, session, known.permissions, exchange, known.secret_id)


@lru_cache(_RECENT)
def _row_of(user_agent: str) -> KnownClient | None:
    """Returns the client with this product name at the beginning of its `user-agent`."""
    product = _PRODUCT.match(user_agent)
    return _by_product().get(product[0].lower()) if product else None


@cache
def _by_product() -> Mapping[str, KnownClient]:
    return {product: row for row in clients.clients() for product in row.products}


def _row_by_prompt(request: Request) -> KnownClient | None:
    """Returns the client whose system prompt begins like this one."""
    first = request.messages[0] if request.messages else None
    if first is None or first.role not in SYSTEM_ROLES or not first.parts:
        return None
    block = first.parts[0]
    if type(block) is Text:
        for sign, row in _by_system():
            if block.text.find(sign, 0, _PREFIX_CHARS) >= 0:
                return row
    return None


@cache
def _by_system() -> tuple[tuple[str, KnownClient], ...]:
    return tuple((text, row) for row in clients.clients() for text in row.system)


def _role(row: KnownClient, headers: Mapping[str, str], request: Request) -> str:
    for role, checks in _checks(row.name):
        for check in checks:
            if not check(headers, request):
                break
        else:
            return role
    return "main"


@cache
def _checks(name: str) -> tuple[tuple[str, tuple[_Check, ...]], ...]:
    """Returns the roles of this client, each with its conditions, the cheapest first."""
    row = next(row for row in clients.clients() if row.name == name)
    return tuple((role.role, tuple(_conditions(role))) for role in row.roles)


def _conditions(role: ClientRole) -> list[_Check]:
    checks: list[_Check] = []
    if role.header and role.values:
        checks.append(lambda headers, request: headers.get(role.header) in role.values)
    elif role.header:
        checks.append(lambda headers, request: role.header in headers)
    if role.has_tools is not None:
        checks.append(lambda headers, request: bool(request.tools) is role.has_tools)
    if role.models:
        checks.append(lambda headers, request: any(text in request.model for text in role.models))
    if role.answer_field:
        field = f'"{role.answer_field}"'
        checks.append(lambda headers, request: field in request.response_schema[:_PREFIX_CHARS])
    if role.system:
        checks.append(lambda headers, request: any(_has_any(text, role.system) for text in _system_blocks(request)))
    if role.last_message:
        checks.append(lambda headers, request: _has_any(_last_text(request), role.last_message))
    return checks


def _has_any(text: str, signs: tuple[str, ...]) -> bool:
    return any(sign in text for sign in signs)


def _system_blocks(request: Request) -> list[str]:
    """Returns the beginnings of the first blocks of the system prompt."""
    blocks: list[str] = []
    for message in request.messages[:_SYSTEM_BLOCKS]:
        if message.role not in SYSTEM_ROLES:
            break
        blocks += [part.text[:_PREFIX_CHARS] for part in message.parts[:_SYSTEM_BLOCKS] if type(part) is Text]
    return blocks


def _last_text(request: Request) -> str:
    """Returns the beginning of the last block of the last message, if that is text."""
    parts = request.messages[-1].parts if request.messages else ()
    last = parts[-1] if parts else None
    return last.text[:_PREFIX_CHARS] if type(last) is Text else ""


def _session_in_body(request: Request) -> str:
    """Returns the session that fields of the request name: the key of the prompt cache, or Claude Code's metadata."""
    extra = request.extra
    if (raw := extra.get("prompt_cache_key")) is not None:
        found = _CACHE_KEY.fullmatch(raw)
    elif (raw := extra.get("metadata")) is not None:
        found = _SESSION.search(raw, 0, _EXTRA_BYTES)
    else:
        return ""
    return (found[1] or found[2]).decode("utf-8", "replace") if found else ""
