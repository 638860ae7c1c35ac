"""`dragoman models calibrate`, with the real engine and few prompts."""

import json
from itertools import islice
from pathlib import Path

import pytest

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.measurements import CallCalibration, load_calibration, store_calibration
from dragoman.backends.embedded.local.model_facts import find_local_models
from dragoman.backends.embedded.questions import calibration
from dragoman.cli import main
from support.gguf_files import WHOLE, gguf, text
from support.scripted_llama import PROFILE, backend

MODEL = PROFILE.name
TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
RESULT = CallCalibration("2026-11-27", 0.25, 30, 1, 32, 20)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that contains the small model, and no settings."""
    (tmp_path / "weights").mkdir()
    (tmp_path / f"weights/{MODEL}.gguf").symlink_to(weights.find_weights(MODEL))
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    monkeypatch.setenv("DRAGOMAN_EMBEDDED_DISCOVER", "false")
    monkeypatch.setenv("DRAGOMAN_EMBEDDED_THREADS", "1")
    return tmp_path


@pytest.mark.model
def test_result_is_stored_and_printed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [*islice(calibration.prompts(MODEL), 2), *islice(calibration.prompts(MODEL), 6, 8)]
    monkeypatch.setattr(calibration, "prompts", lambda _: iter(few))
    assert main(["models", "calibrate", MODEL, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["fitting"], printed["unfitting"]) == (2, 2)
    assert 0 <= printed["words_below"] < 1
    assert main(["models", "show", MODEL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"]["calibrated"] == printed


def test_unknown_model_is_an_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "calibrate", "smollm2-136m"]) == 2
    assert MODEL in capsys.readouterr().err


def test_own_calibration_counts_more_than_the_catalogue(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = find_local_models(EmbeddedConfig(discover=False)).models[MODEL]
    assert backend(decide_calls=True).words_below == PROFILE.words_below
    store_calibration(model, RESULT)
    assert load_calibration(model.path) == RESULT
    assert backend(decide_calls=True).words_below == 0.25
    assert backend(decide_calls=False).words_below == 0
    assert main(["models", "show", MODEL]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("calls"))
    assert "below a probability of 0.25: 20 of 32 prompts without a fitting tool, 1 of 30 with one" in line


@pytest.mark.parametrize(
    ("name", "template", "message"),
    [
        ("mine", f"{TURNS}<|im_start|>assistant\n<think>\n", "its template begins the reply with '<think>"),
        ("mine", f"{TURNS}<|python_start|>", "calls in the format pythonic"),
    ],
    ids=["begun reply", "calls like words"],
)
def test_model_that_is_never_asked_is_shown_as_such(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    template: str,
    message: str,
) -> None:
    (home / f"own/{name}.gguf").parent.mkdir()
    (home / f"own/{name}.gguf").write_bytes(gguf(WHOLE | {"tokenizer.chat_template": text(template)}))
    monkeypatch.setenv("DRAGOMAN_EMBEDDED_FOLDERS", str(home / "own"))
    assert main(["models", "show", name]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"calls free; never asked whether to call a tool: {message}" in shown
    assert "models calibrate" not in shown
    assert main(["models", "show", name, "--json"]) == 0
    assert message in json.loads(capsys.readouterr().out)["calls"]["never_asked"]
    assert main(["models", "calibrate", name]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_model_that_can_be_asked_has_no_reason_against_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", MODEL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"]["never_asked"] is None


def test_own_llama_server_is_never_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRAGOMAN_EMBEDDED_ENGINE", "llama-server")
    assert main(["models", "show", MODEL]) == 0
    assert "never asked whether to call a tool: embedded.engine is llama-server" in capsys.readouterr().out
    assert main(["models", "calibrate", MODEL]) == 2
    assert "embedded.engine is llama-server" in capsys.readouterr().err
