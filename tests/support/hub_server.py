"""A small Hugging Face Hub on loopback: lists of files, and downloads with their hash, size, commit and ranges."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

COMMIT = "c0" * 20
REPO = "owner/repo"


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub that `dragoman pull` needs."""

    protocol_version = "HTTP/1.1"
    server: "HubServer"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        server, url = self.server, urlsplit(self.path)
        if url.path == f"/api/models/{REPO}/tree/main" and not server.broken:
            return self.list_files(int(parse_qs(url.query).get("cursor", ["0"])[0]))
        wanted = self.headers.get("Range") or ""
        server.requests.append(f"{self.command} {wanted}".strip())
        start, _, end = wanted.removeprefix("bytes=").partition("-")
        content, sha256 = server.find(url.path)
        begin, stop = int(start or 0), min(int(end or len(content) - 1), len(content) - 1) + 1
        known = bool(sha256) and not server.broken
        body = memoryview(content if known else b"")[begin:stop]
        self.send_response((206 if wanted else 200) if known else server.broken or 404)
        if not known and not server.broken:
            self.send_header("X-Error-Code", "RepoNotFound" if url.path.startswith("/api/") else "EntryNotFound")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{sha256}"')
        self.send_header("Content-Length", str(len(body)))
        if wanted:
            self.send_header("Content-Range", f"bytes {begin}-{stop - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            cut = server.next_cut()
            self.wfile.write(body[:cut] if cut else body)
            self.close_connection = bool(cut)
            if cut and server.on_cut:
                server.on_cut()

    def list_files(self, cursor: int) -> None:
        server = self.server
        server.requests.append(f"LIST {cursor}".removesuffix(" 0"))
        names = list(server.files)
        page, rest = names[cursor : cursor + server.page_size], names[cursor + server.page_size :]
        entries = [{"type": "directory", "oid": "00", "size": 0, "path": "folder"}] + [
            {
                "type": "file",
                "oid": "00",
                "size": len(server.files[name]),
                "path": name,
                "lfs": {"oid": server.sha256_of(name), "size": len(server.files[name]), "pointerSize": 130},
            }
            for name in page
        ]
        body = json.dumps(entries).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if rest:
            where = f"{server.address}/api/models/{REPO}/tree/main?recursive=true&cursor={cursor + len(page)}"
            self.send_header("Link", f'<{where}>; rel="next"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class HubServer(ThreadingHTTPServer):
    """The server and what it did."""

    broken = 0
    """The status of every response; 0: it works."""
    cut_at = 0
    """The bytes of the next body after which the connection is closed; 0: all."""
    cut_after = 0
    """Bodies before that one."""
    page_size = 1000

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Hub)
        self.files = dict(files)
        self.sha256 = ""
        """Stated in place of the real checksums, if set."""
        self.requests: list[str] = []
        self.on_cut: Callable[[], object] | None = None
        self.address = f"http://127.0.0.1:{self.server_port}"

    def next_cut(self) -> int:
        """Returns the bytes of this body after which the connection is closed; 0: all."""
        if self.cut_at and self.cut_after:
            self.cut_after -= 1
            return 0
        cut, self.cut_at = self.cut_at, 0
        return cut

    def sha256_of(self, name: str) -> str:
        return self.sha256 or hashlib.sha256(self.files[name]).hexdigest()

    def find(self, path: str) -> tuple[bytes, str]:
        """Returns the content and the checksum of a file; the checksum is empty if there is none."""
        for revision in ("main", COMMIT):
            name = path.removeprefix(f"/{REPO}/resolve/{revision}/")
            if name in self.files:
                return self.files[name], self.sha256_of(name)
        return b"", ""


@contextmanager
def hub(files: Mapping[str, bytes], sha256: str = "") -> Iterator[HubServer]:
    """A running Hub with these files in one repository."""
    with HubServer(files) as server:
        server.sha256 = sha256
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
