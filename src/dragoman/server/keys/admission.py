"""Applies the limits of a key to an exchange: before a model is asked, in the headers, and in the end."""

import time
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from dragoman.catalog import tokenizers
from dragoman.core.errors import DragomanError
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.off_loop import off_loop
from dragoman.server.base_exchange import CLIENT_LEFT, Route
from dragoman.server.keys.key import ApiKey
from dragoman.server.observe.access_log import AccessRecord
from dragoman.usage_limits.admission import Admission, Estimate, UsageLimits, Used
from dragoman.usage_limits.headers import UPSTREAM_LIMITS, anthropic_headers, openai_headers

_BYTES_PER_TOKEN: Final = 4
"""Estimate for JSON that is not parsed."""
_DELTA: Final = b"data:"


def identify(record: AccessRecord, key: ApiKey, route: Route | None, limits: UsageLimits | None) -> ApiKey:
    """Records who has sent a request, and begins its admission if it asks a model with a key that has a name.

    Returns the key.

    Args:
        record: The record of the exchange.
        key: The key of the request.
        route: What is served; None: nothing that asks a model.
        limits: The limits of all keys; None: nothing is limited or counted.
    """
    record.client = key.client
    if limits is not None and key.name and route is not None and route.is_limited:
        record.admission = limits.begin(key.name, key.config, record.prices)
    return key


async def admit(record: AccessRecord, gateway: Gateway, request: Request, *, large: bool) -> None:
    """Reserves a part of the limits of the key.

    Args:
        record: The record of the exchange, with the admission.
        gateway: The gateway, which knows what backends may answer.
        request: The request.
        large: Whether the request is so large that it is read in a thread.

    Raises:
        DragomanError: A limit is reached.
    """
    admission = record.admission
    if admission is None:
        return
    estimate = Estimate()
    if admission.needs_estimate:
        vocabulary = tokenizers.find(request.model)
        prompt_tokens = await off_loop(large, vocabulary.estimate_request, request)
        output_tokens = None if request.max_tokens is None else request.max_tokens * request.choices
        models = _models(admission, gateway, request, record)
        estimate = Estimate(prompt_tokens, output_tokens, models, gateway.most_samples(request))
    await admission.admit(estimate)


async def admit_untranslated(record: AccessRecord, gateway: Gateway, request: Request, json_bytes: int) -> None:
    """Reserves a part of the limits of the key for a request of an API that is not translated.

    Args:
        record: The record of the exchange, with the admission.
        gateway: The gateway, which knows what backends may answer.
        request: The model that is asked for.
        json_bytes: Size of the body if it is JSON, else 0.

    Raises:
        DragomanError: A limit is reached.
    """
    if (admission := record.admission) is not None:
        models = _models(admission, gateway, request, record)
        await admission.admit(Estimate(json_bytes // _BYTES_PER_TOKEN, 0, models))


def settle(record: AccessRecord) -> None:
    """Counts what an exchange has used, and releases what it has reserved."""
    admission = record.admission
    if admission is None:
        return
    usage, attempts = record.usage, record.attempts
    has_left = record.status == CLIENT_LEFT and attempts.count > 0
    if record.first_s is None and not has_left:  # no model has begun to answer
        admission.settle(None)
        return
    if not usage.output_tokens and (has_left or record.delta_count):  # the model may have written more
        usage = admission.estimated_usage(usage, record.delta_count)
        if record.prices is not None:
            usage = record.priced(usage, record.prices)
    admission.settle(Used(usage, attempts.upstream, attempts.model, record.seconds))


def observe_sent(record: AccessRecord, message: MutableMapping[str, Any], dialect: str) -> None:
    """Adds the headers about the limits to the response, and counts the deltas of a stream.

    Args:
        record: The record of the exchange, with the admission.
        message: The ASGI message, which is changed.
        dialect: The API of the client.
    """
    admission = record.admission
    if admission is None:
        return
    if message["type"] == "http.response.body":
        record.delta_count += message.get("body", b"").count(_DELTA)
    elif message["type"] == "http.response.start" and admission.states:
        forwarded = [field for field in message["headers"] if not field[0].startswith(UPSTREAM_LIMITS)]
        added = [(name.encode(), value.encode()) for name, value in _headers(admission, dialect).items()]
        message["headers"] = [*forwarded, *added]


def _headers(admission: Admission, dialect: str) -> Mapping[str, str]:
    if dialect == "anthropic_messages":
        return anthropic_headers(admission.states, time.time())
    return openai_headers(admission.states)


def _models(admission: Admission, gateway: Gateway, request: Request, record: AccessRecord) -> list[tuple[str, str]]:
    """Returns the backends that may answer, if their prices are needed."""
    if not admission.needs_models:
        return []
    try:
        return gateway.answering(request, record.client)
    except DragomanError:  # the request is refused for this later
        return []
