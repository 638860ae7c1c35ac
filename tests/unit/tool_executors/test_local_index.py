"""Search in a folder of documents."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.errors import BackendUnavailableError
from dragoman.tool_executors.local_index import LocalSearch
from dragoman.vendor_tools.tool import SearchHit, VendorTool

TOOL = VendorTool("web_search", "web_search", "web_search")


async def found(folder: Path, query: str, base_url: str = "https://x.org/docs/") -> list[SearchHit]:
    search = LocalSearch(folder, base_url, 5)
    await search.start()
    try:
        return list(await search.find(query, TOOL))
    finally:
        await search.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub folder").mkdir()
    (tmp_path / "a.md").write_text("# Penguins\n\nPenguins live in the south.\n")
    (tmp_path / "sub folder" / "b.html").write_text(
        "<html><head><title>Bears &amp; ice</title><style>penguin{}</style></head>"
        "<body><script>penguin()</script><h1>Bears</h1><p>Polar bears live in the north.</p></body></html>"
    )
    (tmp_path / "c.txt").write_text("Whales swim everywhere.\n")
    return tmp_path


async def test_words_are_found_in_any_form_and_case(folder: Path) -> None:
    (hit,) = await found(folder, "PENGUIN?")
    assert hit == SearchHit("https://x.org/docs/a.md", "Penguins", "# Penguins\n\nPenguins live in the south.")


async def test_best_document_is_first(folder: Path) -> None:
    hits = await found(folder, "where do polar bears live")
    assert [hit.title for hit in hits] == ["Bears & ice", "Penguins"]
    assert hits[0].url == "https://x.org/docs/sub%20folder/b.html"
    assert hits[0].text == "Bears\n\nPolar bears live in the north."


@pytest.mark.parametrize("query", ["", "?!", 'NEAR("x" AND', "body:whales OR NOT", '"', "*"])
async def test_query_is_never_syntax(folder: Path, query: str) -> None:
    assert all(hit.title == "c" for hit in await found(folder, query))


async def test_each_document_is_one_result(folder: Path) -> None:
    (folder / "long.txt").write_text("\n\n".join(f"Paragraph {n} about zebras. " + "x " * 400 for n in range(30)))
    hits = await found(folder, "zebras")
    assert [hit.url for hit in hits] == ["https://x.org/docs/long.txt"]
    assert len(hits[0].text) <= 1600


async def test_urls_without_base_are_files(folder: Path) -> None:
    (hit,) = await found(folder, "whales", "")
    assert hit.url == (folder / "c.txt").as_uri()


async def test_hidden_linked_and_other_files_are_omitted(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("zebra")
    (folder / "link.txt").symlink_to(outside / "secret.txt")
    (folder / "linked").symlink_to(outside)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "d.txt").write_text("zebra")
    (folder / ".e.txt").write_text("zebra")
    (folder / "f.bin").write_bytes(b"zebra")
    (folder / "g.txt").write_bytes(b"zebra \xff\xfe")
    assert [hit.title for hit in await found(folder, "zebra")] == ["g"]


async def test_search_before_start_fails(folder: Path) -> None:
    with pytest.raises(BackendUnavailableError):
        await LocalSearch(folder, "", 5).find("x", TOOL)


class Held(LocalSearch):
    """Holds each query in its thread until `go` is set."""

    begun, go = threading.Event(), threading.Event()

    def _rows(self, match: str) -> list[Any]:
        self.begun.set()
        self.go.wait(10)
        return super()._rows(match)


async def test_index_is_closed_after_running_queries(folder: Path) -> None:
    search = Held(folder, "", 5)
    await search.start()
    finding = asyncio.create_task(search.find("whales", TOOL))
    await asyncio.to_thread(search.begun.wait, 10)
    closing = asyncio.create_task(search.close())
    await asyncio.sleep(0)
    assert not closing.done()
    search.go.set()
    assert [hit.title for hit in await finding] == ["c"]
    await closing
