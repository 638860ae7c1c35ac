"""canitoolcall's probe of a running endpoint, against Dragoman with an upstream that does not support tools.

Nine scenarios, each complete and streamed, and whether both agree. The server is `servers/text_only.py`: a process
that accepts only plain turns, and streams the text that a model of a format would write.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.gateway import DEADLINE_S, running, until
from support.servers.real import HERE, first_url, process

FORMATS = ["hermes", "qwen3_xml", "kimi_k2", "llama3_json", "glm"]


@contextlib.contextmanager
def text_only(format: str) -> Iterator[str]:
    with process([sys.executable, str(HERE / "text_only.py"), format]) as (server, log):
        yield until(lambda: first_url(server, log), "the URL of the server") or ""


def probed(url: str) -> Any:
    command = ["-m", "canitoolcall", "probe", "--base-url", f"{url}/v1", "--model", "text", "--json", "-"]
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("format", FORMATS)
def test_canitoolcall_probe_passes_with_dragoman(format: str, tmp_path: Path) -> None:
    with text_only(format) as url:
        config = tmp_path / "config.toml"
        config.write_text(f'[upstreams.text]\nurl = "{url}/v1"\ntool_mode = "prompt"\ncall_format = "{format}"\n')
        with running(tmp_path, "--config", str(config)) as gateway:
            report = probed(gateway.url)
    assert report["summary"] == {"pass": 27, "fail": 0, "error": 0, "skip": 0}, report["outcomes"]
    assert [outcome["warnings"] for outcome in report["outcomes"]] == [[]] * 27


def test_canitoolcall_probe_fails_without_dragoman() -> None:
    with text_only("hermes") as url:
        report = probed(url)
    assert report["summary"] == {"pass": 0, "fail": 0, "error": 18, "skip": 9}
