"""Launches of agents in a temporary home."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman import agents
from dragoman.agents import LaunchContext, LaunchPlan


def launch(
    name: str, *args: str, environ: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None, **more: Any
) -> LaunchPlan:
    more = {"url": "http://127.0.0.1:1", "model": "m", "folder": Path("/private"), **more}
    there = {Path(path): text for path, text in (files or {}).items()}
    wiring = LaunchContext(
        key="k",
        program="/bin/agent",
        args=args,
        environ=environ or {},
        home=Path("/home/ada"),
        read=there.get,
        **{"context_window": 131072, "output_tokens": 8192, **more},
    )
    return agents.get(name).launch(wiring)
