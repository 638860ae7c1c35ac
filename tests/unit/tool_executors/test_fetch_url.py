"""URLs that are fetched, in one form only, and URLs that are refused because parsers disagree about them."""

import pytest

from dragoman.tool_executors.fetch.fetch_url import RefusedUrlError, parse_fetch_url, redirect_url


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM:443/A?b=C#d", "https://example.com/A?b=C"),
        ("http://example.com:80/", "http://example.com/"),
        ("http://example.com:/x", "http://example.com/x"),
        ("http://example.com:8080/x", "http://example.com:8080/x"),
        ("https://example.com?q=1", "https://example.com/?q=1"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/ä"),
        ("http://[2606:4700:0:0::1111]/", "http://[2606:4700::1111]/"),
        ("http://93.184.216.34/", "http://93.184.216.34/"),
        ("https://a_b.example.com/user@x", "https://a_b.example.com/user@x"),
    ],
)
def test_url_has_one_form(written: str, canonical: str) -> None:
    assert str(parse_fetch_url(written)) == canonical
    assert str(parse_fetch_url(canonical)) == canonical


REFUSED = {
    # Schemes
    "file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:6379/_INFO",
    "data": "data:text/html,x",
    "jar": "jar:http://example.com!/x",
    "ftp": "ftp://example.com/",
    "javascript": "javascript:alert(1)",
    "no scheme": "//example.com/",
    "one slash": "http:/example.com/",
    "no slash": "http:example.com/",
    "three slashes": "http:///example.com/",
    "long s": "http\u017f://example.com/",
    # Numbers that some parsers take for 127.0.0.1
    "decimal": "http://2130706433/",
    "hexadecimal": "http://0x7f000001/",
    "hexadecimal part": "http://0x7f.1/",
    "octal": "http://0177.0.0.1/",
    "octal number": "http://017700000001/",
    "two parts": "http://127.1/",
    "three parts": "http://127.0.1/",
    "five parts": "http://127.0.0.1.1/",
    "too large part": "http://256.256.256.256/",
    "leading zeros": "http://127.000.000.001/",
    "empty hexadecimal": "http://1.2.3.0x/",
    # Characters that some parsers map to others
    "full-width digits": "http://\uff11\uff12\uff17.0.0.1/",
    "full-width dot": "http://127\uff0e0\uff0e0\uff0e1/",
    "ideographic dot": "http://127\u30020\u30020\u30021/",
    "circled letters": "http://\u24d4xample.com/",
    "soft hyphen": "http://local\u00adhost/",
    "zero-width space": "http://local\u200bhost/",
    "sharp s": "http://stra\u00dfe.example/",
    "fraction slash": "http://example.com\u2215@127.0.0.1/",
    # Hosts
    "user": "http://example.com@127.0.0.1/",
    "user and password": "http://a:b@example.com/",
    "empty user": "http://@example.com/",
    "percent-encoded host": "http://%31%32%37.0.0.1/",
    "percent-encoded dot": "http://127%2e0.0.1/",
    "scope": "http://[fe80::1%25eth0]/",
    "trailing dot": "http://localhost./",
    "two dots": "http://example..com/",
    "unclosed bracket": "http://[::1/",
    "brackets around a name": "http://[example.com]/",
    "text after brackets": "http://[::1]x/",
    "bare IPv6": "http://::1/",
    "long label": f"http://{'a' * 64}.example/",
    "long host": f"http://{'a.' * 130}example/",
    "no host": "http://:80/",
    "large port": "http://example.com:123456/",
    "signed port": "http://example.com:+80/",
    "port in full-width digits": "http://example.com:\uff18\uff10/",
    "two ports": "http://example.com:80:80/",
    # White space and backslashes
    "backslash": "http://example.com\\@127.0.0.1/",
    "backslashes": "http:\\\\example.com/",
    "tab": "http://exam\tple.com/",
    "line break": "http://example.com/\r\nHost: x",
    "null": "http://example.com\0.evil/",
    "space": "http://example.com /",
    "leading control": "\x01http://example.com/",
    "no-break space": "http://example.com\u00a0/",
    "right-to-left override": "http://example.com/\u202e",
}


@pytest.mark.parametrize("url", REFUSED.values(), ids=REFUSED.keys())
def test_ambiguous_url_is_refused(url: str) -> None:
    with pytest.raises(RefusedUrlError) as refused:
        parse_fetch_url(url)
    assert refused.value.code in ("url_not_allowed", "invalid_tool_input")


@pytest.mark.parametrize("url", REFUSED.values(), ids=REFUSED.keys())
def test_redirect_leads_to_http_server_or_is_refused(url: str) -> None:
    """Relative forms stay on the host that redirects."""
    at = parse_fetch_url("https://start.example/a/b")
    try:
        target = redirect_url(at, url)
    except RefusedUrlError:
        return
    assert target.host in ("start.example", "example.com")


def test_long_url_is_refused() -> None:
    with pytest.raises(RefusedUrlError) as refused:
        parse_fetch_url("https://example.com/" + "a" * 2048)
    assert refused.value.code == "url_too_long"


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/c", "https://start.example/c"),
        ("c d", "https://start.example/a/c%20d"),
        ("?q", "https://start.example/a/b?q"),
        ("//other.example/x", "https://other.example/x"),
        ("http://other.example", "http://other.example/"),
        ("../../../../etc", "https://start.example/etc"),
    ],
)
def test_redirect_is_relative_to_url(location: str, url: str) -> None:
    assert str(redirect_url(parse_fetch_url("https://start.example/a/b"), location)) == url
