"""Selects the HTTP proxy for a server: from the settings, else from the environment.

The variables are `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY`, by the scheme of the server's URL and in upper or lower
case, as in other programs; `NO_PROXY` exempts hosts. These never apply to loopback addresses; only a setting does.

Source: https://docs.python.org/3/library/urllib.request.html#urllib.request.getproxies (2026-11).
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from dragoman.core.errors import ConfigError, quote

DIRECT: Final = "none"
_SCHEMES: Final = ("http", "https")


def proxy_for(url: str, setting: str, environ: Mapping[str, str], where: str = "proxy") -> str | None:
    """Returns the URL of the proxy for a server; None: no proxy.

    Args:
        url: the server's base URL.
        setting: the server's setting `proxy`; `none` means no proxy.
        environ: environment variables.
        where: path of the setting, for errors.

    Raises:
        ConfigError: the proxy is not the URL of an HTTP proxy.
    """
    if setting:
        return None if setting == DIRECT else _validate(setting, where)
    at = urlsplit(url)
    host = at.hostname or ""
    if _is_loopback(host):
        return None
    name, proxy = next(
        ((name, environ[name]) for name in _variable_names(at.scheme) if environ.get(name)),
        ("", ""),
    )
    exempt = {"no": environ.get("no_proxy") or environ.get("NO_PROXY") or ""}
    if not proxy or proxy_bypass_environment(f"{host}:{at.port}" if at.port else host, exempt):
        return None
    return _validate(proxy if "://" in proxy else f"http://{proxy}", name)


def _variable_names(scheme: str) -> tuple[str, ...]:
    return tuple(each for name in (f"{scheme}_proxy", "all_proxy") for each in (name, name.upper()))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _validate(proxy: str, where: str) -> str:
    at = urlsplit(proxy)
    if at.scheme not in _SCHEMES or not at.hostname:
        origin = quote(f"{at.scheme}://{at.netloc.rpartition('@')[2]}")
        raise ConfigError(f"expected a proxy like http://proxy.example:3128, got {origin} - at {where}")
    return proxy
