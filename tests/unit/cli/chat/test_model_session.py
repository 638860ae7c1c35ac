"""The model of a chat, and what is shown while it starts."""

import argparse
import io
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from dragoman import compose
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.chat import model_session
from dragoman.cli.chat.background_loop import BackgroundLoop
from dragoman.cli.chat.model_session import ModelSession, Source
from dragoman.config import Config
from support.scripted_backend import Scripted, plain


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_report_after_start_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded engine reports its hardware when the prompt may be shown already."""
    reports: list[Callable[[str], None]] = []

    def build(config: Config, *, report: Callable[[str], None], **_: Any) -> list[Scripted]:
        reports.append(report)
        report("loading m.gguf")
        return [Scripted(plain)]

    async def select(config: Config, *_: Any) -> Source:
        return Source(config, False, "m", "here")

    monkeypatch.setattr(compose, "build_backends", build)
    monkeypatch.setattr(model_session, "_select", select)
    out = Terminal()
    with (
        BackgroundLoop() as loop,
        closing(ModelSession(loop, argparse.Namespace(), Config(), {}, ProgressLine(out))) as session,
    ):
        session.open("")
        assert "loading m.gguf" in out.getvalue()
        shown = out.getvalue()
        reports[0]("m: CPU only")
        assert out.getvalue() == shown
