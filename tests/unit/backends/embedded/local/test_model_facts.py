"""Facts about models that are kept in the cache folder."""

from pathlib import Path
from typing import Any

import pytest

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.model_facts import find_local_models, read_formats
from dragoman.backends.text_mode import chat_template
from dragoman.core.errors import ConfigError
from support.gguf_files import WHOLE, gguf, text

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_opening_is_read_again_after_the_template_could_not_be_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "home"))
    content = gguf(WHOLE | {"tokenizer.chat_template": text(f"{TEMPLATE}<|im_start|>assistant\n<think>\n")})
    (tmp_path / "mine.gguf").write_bytes(content)
    model = find_local_models(EmbeddedConfig(discover=False, folders=(str(tmp_path),))).models["mine"]

    def missing(*_: Any) -> Any:
        raise ConfigError("expected the extra templates")

    with monkeypatch.context() as without:
        without.setattr(chat_template, "ChatTemplate", missing)
        assert read_formats([model])["mine"].reply_opening == ""
    assert read_formats([model])["mine"].reply_opening == "<think>"
    monkeypatch.setattr(chat_template, "ChatTemplate", missing)
    assert read_formats([model])["mine"].reply_opening == "<think>", "it is kept"
