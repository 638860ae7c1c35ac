"""Sampling settings that the engine gets, and settings that it does not support."""

import msgspec
import pytest

from dragoman.backends.text_mode.sampling import engine_settings, ignored_settings
from dragoman.core import messages as v
from dragoman.core.errors import RequestError


def request(sampling: v.Sampling | None = None, **extra: object) -> v.Request:
    raw = {k: msgspec.Raw(msgspec.json.encode(value)) for k, value in extra.items()}
    return v.Request("m", (), sampling=sampling or v.Sampling(), extra=raw)


def test_api_sampling_settings_are_forwarded() -> None:
    assert engine_settings(request(v.Sampling(temperature=0.5, seed=2**63))) == {"temperature": 0.5, "seed": 2**63}
    assert engine_settings(request(v.Sampling(top_k=2**40))) == {"top_k": 2**31 - 1}
    assert engine_settings(request(v.Sampling(top_k=-(2**40)))) == {"top_k": -1}


def test_open_model_sampling_settings_are_forwarded() -> None:
    assert engine_settings(request(min_p=0.1, repetition_penalty=1.1, repeat_last_n=3)) == {
        "min_p": 0.1,
        "repeat_penalty": 1.1,
    }
    assert engine_settings(request(logit_bias={"5": -100, "17": 1.5})) == {"logit_bias": [(5, -100), (17, 1.5)]}
    assert engine_settings(request(logit_bias=None, min_p=None)) == {}


WRONG = [
    ("min_p", 2, "expected a number from 0 to 1, got 2 - at $.min_p"),
    ("min_p", "x", "expected number, got string - at $.min_p"),
    ("logit_bias", [1], "expected object, got array - at $.logit_bias"),
    ("logit_bias", {"the": 1}, "expected the numbers of tokens as names, got 'the' - at $.logit_bias"),
    ("logit_bias", {"5": 101}, "expected a number from -100 to 100, got 101 - at $.logit_bias.5"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_invalid_sampling_setting_is_rejected(name: str, value: object, message: str) -> None:
    with pytest.raises(RequestError) as found:
        engine_settings(request(**{name: value}))
    assert found.value.message == message


def test_unsupported_settings_are_reported() -> None:
    assert ignored_settings(request(logprobs=True, top_logprobs=3, user="u", min_p=0.1)) == ["logprobs", "top_logprobs"]
    assert ignored_settings(request(reasoning={"effort": "low"})) == ["reasoning"]
    assert ignored_settings(request(logprobs=False, modalities=None, mcp_servers=[])) == []
