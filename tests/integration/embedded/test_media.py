"""Images in the embedded model: the real engine with a projector made by hand (`support.color_projector`)."""

import base64
import io
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pypdf
import pytest
import pytest_asyncio
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import ConfigError, RequestError
from support.color_projector import write_projector
from support.events import all_events
from support.llama_server_program import llama_server_program
from support.scripted_llama import PROFILE, backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

_FONT = DictionaryObject(
    {NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")}
    | {NameObject("/BaseFont"): NameObject("/Helvetica")}
)
COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


@pytest.fixture(scope="module")
def projector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("projector") / "mmproj.gguf"
    write_projector(path, weights.find_weights(PROFILE.name))
    return path


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def seeing(projector: Path) -> AsyncIterator[EmbeddedModel]:
    embedded = backend(context_window=1024, max_concurrency=1, projector=str(projector))
    await embedded.start()
    yield embedded
    await embedded.close()


def png(color: tuple[int, int, int], side: int = 64) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(color) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def image(data: str, media_type: str = "image/png") -> v.Image:
    return v.Image(v.MediaSource(media_type, data))


def question(*parts: v.Part) -> v.Request:
    return v.Request(PROFILE.name, (v.Message("user", parts),), max_tokens=24, sampling=v.Sampling(temperature=0))


async def ask(embedded: EmbeddedModel, asked: v.Request) -> tuple[str, list[str], v.Usage]:
    events = await all_events(embedded.generate(asked, ExchangeContext("id", 0, iter("abcdefgh").__next__)))
    text = "".join(event.text for event in events if isinstance(event, ev.TextDelta))
    warnings = [event.message for event in events if isinstance(event, ev.Notice)]
    return text, warnings, [event.usage for event in events if isinstance(event, ev.UsageUpdate)][-1]


@pytest.mark.parametrize("color", COLORS)
async def test_the_model_sees_the_image(seeing: EmbeddedModel, color: str) -> None:
    shown = image(png(COLORS[color]))
    text, warnings, usage = await ask(seeing, question(v.Text("The word is"), shown, v.Text("Repeat the word.")))
    assert color in text
    assert not any(other in text for other in COLORS if other != color)
    assert not warnings
    assert usage.output_tokens


async def test_llama_server_sees_the_image(projector: Path) -> None:
    own = {"engine": "llama-server", "llama_server": llama_server_program(), "gpu_layers": 0}
    embedded = backend(context_window=1024, max_concurrency=1, projector=str(projector), **own)
    await embedded.start()
    shown = image(png(COLORS["green"]))
    text, warnings, _ = await ask(embedded, question(v.Text("The word is"), shown, v.Text("Repeat the word.")))
    await embedded.close()
    assert "green" in text
    assert not warnings


async def test_images_stay_where_they_were(seeing: EmbeddedModel) -> None:
    red, blue = (image(png(COLORS[color])) for color in ("red", "blue"))
    prepared = seeing.prepare(question(v.Text("first"), red, v.Text("second"), blue, v.Text("third")))
    assert prepared.body["media"] == (red.source.data, blue.source.data)
    before, between, after = prepared.body["prompt"]
    assert before.endswith("first\n")
    assert between == "\nsecond\n"
    assert after.startswith("\nthird")


async def test_an_image_in_a_tool_result_is_seen(seeing: EmbeddedModel) -> None:
    result = v.ToolResult("c1", (v.Text("The word is"), image(png(COLORS["green"]))))
    text, warnings, _ = await ask(seeing, question(result, v.Text("Repeat the word.")))
    assert "green" in text
    assert not warnings


async def test_the_prompt_with_an_image_is_cached(seeing: EmbeddedModel) -> None:
    asked = question(v.Text("The word is"), image(png(COLORS["red"], 48)), v.Text("Say it."))
    _, _, first = await ask(seeing, asked)
    _, _, second = await ask(seeing, asked)
    assert second.cached_input_tokens >= second.input_tokens - 1 > first.cached_input_tokens


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (image(base64.b64encode(b"RIFF....WEBPVP8 ").decode(), "image/webp"), "this file format cannot be read"),
        (image("%%%"), "it is not valid base64"),
        (v.Image(v.MediaSource(url="https://example.com/a.png")), "only its URL or id is given"),
        (v.Audio(v.MediaSource("audio/wav", base64.b64encode(b"RIFF0000WAVE").decode())), "audio (this model"),
        (v.Document(v.MediaSource("application/pdf", "JVBERg==")), "files (this file format cannot"),
    ],
)
async def test_what_the_model_is_not_shown_is_named(
    seeing: EmbeddedModel, part: v.Image | v.Audio | v.Document, reason: str
) -> None:
    _, warnings, _ = await ask(seeing, question(part, v.Text("Hello")))
    assert any(reason in warning for warning in warnings), warnings


def pdf(*pages: str | tuple[int, int, int]) -> v.Document:
    """A page is a text, or the colour of its whole area."""
    writer = pypdf.PdfWriter()
    for content in pages:
        page = writer.add_blank_page(64, 64)
        stream = DecodedStreamObject()
        if isinstance(content, str):
            font = DictionaryObject({NameObject("/F"): _FONT})
            page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): font})
            stream.set_data(f"BT /F 6 Tf 4 32 Td ({content}) Tj ET".encode())
        else:
            red, green, blue = (value / 255 for value in content)
            stream.set_data(f"{red} {green} {blue} rg 0 0 64 64 re f".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    file = io.BytesIO()
    writer.write(file)
    return v.Document(v.MediaSource("application/pdf", base64.b64encode(file.getvalue()).decode()))


async def test_a_pdf_is_shown_as_its_text(seeing: EmbeddedModel) -> None:
    shown = await seeing.show_documents(question(pdf("Paris in May", "second page")))
    assert shown.messages[0].parts == (v.Text("Paris in May\n\nsecond page"),)
    text, warnings, _ = await ask(seeing, question(v.Text("The word is"), pdf("tomato"), v.Text("Repeat the word.")))
    assert "tomato" in text
    assert not warnings


async def test_a_page_without_text_is_shown_as_a_page_image(seeing: EmbeddedModel) -> None:
    scan = pdf("The word is", COLORS["red"])
    text, warnings, _ = await ask(seeing, question(scan, v.Text("Repeat the word.")))
    assert "red" in text
    assert not warnings


async def test_pages_without_text_are_no_images_for_a_model_without_projector() -> None:
    blind = backend()
    shown = await blind.show_documents(question(pdf("words", COLORS["red"])))
    assert shown.messages[0].parts == (v.Text("words"),)
    scanned = question(pdf(COLORS["red"]))
    assert await blind.show_documents(scanned) == scanned
    assert [notice.detail for notice in blind.prepare(scanned).warnings] == ["files"]


async def test_text_files_are_shown_as_text() -> None:
    note = v.Document(v.MediaSource("text/plain", base64.b64encode("Grüße".encode()).decode()), "note.txt")
    result = v.ToolResult("c1", (note,))
    shown = await backend().show_documents(question(note, result))
    text = (v.Text("note.txt"), v.Text("Grüße"))
    assert shown.messages[0].parts == (*text, v.ToolResult("c1", text))


async def test_a_damaged_image_is_an_error_of_the_request(seeing: EmbeddedModel) -> None:
    damaged = base64.b64encode(base64.b64decode(png(COLORS["red"]))[:60]).decode()
    with pytest.raises(RequestError, match="Failed to load image"):
        await ask(seeing, question(image(damaged), v.Text("Hello")))


async def test_a_cancelled_image_request_frees_its_slot(seeing: EmbeddedModel) -> None:
    long = question(v.Text("Write a list of 500 animals."), image(png(COLORS["red"])))
    stream = seeing.generate(long, ExchangeContext("id", 0, iter("abcdefgh").__next__))
    async for batch in stream:
        if any(isinstance(event, ev.TextDelta) for event in batch):
            break
    await stream.aclose()
    text, _, _ = await ask(seeing, question(v.Text("The word is"), image(png(COLORS["blue"])), v.Text("Repeat it.")))
    assert "blue" in text
    assert seeing.engine.active == 0


async def test_images_are_named_where_the_model_has_no_projector() -> None:
    blind = backend()
    assert not blind.shows_images(PROFILE.name)
    prepared = blind.prepare(question(image(png(COLORS["red"])), v.Text("Hello")))
    assert [notice.detail for notice in prepared.warnings] == ["images"]
    assert "media" not in prepared.body


async def test_a_model_is_no_projector() -> None:
    with pytest.raises(ConfigError, match="expected a projector"):
        backend(projector=str(weights.find_weights(PROFILE.name)))


async def test_text_that_looks_like_a_mark_stays_text(seeing: EmbeddedModel) -> None:
    prepared = seeing.prepare(question(v.Text("[media 0123 0]"), image(png(COLORS["red"]))))
    assert len(prepared.body["media"]) == 1
    assert "[media 0123 0]" in prepared.body["prompt"][0]
