"""Probes of upstreams: results that are stored, and a probe that the user asks for."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import CHECKS, ProbeReport, cache, evidence, probe
from dragoman.backends.probe.evidence import StoredReport
from dragoman.backends.probe.report import ProbeFinding, Recommendation
from dragoman.backends.probe.settings_table import settings_table
from dragoman.catalog import servers
from dragoman.catalog.servers import Provider
from dragoman.console.upstreams.views import FindingView, NamedValue, ProbeProgress, ProbeView, QuirkView
from dragoman.core.errors import RequestError, quote
from dragoman.redaction.arguments import has_secret_url

MAX_PROBES: Final = 50
"""Maximum number of stored results of one upstream."""
_VALUE_CHARS: Final = 500
"""Maximum length of a fact."""


def stored_probes(name: str, config: HttpConfig, models: Iterable[str]) -> list[ProbeView]:
    """Returns the stored results for these models, the newest first. Reads a file for each model.

    Args:
        name: the name of the upstream.
        config: the settings of the server.
        models: the models.
    """
    found = []
    for model in models:
        stored = evidence.load_report(config, model)
        if stored is not None:
            found.append(view_of_report(name, stored, config))
        elif (known := cache.load(config, model)) is not None:
            found.append(_view(known.model, known.api, known.provider, known.choice))
        if len(found) == MAX_PROBES:
            break
    return sorted(found, key=lambda view: -view.probed_s)


def view_of_report(name: str, stored: StoredReport, config: HttpConfig) -> ProbeView:
    """Returns what the page shows of a report.

    Args:
        name: the name of the upstream.
        stored: the report.
        config: the settings of the server.
    """
    report = stored.report
    # The stored report has only scheme and host of the URL.
    full = report if has_secret_url(config.url) else replace(report, url=config.url)
    return replace(
        _view(report.model, report.api, report.provider, report.choice),
        title=report.title,
        version=report.version,
        probed_s=stored.probed_s,
        seconds=report.seconds,
        findings=[_finding(each) for each in report.findings],
        settings=settings_table(full, config.api_key_env, name),
    )


def _view(model: str, api: str, provider: str, choice: Recommendation) -> ProbeView:
    """Returns what is known of a result without its report."""
    row = find_provider(provider)
    quirks = row.quirks if row else ()
    return ProbeView(
        model=model,
        api=api,
        provider=provider,
        title=row.title if row else "",
        version="",
        probed_s=0.0,
        seconds=0.0,
        tool_mode=choice.tool_mode,
        call_format=choice.call_format,
        constrain=list(choice.constrain),
        why=choice.why,
        findings=[],
        quirks=[QuirkView(description=quirk.description, source=quirk.source) for quirk in quirks],
        settings="",
    )


def find_provider(name: str) -> Provider | None:
    """Returns the row of the catalogue of servers with this name, or None."""
    return next((each for each in servers.providers() if each.name == name), None)


def _finding(finding: ProbeFinding) -> FindingView:
    return FindingView(what=finding.what, verdict=finding.verdict, text=finding.text, facts=named_values(finding.facts))


def named_values(facts: Mapping[str, object]) -> list[NamedValue]:
    """Returns facts for people: text as it is, and other values as JSON.

    Args:
        facts: the values by their names.
    """
    return [NamedValue(name=name.replace("_", " "), value=_text(value)) for name, value in facts.items()]


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"


class Probes:
    """Probes that users ask for; one at a time for each upstream."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    async def run(self, backend: HttpBackend, model: str) -> AsyncGenerator[tuple[str, object], None]:
        """Probes a model, and puts the result in force.

        Args:
            backend: the upstream.
            model: the model; "": the only one of the server.

        Yields:
            The checks as they begin, then the result.

        Raises:
            DragomanError: the server does not respond, lists several models, or is being probed already.
        """
        name, config = backend.name, backend.config
        if name in self._running:
            raise RequestError(f"expected an upstream that is not being probed, got {quote(name)}: wait for its result")
        self._running.add(name)
        checks: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.create_task(probe(config, os.environ, model, report_progress=checks.put_nowait))
        task.add_done_callback(lambda done: checks.put_nowait(""))
        number = 0
        try:
            while check := await checks.get():
                number += 1
                yield "progress", ProbeProgress(what=check, number=number, count=len(CHECKS))
            report = await task
            stored = await asyncio.to_thread(_store, config, report)
            if backend.auto_mode is not None:
                backend.auto_mode.reload_cached(report.model)
            yield "result", view_of_report(name, stored, config)
        finally:
            task.cancel()
            self._running.discard(name)


def _store(config: HttpConfig, report: ProbeReport) -> StoredReport:
    """Stores a result for this gateway and later ones."""
    cache.store(config, report.model, report.provider, report.fingerprint, report.choice)
    return evidence.store_report(config, report)
