"""Request bodies in gzip, deflate and zstd: decoded, limited by decoded size, rejected if damaged."""

import gzip
import json
import zlib
from collections.abc import Callable

import httpx2
import pytest
from backports import zstd

from dragoman.config.server import ServerConfig
from dragoman.core.errors import ContentEncodingError, RequestError, RequestTooLargeError
from dragoman.gateway.gateway import Gateway
from dragoman.server import encodings
from dragoman.server.app import App
from support import cpu_cost
from support.fake_upstream import FRONTS
from support.scripted_backend import Scripted, plain

BODY = json.dumps({"text": ["Grüße"] * 999}).encode()


def bare(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare),
    "zstd": ("zstd", zstd.compress),
    "two": ("gzip, zstd", lambda data: zstd.compress(gzip.compress(data))),
    "with identity": ("identity, gzip", gzip.compress),
    "members": ("gzip", lambda data: gzip.compress(data[:500]) + gzip.compress(data[500:])),
    "frames": ("zstd", lambda data: zstd.compress(data[:500]) + zstd.compress(data[500:])),
}
each = pytest.mark.parametrize(("field", "encode"), ENCODINGS.values(), ids=ENCODINGS)


@each
def test_encoded_body_is_decoded(field: str, encode: Callable[[bytes], bytes]) -> None:
    assert encodings.decode_body(encode(BODY), encodings.parse_content_encoding(field), len(BODY)) == BODY


@each
def test_decoded_body_over_limit_is_rejected(field: str, encode: Callable[[bytes], bytes]) -> None:
    with pytest.raises(RequestTooLargeError):
        encodings.decode_body(encode(BODY), encodings.parse_content_encoding(field), len(BODY) - 1)


@each
def test_truncated_or_damaged_body_is_rejected(field: str, encode: Callable[[bytes], bytes]) -> None:
    data = encode(BODY)
    for broken in (data[:-1], data[: len(data) // 2], b"", b"{}", b"\xff" * 40):
        if broken == data[:-1] and field == "deflate":
            continue  # the last byte may be part of the checksum, or not needed
        with pytest.raises(RequestError, match="expected a"):
            encodings.decode_body(broken, encodings.parse_content_encoding(field), 10**6)


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_decompression_bomb_cost_is_bounded_by_limit(name: str) -> None:
    encode = ENCODINGS[name][1]
    data = encode(encode(bytes(20_000_000)))

    def decoded() -> None:
        with pytest.raises(RequestTooLargeError):
            encodings.decode_body(data, [name, name], 100_000)

    assert cpu_cost.least_s(decoded, below_s=0.5) < 0.5


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_body_with_too_many_members_is_rejected(name: str) -> None:
    with pytest.raises(RequestError, match="at most 1000 members"):
        encodings.decode_body(ENCODINGS[name][1](b"") * 200_000, [name], 10**6)


@pytest.mark.parametrize("field", ["br", "gzip, br", "gzip, gzip, gzip, gzip", "none", "gzip;q=1"])
def test_unsupported_encoding_is_rejected(field: str) -> None:
    with pytest.raises(ContentEncodingError):
        encodings.parse_content_encoding(field)


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("name", ["gzip", "zstd"])
async def test_every_api_accepts_encoded_bodies(path: str, name: str) -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    if path.endswith("responses"):
        asked = {"model": "m", "input": "hi"}
    app = App(Gateway([Scripted(plain)]), ServerConfig(max_body_bytes=1024))
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        head = {"content-encoding": name}
        encode = ENCODINGS[name][1]
        assert (await http.post(path, content=encode(json.dumps(asked).encode()), headers=head)).status_code == 200
        long = json.dumps({**asked, "metadata": {"x": "y" * 1024}}).encode()
        assert (await http.post(path, content=encode(long), headers=head)).status_code == 413
        assert (await http.post(path, content=b"{}", headers=head)).status_code == 400
