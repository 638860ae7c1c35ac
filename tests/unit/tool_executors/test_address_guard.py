"""Addresses to which a fetch may connect."""

import socket
from collections.abc import Sequence

import pytest

from dragoman.tool_executors.fetch.address_guard import AddressGuard, SocketAddress
from dragoman.tool_executors.fetch.fetch_url import RefusedUrlError, parse_fetch_url

REFUSED = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),
    *("168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192"),
    *("192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
    *("239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *("::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254"),
    *("64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:10::1", "2001:db8::1"),
    *("2002:7f00:1::", "2002:a00:1::1", "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:10.0.0.1", "3fff::1"),
    *("5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1", "ff02::1", "ff0e::1", "4000::1"),
]
PUBLIC = ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


def address(written: str, port: int = 443, scope: int = 0) -> SocketAddress:
    if ":" in written:
        return (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (written, port, 0, scope))
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (written, port))


class Names:
    """A resolver with these responses, one for each lookup; the last one for all later ones."""

    def __init__(self, *responses: Sequence[SocketAddress]) -> None:
        self.responses = list(responses)
        self.lookups: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[SocketAddress]:
        self.lookups.append((host, port))
        found = self.responses[min(len(self.lookups), len(self.responses)) - 1]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found


async def checked(guard: AddressGuard, url: str = "https://name.example/") -> list[str]:
    return [each[4][0] for each in await guard.addresses(parse_fetch_url(url))]


@pytest.mark.parametrize("written", REFUSED)
async def test_address_that_is_not_public_is_refused(written: str) -> None:
    names = Names([address(written)])
    with pytest.raises(RefusedUrlError) as refused:
        await checked(AddressGuard(resolve=names))
    assert refused.value.code == "url_not_allowed"


@pytest.mark.parametrize("written", REFUSED)
async def test_address_that_is_not_public_is_refused_as_host(written: str) -> None:
    host = f"[{written}]" if ":" in written else written
    with pytest.raises(RefusedUrlError):
        await checked(AddressGuard(), f"https://{host}/")


@pytest.mark.parametrize("written", PUBLIC)
async def test_public_address_is_returned(written: str) -> None:
    assert await checked(AddressGuard(resolve=Names([address(written)]))) == [written]


async def test_one_private_address_among_public_ones_is_enough() -> None:
    names = Names([address("1.1.1.1"), address("10.0.0.1")])
    with pytest.raises(RefusedUrlError):
        await checked(AddressGuard(resolve=names))


@pytest.mark.parametrize(
    "found", [address("fe80::1%eth0"), address("2606:4700::1", scope=2), address("not an address")]
)
async def test_address_of_interface_is_refused(found: SocketAddress) -> None:
    with pytest.raises(RefusedUrlError):
        await checked(AddressGuard(["fe80::/10", "::/0"], resolve=Names([found])))


@pytest.mark.parametrize("url", ["https://name.example:22/", "http://name.example:6379/", "http://name.example:0/"])
async def test_other_port_is_refused_before_lookup(url: str) -> None:
    names = Names([address("1.1.1.1")])
    with pytest.raises(RefusedUrlError):
        await checked(AddressGuard(resolve=names), url)
    assert not names.lookups


async def test_configured_port_is_allowed() -> None:
    guard = AddressGuard(allowed_ports=[8080], resolve=Names([address("1.1.1.1")]))
    assert await checked(guard, "http://name.example:8080/") == ["1.1.1.1"]


async def test_name_without_address_is_not_accessible() -> None:
    with pytest.raises(RefusedUrlError) as refused:
        await checked(AddressGuard(resolve=Names([])))
    assert refused.value.code == "url_not_accessible"


@pytest.mark.parametrize(
    ("allowed", "written", "is_allowed"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("fd00::/8", "fd00::1", True),
        ("169.254.169.254", "169.254.169.254", True),
        ("127.0.0.0/8", "::ffff:127.0.0.1", False),
        ("name.example", "10.2.0.1", True),
        ("NAME.example", "127.0.0.1", True),
        ("name.example", "fd00::1", True),
        ("other.example", "10.2.0.1", False),
        ("example", "10.2.0.1", False),
        ("name.example", "169.254.169.254", False),
        ("name.example", "100.100.100.200", False),
        ("name.example", "fd00:ec2::254", False),
        ("name.example", "0.0.0.0", False),
        ("name.example", "224.0.0.1", False),
    ],
)
async def test_private_addresses_that_settings_name(allowed: str, written: str, is_allowed: bool) -> None:
    guard = AddressGuard([allowed], resolve=Names([address(written)]))
    if is_allowed:
        assert await checked(guard) == [written]
        return
    with pytest.raises(RefusedUrlError):
        await checked(guard)


@pytest.mark.parametrize("host", ["localhost", "x.localhost", "ip6-localhost"])
async def test_names_of_this_machine_are_refused(host: str) -> None:
    with pytest.raises(RefusedUrlError):
        await checked(AddressGuard(), f"http://{host}/")
