"""The probe of real servers with a real model: Dragoman itself, by each of its APIs, and llama.cpp's own server."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import dialects
from dragoman.backends import weights
from dragoman.backends.http_config import HttpConfig
from dragoman.backends.probe import DECISIVE, Report, probe
from gateway import DEADLINE_S, MODEL, running

BESIDE = ("streams", "stop strings", "completions", "usage", "context")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the embedded model."""
    with running(tmp_path_factory.mktemp("own")) as gateway:
        yield gateway.url


FEW = 24
"""Tokens: whether a call is begun can be told by them."""


def probed(url: str, *only: str, api: str = "openai_chat") -> Report:
    return asyncio.run(
        probe(HttpConfig(url=url, api=api), {}, MODEL, only=(*DECISIVE, *only), tokens=FEW, within_s=120)
    )


@pytest.mark.parametrize("api", dialects.names())
def test_dragoman_itself_is_probed_by_each_of_its_apis(own: str, api: str) -> None:
    report = probed(own, *BESIDE, api=api)
    found = {finding.what: finding for finding in report.findings}
    assert report.kind == "dragoman"
    assert report.choice.mode == "native"
    assert found["tool_choice"].facts == {"required": "yes", "named": "yes", "none": "yes"}
    assert found["streams"].words.endswith("nothing odd")
    assert found["usage"].facts["whole"]
    assert found["usage"].facts["streamed"]
    assert found["completions"].verdict == "no"
    assert found["context"].facts == {"tokens": 8192}


LLAMA_SERVER = """
import os, sys
os.environ["OMP_WAIT_POLICY"] = "passive"  # threads that spin starve each other
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias = sys.argv[1], {"smollm2-135m"}
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel = 2048, 1
params.use_jinja = True
if len(sys.argv) > 2:
    params.chat_template = open(sys.argv[2]).read()
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
KNOWS_TOOLS = """{% for tool in tools or [] %}<|im_start|>system
Tools: {{ tool | tojson }} Write <tool_call>{"name": …, "arguments": …}</tool_call> to call one.<|im_end|>
{% endfor %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@contextlib.contextmanager
def llama_server(*args: str) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, "-c", LLAMA_SERVER, str(weights.find(MODEL)), *args]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        yield next(line for line in process.stdout if line.startswith("http")).strip()
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(DEADLINE_S)


def test_a_llama_server_that_drops_tools_is_told_from_one_that_shows_them(tmp_path: Path) -> None:
    with llama_server() as url:
        report = probed(f"{url}/v1", "constrained", *BESIDE)
    found = {finding.what: finding for finding in report.findings}
    assert report.kind == "llama_cpp"
    assert report.version
    assert found["chat template"].verdict == "no"
    assert found["tool calls"].facts == {"dropped": True}
    assert report.choice.mode == "inject"
    assert found["constrained"].facts == {"gbnf": "yes", "llguidance": "yes", "json_schema": "yes"}
    assert report.choice.constrain == "gbnf"
    assert found["streams"].words.endswith("nothing odd")
    assert found["stop strings"].verdict == "yes"
    assert found["completions"].verdict == "yes"
    assert found["usage"].facts == {"whole": True, "streamed": True, "cached": True}
    assert found["context"].facts == {"tokens": 2048}
    template = tmp_path / "tools.jinja"
    template.write_text(KNOWS_TOOLS)
    with llama_server(str(template)) as url:
        shows = probed(f"{url}/v1")
    assert shows.found("chat template").facts == {"format": "hermes", "by": "chat_template"}
    assert "dropped" not in shows.found("tool calls").facts
    assert shows.fingerprint != report.fingerprint
