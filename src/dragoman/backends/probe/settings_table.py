"""The settings that a probe recommends, as text for the settings file."""

import json

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe.report import ProbeReport
from dragoman.catalog import servers


def settings_table(report: ProbeReport, api_key_env: str = "", name: str = "") -> str:
    """Returns the TOML table for the settings file.

    Args:
        report: the report about the server.
        api_key_env: the environment variable with its API key; "": none.
        name: the name of the upstream in the settings; "": that of its provider.
    """
    fields = {
        "url": report.url,
        "api": report.api if report.api != HttpConfig(url="").api else "",
        "provider": report.provider,
        "api_key_env": api_key_env,
        "tool_mode": report.choice.tool_mode,
        "call_format": report.choice.call_format,
        "context_window": _truncation_limit(report),
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items() if value]
    return "\n".join([f"[upstreams.{name or report.provider or 'upstream'}]", *lines])


def _truncation_limit(report: ProbeReport) -> int:
    """Returns the context size of a server that silently truncates prompts, so that Dragoman refuses them; else 0."""
    cuts = bool(report.provider) and servers.get(report.provider).cuts
    found = next((finding for finding in report.findings if finding.what == "context"), None)  # not of every probe
    return int(found.facts.get("tokens", 0)) if cuts and found else 0
