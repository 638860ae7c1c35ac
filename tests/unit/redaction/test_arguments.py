"""Secrets in arguments of commands, and in URLs."""

import pytest

from dragoman.redaction.arguments import has_secret_argument, has_secret_url


@pytest.mark.parametrize(
    "arguments",
    [
        ["npx", "server", "--api-key", "abc"],
        ["npx", "server", "--api-key=abc"],
        ["env", "SEARCH_TOKEN=abc", "server"],
        ["npx", "mcp-remote", "https://example.com", "--header", "Authorization: Bearer abc"],
        ["npx", "mcp-remote", "https://example.com", "--header=X-Api-Key: abc"],
        ["server", "postgresql://me:abc@db.example.com/books"],
        ["server", "--db=postgresql://me:abc@db.example.com/books"],
        ["server", "https://example.com/mcp?token=abc"],
        ["server", "sk-0123456789abcdef0123"],
        ["server", "-p", "password=abcdef"],
        ["server", "--authorization", "abc"],
        ["server", "--author-token", "abc"],
    ],
)
def test_secret_is_found(arguments: list[str]) -> None:
    assert has_secret_argument(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/srv/files"],
        ["python", "-m", "server", "--port", "8080", "--log-level=debug"],
        ["server", "https://example.com/mcp?page=2"],
        ["server", "--auth", "--verbose"],
        ["server", "--author", "Ann"],
        ["server", "--author_name=Ann"],
        ["server", "a=" * 5000],
        ["server", "C:\\files", "http://[half"],
    ],
)
def test_usual_arguments_are_no_secrets(arguments: list[str]) -> None:
    assert not has_secret_argument(arguments)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://me:abc@127.0.0.1:9/v1", True),
        ("http://127.0.0.1:9/v1?api_key=1", True),
        ("https://far.example.com/v1?api-version=2026-01-01", False),
        ("http://127.0.0.1:9/v1", False),
        ("", False),
    ],
)
def test_secret_in_url_is_found(url: str, found: bool) -> None:
    assert has_secret_url(url) == found
