"""Finds out what a server can do, in about a minute of short questions.

    report = await probe(HttpConfig(url="http://127.0.0.1:8080/v1"), os.environ)
    report.choice.mode, report.choice.why

Each answer is at most 64 tokens long, without chance, and of no consequence; what a server cannot answer is told as
that. No model is loaded that was not named, or is not the only one.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from dragoman import dialects
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.probe.checks import DECISIVE, MEASURES
from dragoman.backends.probe.client import TOKENS, Asker
from dragoman.backends.probe.connect import connected, model_of, reached, wants_key
from dragoman.backends.probe.context import Subject
from dragoman.backends.probe.recommend import choose
from dragoman.backends.probe.report import Choice, Finding, Report
from dragoman.backends.probe.server_info import Telling
from dragoman.catalog import servers
from dragoman.core.errors import BackendUnavailableError, UpstreamError

__all__ = ["DECISIVE", "MEASURES", "TOKENS", "WITHIN_S", "Choice", "Finding", "Report", "measured", "of", "probe"]

WITHIN_S = 60.0


def _silent(what: str) -> None:
    pass


async def probe(
    config: HttpConfig,
    environ: Mapping[str, str],
    model: str = "",
    *,
    within_s: float = WITHIN_S,
    tokens: int = TOKENS,
    only: Iterable[str] = tuple(MEASURES),
    tell: Callable[[str], None] = _silent,
) -> Report:
    """What was found out of this model of the server; `only` these measures, and `tell` is told of each.

    `within_s` is for all questions but the first, for which a server may have to load the model; `tokens` is the most
    of an answer: a model that thinks before it answers, and cannot be kept from it, needs more.

    Raises: ConfigError: the URL, the key or the model is missing or wrong; the message has what to type.
        RemoteError: the server is not there, or its model does not answer.
    """
    async with connected(config, environ) as connection:
        telling = Telling(connection, config.url)
        models = await reached(connection, telling, config, environ)
        subject = await of(telling, connection, config, model_of(models, model))
        subject.asker.within_s, subject.asker.tokens = within_s, tokens
        return await measured(subject, config, only, tell)


async def of(telling: Telling, connection: UpstreamConnection, config: HttpConfig, model: str) -> Subject:
    """A model of a server that is reached; what the settings say of its kind counts."""
    kind = servers.get(config.kind) if config.kind else await telling.kind()
    return Subject(Asker(connection, dialects.get(config.api), model), telling, kind)


async def measured(
    subject: Subject, config: HttpConfig, only: Iterable[str], tell: Callable[[str], None] = _silent
) -> Report:
    """What was found of it.

    Raises: ConfigError, RemoteError: as `probe`.
    """
    began = time.monotonic()
    for what in only:
        tell(what)
        subject.findings[what] = await MEASURES[what](subject)
        _check(subject, config)
    telling, kind, model = subject.telling, subject.kind, subject.model
    version = await telling.told(kind.version, model) if kind and kind.version else None
    return Report(
        url=config.url,
        api=config.api,
        model=model,
        kind=kind.name if kind else "",
        title=kind.title if kind else "a server of no known kind",
        version=version or "",
        fingerprint=await telling.fingerprint(kind, model),
        models=await telling.models(),
        findings=tuple(subject.findings.values()),
        choice=choose(subject.findings, kind),
        seconds=round(time.monotonic() - began, 1),
    )


def _check(subject: Subject, config: HttpConfig) -> None:
    """A model that does not even say hello need not be asked more."""
    if subject.findings["answers"].verdict != "no":
        return
    error = subject.heard["greeting"].error
    if isinstance(error, UpstreamError) and error.status in (401, 403):
        raise wants_key(config)
    raise BackendUnavailableError(f"{subject.model} does not answer: {subject.findings['answers'].words}") from None
