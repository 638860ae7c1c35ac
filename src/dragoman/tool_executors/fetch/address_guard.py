"""Decides to which addresses a fetch may connect: public ones, and private ones that the settings name.

A name is resolved once. If any of its addresses is refused, the fetch is; otherwise the caller connects to these very
addresses, so that a name cannot change between the check and the connection (DNS rebinding).

Source: https://www.iana.org/assignments/iana-ipv4-special-registry, …/iana-ipv6-special-registry (2026-11).
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from dragoman.tool_executors.fetch.fetch_url import FetchUrl, RefusedUrlError

SocketAddress: TypeAlias = tuple[Any, ...]
"""As `getaddrinfo` returns it: family, type, protocol, name, address."""
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[SocketAddress]]]
"""Returns the addresses of a host and port. Raises OSError."""
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_PRIVATE: Final = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"),
    )
)
"""Addresses that a host in `allow_private` may have: loopback, private, shared (CGNAT) and unique local ones."""
_SPECIAL_IPV4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "168.63.129.16/32",  # the platform of Azure, also its metadata
            "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata of most clouds
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL_IPV6: Final = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # Teredo (2001::/32) and other protocols
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",
            "3fff::/20",
        ),
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
"""Third group of 32 bits of an address whose last one is an IPv4 address."""
_METADATA: Final = (ipaddress.ip_address("100.100.100.200"), ipaddress.ip_address("fd00:ec2::254"))
"""Metadata of clouds within private networks, for which `allow_private` must name a network."""


async def resolve(host: str, port: int) -> Sequence[SocketAddress]:
    """Returns the addresses by the system's resolver.

    Raises:
        OSError: The name has none.
    """
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None


class AddressGuard:
    """Checks hosts and their addresses."""

    def __init__(
        self, allow_private: Iterable[str] = (), allowed_ports: Iterable[int] = (80, 443), resolve: Resolve = resolve
    ) -> None:
        """
        Args:
            allow_private: Networks and host names that may be private; an address is a network too.
            allowed_ports: Ports of URLs.
            resolve: Resolves a name.
        """
        self._ports = frozenset(allowed_ports)
        self._resolve = resolve
        self._networks: list[IpNetwork] = []
        self._hosts: set[str] = set()
        for entry in allow_private:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._hosts.add(entry.lower())

    async def addresses(self, url: FetchUrl) -> Sequence[SocketAddress]:
        """Returns the checked addresses of the URL's host; the name is resolved once.

        Raises:
            RefusedUrlError: The port or an address is refused, or the name has no address.
        """
        if url.port not in self._ports:
            raise RefusedUrlError(f"port {url.port} is not among tools.web_fetch.allowed_ports")
        try:
            found = await self._resolve(url.host, url.port)
        except OSError:
            raise RefusedUrlError("the host name has no address", "url_not_accessible") from None
        if not found:
            raise RefusedUrlError("the host name has no address", "url_not_accessible")
        for address in found:
            self._check(url.host, address[4])
        return found

    def _check(self, host: str, socket_address: tuple[Any, ...]) -> None:
        written = str(socket_address[0])
        scope = socket_address[3] if len(socket_address) > 3 else 0
        try:
            address = ipaddress.ip_address(written)
        except ValueError:
            raise RefusedUrlError("the host has an invalid address") from None
        if scope or "%" in written:
            raise RefusedUrlError("the host has an address of one network interface")
        if any(address in network for network in self._networks):
            return
        inner = _embedded(address)
        if host in self._hosts and inner not in _METADATA and _is_within(inner, _PRIVATE):
            return
        if not is_public(address):
            raise RefusedUrlError("the host has an address that is not public")


def is_public(address: IpAddress) -> bool:
    """Returns whether the address is one of the public internet, also the IPv4 address that it contains, if any."""
    inner = _embedded(address)
    if isinstance(inner, ipaddress.IPv4Address):
        return not _is_within(inner, _PRIVATE) and not _is_within(inner, _SPECIAL_IPV4)
    if inner not in _GLOBAL_IPV6 or _is_within(inner, _SPECIAL_IPV6):
        return False
    return int(inner) >> 32 & 0xFFFFFFFF not in _ISATAP


def _embedded(address: IpAddress) -> IpAddress:
    """Returns the IPv4 address to which a packet for an IPv4-mapped or NAT64 address is sent; any other as it is."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_within(address: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    return any(address in network for network in networks)
