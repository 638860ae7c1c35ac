"""Searches a folder of documents with an index in memory, SQLite's FTS5: no network, no server.

The index is built at the start. A query finds the passages that contain any of its words, the best by BM25 first; of
each document only its best passage is a result.
"""

import asyncio
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.tool_executors.documents import read_documents
from dragoman.tool_executors.web_search import WebSearch
from dragoman.vendor_tools.tool import SearchHit, VendorTool

_WORD: Final = re.compile(r"\w+")
_MAX_WORDS: Final = 64
_CANDIDATES: Final = 200
"""Passages that a search considers."""
_CREATE: Final = "CREATE VIRTUAL TABLE passages USING fts5(path UNINDEXED, title, body, tokenize = 'porter unicode61')"
_FIND: Final = (
    "SELECT path, title, body FROM passages WHERE passages MATCH ? ORDER BY bm25(passages, 0.0, 4.0, 1.0) LIMIT ?"
)


class LocalSearch(WebSearch):
    """Searches the documents of a folder."""

    def __init__(self, folder: Path, base_url: str, max_results: int) -> None:
        """
        Args:
            folder: The folder of the documents.
            base_url: Its URL, for the results; empty: `file:` URLs.
            max_results: Maximum results of a search.
        """
        super().__init__(max_results)
        self._folder = folder
        self._base_url = (base_url or folder.resolve().as_uri()).rstrip("/")
        self._index: sqlite3.Connection | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Builds the index.

        Raises:
            ConfigError: This Python's SQLite has no FTS5.
        """
        if self._index is None:
            self._index = await asyncio.to_thread(self._build)

    async def close(self) -> None:
        """Drops the index, after the query that runs in a thread."""
        async with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None

    async def find(self, query: str, tool: VendorTool) -> Sequence[SearchHit]:
        """Returns the best passages of the documents.

        Raises:
            BackendUnavailableError: The index is not open.
        """
        terms = list(dict.fromkeys(_WORD.findall(query.lower())))[:_MAX_WORDS]
        if not terms:
            return ()
        match = " OR ".join(f'"{word}"' for word in terms)
        async with self._lock:
            rows = await asyncio.to_thread(self._rows, match)
        best: dict[str, SearchHit] = {}
        for path, title, body in rows:
            best.setdefault(path, SearchHit(f"{self._base_url}/{quote(path)}", title, body))
        return tuple(best.values())

    def _build(self) -> sqlite3.Connection:
        index = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            index.execute(_CREATE)
        except sqlite3.OperationalError:
            index.close()
            message = "expected a SQLite with FTS5, got one without; use another Python"
            raise ConfigError(f"{message} - at tools.web_search.use") from None
        index.executemany("INSERT INTO passages VALUES (?, ?, ?)", read_documents(self._folder))
        index.commit()
        return index

    def _rows(self, match: str) -> list[tuple[str, str, str]]:
        if self._index is None:
            raise BackendUnavailableError("the index of documents is closed")
        return self._index.execute(_FIND, (match, _CANDIDATES)).fetchall()
