"""Token estimates: compared with real tokenizers, and for all parts of a request."""

import base64
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

import msgspec
import pytest
from bench.corpora import ENGLISH_AND_CODE, corpora
from bench.tokens import GOAL_PERCENT, errors
from bench.vocabularies import counters

from dragoman.catalog import tokenizers
from dragoman.catalog.tokenizers import estimators, find, read
from dragoman.core import messages as v
from dragoman.core.errors import ConfigError
from dragoman.core.token_estimate import GENERIC, IMAGE_TOKENS, SHAPES, TokenEstimator, image_size
from support import cpu_cost
from support.check_each import check_each
from support.sampling import sample


@cache
def texts() -> dict[str, list[str]]:
    return {kind: pieces for kind, pieces in corpora("measured").items() if kind in ENGLISH_AND_CODE}


def test_estimate_is_close_to_real_tokenizer(subtests: pytest.Subtests) -> None:
    """In another process, as a vocabulary takes 50 MB."""

    def check(name: str) -> None:
        assert name in counters(), "the test dependency quicktok-v1 is missing"
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            found, generic = other.map(errors, [texts()] * 2, [name] * 2, [estimators()[name], GENERIC])
        assert {kind: e for kind, e in found.kinds.items() if abs(e) > GOAL_PERCENT} == {}
        assert found.ninth < 2 * GOAL_PERCENT
        assert {kind: e for kind, e in generic.kinds.items() if abs(e) > 1.5 * GOAL_PERCENT} == {}

    assert {"prose", "Python", "C", "JSON"} <= set(texts())
    check_each(subtests, sample(("o200k", "cl100k", "llama3", "qwen3"), 1, "counters"), check)


def test_every_installed_tokenizer_has_estimator() -> None:
    assert set(counters()) <= set(estimators())


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-opus-4-8", "claude4.7"),
        ("claude-sonnet-5-20260901", "claude4.7"),
        ("sonnet", "claude4.7"),
        ("opus[1m]", "claude4.7"),
        ("claude-sonnet-4-5-20250929", "claude3"),
        ("claude-3-5-haiku-latest", "claude3"),
        ("gpt-5.2-codex", "o200k"),
        ("o4-mini", "o200k"),
        ("gpt-4o-mini", "o200k"),
        ("gpt-4-turbo", "cl100k"),
        ("qwen2.5-coder-1.5b", "qwen3"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3"),
        ("deepseek-r1-distill-llama-8b", "llama3"),
        ("deepseek-chat", "deepseek"),
        ("mistral-small3.2:24b", "tekken"),
        ("devstral-2", "tekken"),
        ("gemma3:4b", "gemma"),
        ("qwen3.5-9b", ""),
        ("glm-5", ""),
    ],
)
def test_model_name_selects_tokenizer_family(model: str, family: str) -> None:
    assert find(model) is (estimators()[family] if family else GENERIC)


def test_tokenizer_row_without_all_weights_is_rejected() -> None:
    row = '[[family]]\nname = "x"\nnames = ["x"]\nsource = "x"\nweights = { %s }'
    assert read((row % ", ".join(f'"{s}" = 1' for s in SHAPES)).encode())[0].name == "x"
    with pytest.raises(ConfigError, match="expected a weight for each shape of x"):
        read((row % '"a" = 1').encode())
    with pytest.raises(ConfigError, match="tokens file: "):
        read(b"family = 3")


def test_empty_text_is_zero_tokens_and_any_text_at_least_one() -> None:
    assert GENERIC.estimate("") == 0
    assert [GENERIC.estimate(text) for text in ("a", " ", "é", "\ud800")] == [1, 1, 2, 1]


def test_long_word_is_many_tokens() -> None:
    assert GENERIC.estimate("a" * 1000) >= 50


@pytest.mark.parametrize("text", ["words and words ", "日本語の文章", "aB3+", '{"a": [1, 2]},\n'])
def test_estimate_time_is_linear(text: str) -> None:
    def made(size: int) -> Callable[[], object]:
        return partial(GENERIC.estimate, text * (size // len(text)))

    assert cpu_cost.growth(made, 100_000, 1_000_000, most=3) < 3


def request(*parts: v.Part, **more: object) -> v.Request:
    return v.Request("m", (v.Message("user", parts),), **more)  # type: ignore[arg-type]


def added_tokens(*parts: v.Part, **more: object) -> int:
    """Returns the tokens that the parts add to an empty request."""
    return GENERIC.estimate_request(request(*parts, **more)) - GENERIC.estimate_request(request())


LONG_TEXT = "The sea is large and the ships on it are small. " * 20
N = GENERIC.estimate(LONG_TEXT)


@pytest.mark.parametrize(
    "part",
    [
        v.Text(LONG_TEXT),
        v.Refusal(LONG_TEXT),
        v.Reasoning(LONG_TEXT),
        v.ToolCall("1", "look", '{"text": "' + LONG_TEXT + '"}'),
        v.ToolResult("1", (v.Text(LONG_TEXT),)),
        v.Document(v.MediaSource(text=LONG_TEXT), "A title"),
        v.UnknownPart("new_block", msgspec.Raw(b'{"text": "' + LONG_TEXT.encode() + b'"}')),
    ],
    ids=lambda part: type(part).__name__,
)
def test_text_of_every_part_is_counted(part: v.Part) -> None:
    assert N <= added_tokens(part) < N + 40


def test_tools_and_response_schema_are_counted() -> None:
    tool = v.Tool("look", LONG_TEXT, '{"type":"object","properties":{"at":{"description":"' + LONG_TEXT + '"}}}')
    vendors = v.Tool("", kind="web_search", extra={"about": msgspec.Raw(b'"' + LONG_TEXT.encode() + b'"')})
    assert 2 * N < added_tokens(tools=(tool,)) < 2 * N + 200
    assert 4 * N < added_tokens(tools=(tool, tool)) < 4 * N + 250
    assert N < added_tokens(tools=(vendors,)) < N + 200
    assert N <= added_tokens(response_schema='{"description":"' + LONG_TEXT + '"}') < N + 20


def test_images_documents_and_audio_are_counted() -> None:
    picture = v.Image(v.MediaSource("image/png", data=PNG))
    assert added_tokens(picture) == 3 * 2
    assert added_tokens(v.ToolResult("1", (picture, picture))) == added_tokens(v.ToolResult("1", ())) + 12
    assert added_tokens(v.Image(v.MediaSource(url="https://example.com/a.png"))) == IMAGE_TOKENS
    assert added_tokens(v.Document(v.MediaSource("application/pdf", data="A" * 200_000))) == 4 * 2250
    assert added_tokens(v.Document(v.MediaSource(file_id="f"))) == 2250
    assert added_tokens(v.Audio(v.MediaSource("audio/mp3", data="A" * 21_333))) == 10


def test_large_image_is_counted_at_scaled_size() -> None:
    large = v.Image(v.MediaSource("image/png", data=png(4000, 3000)))
    weights = dict.fromkeys(SHAPES, 1.0)
    assert added_tokens(large) == IMAGE_TOKENS
    assert TokenEstimator(weights, 4784).estimate_request(request(large)) >= 4784


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4) + b"\x08\x06\0\0\0"
    return base64.b64encode(head + bytes(100)).decode()


PNG = png(60, 40)
GIF = b"GIF89a" + (60).to_bytes(2, "little") + (40).to_bytes(2, "little") + bytes(80)
APP = b"\xff\xe0\x00\x10JFIF" + bytes(10)
FRAME = b"\xff\xc2\x00\x11\x08" + (40).to_bytes(2) + (60).to_bytes(2) + bytes(80)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (base64.b64decode(PNG), (60, 40)),
        (GIF, (60, 40)),
        (b"\xff\xd8" + APP + FRAME, (60, 40)),
        (b"\xff\xd8" + APP + APP + FRAME, (60, 40)),
        (b"\xff\xd8" + APP + b"\xff\xc4\x00\x04ab" + FRAME, (60, 40)),
        (b"\xff\xd8" + APP, None),
        (b"\xff\xd8" + bytes(50), None),
        (b"\x89PNG\r\n\x1a\n", None),
        (b"RIFF" + bytes(60), None),
        (b"", None),
    ],
)
def test_image_size_is_read_from_header(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(base64.b64encode(data).decode()) == size


@pytest.mark.parametrize("data", ["%%%", "iVBORw0", "é" * 70])
def test_invalid_base64_image_has_no_size(data: str) -> None:
    assert image_size(data) is None


def test_tokenizer_families_have_different_estimates() -> None:
    text = "\n".join(texts()["Python"][:3])
    assert tokenizers.find("claude-opus-5").estimate(text) > 1.3 * tokenizers.find("gpt-5").estimate(text)
