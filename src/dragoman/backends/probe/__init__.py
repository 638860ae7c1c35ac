"""Probes what a server can do, with about a minute of short requests.

    report = await probe(HttpConfig(url="http://127.0.0.1:8080/v1"), os.environ)
    report.choice.tool_mode, report.choice.why

Each reply has at most 64 tokens, at temperature 0, and no side effects; what a server does not support is reported as
that. No model is loaded unless it is named or the only one.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from dragoman import dialects
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.probe.checks import CHECKS, DECISIVE_CHECKS
from dragoman.backends.probe.client import MAX_TOKENS, ProbeClient
from dragoman.backends.probe.connect import list_models, missing_key_error, open_connection, select_model
from dragoman.backends.probe.context import ProbeContext
from dragoman.backends.probe.recommend import recommend
from dragoman.backends.probe.report import ProbeFinding, ProbeReport, Recommendation
from dragoman.backends.probe.server_info import ServerInfo
from dragoman.catalog import servers
from dragoman.core.errors import BackendUnavailableError, UpstreamError

__all__ = [
    "CHECKS",
    "DECISIVE_CHECKS",
    "MAX_TOKENS",
    "TIMEOUT_S",
    "ProbeFinding",
    "ProbeReport",
    "Recommendation",
    "open_context",
    "probe",
    "run_checks",
]

TIMEOUT_S = 60.0


def _no_progress(what: str) -> None:
    pass


async def probe(
    config: HttpConfig,
    environ: Mapping[str, str],
    model: str = "",
    *,
    within_s: float = TIMEOUT_S,
    tokens: int = MAX_TOKENS,
    check_names: Iterable[str] = tuple(CHECKS),
    report_progress: Callable[[str], None] = _no_progress,
) -> ProbeReport:
    """Probes a model of a server.

    Args:
        config: the server's settings.
        environ: environment variables, for the key and the proxy.
        model: the model's name; empty: the only one.
        within_s: time for all requests but the first, for which a server may have to load the model.
        tokens: maximum tokens of a reply; a model whose reasoning cannot be switched off needs more.
        check_names: the checks to run.
        report_progress: is called with the name of each check before it runs.

    Raises:
        ConfigError: the URL, the key or the model is missing or wrong; the message says what to type.
        RemoteError: the server cannot be reached, or its model does not reply.
    """
    async with open_connection(config, environ) as connection:
        server_info = ServerInfo(connection, config.url)
        models = await list_models(connection, server_info, config, environ)
        context = await open_context(server_info, connection, config, select_model(models, model))
        context.client.timeout_s, context.client.max_tokens = within_s, tokens
        return await run_checks(context, config, check_names, report_progress)


async def open_context(
    server_info: ServerInfo, connection: UpstreamConnection, config: HttpConfig, model: str
) -> ProbeContext:
    """Returns the probe context of a model on a connected server; a provider in the settings takes precedence.

    Args:
        server_info: The facts that the server reports.
        connection: The connection to it.
        config: The settings of the server.
        model: The model to be probed.
    """
    provider = servers.get(config.provider) if config.provider else await server_info.find_provider()
    return ProbeContext(ProbeClient(connection, dialects.get(config.api), model), server_info, provider)


async def run_checks(
    context: ProbeContext,
    config: HttpConfig,
    check_names: Iterable[str],
    report_progress: Callable[[str], None] = _no_progress,
) -> ProbeReport:
    """Runs the checks and returns the report.

    Args:
        context: The server and its model.
        config: The settings of the server.
        check_names: Names of the checks, in order.
        report_progress: Called with the name of each check before it runs.

    Raises:
        ConfigError: the server rejects the key.
        RemoteError: the model does not reply.
    """
    began = time.monotonic()
    for name in check_names:
        report_progress(name)
        context.findings[name] = await CHECKS[name](context)
        _require_answer(context, config)
    server_info, provider, model = context.server_info, context.provider, context.model
    version = await server_info.get(provider.version, model) if provider and provider.version else None
    return ProbeReport(
        url=config.url,
        api=config.api,
        model=model,
        provider=provider.name if provider else "",
        title=provider.title if provider else "a server of an unknown provider",
        version=version or "",
        fingerprint=await server_info.fingerprint(provider, model),
        models=await server_info.models(),
        findings=tuple(context.findings.values()),
        choice=recommend(context.findings, provider),
        seconds=round(time.monotonic() - began, 1),
    )


def _require_answer(context: ProbeContext, config: HttpConfig) -> None:
    """Raises an error if the model does not reply at all, as further checks would fail too."""
    if context.findings["answers"].verdict != "no":
        return
    error = context.answers["greeting"].error
    if isinstance(error, UpstreamError) and error.status in (401, 403):
        raise missing_key_error(config)
    raise BackendUnavailableError(f"{context.model} does not answer: {context.findings['answers'].text}") from None
