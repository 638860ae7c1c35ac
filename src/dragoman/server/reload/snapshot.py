"""One configuration in force. Each request reads it once, at its beginning, and uses it to its end."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from dragoman.config import Config
from dragoman.config.server import NO_CAPTURE, CaptureConfig, ServerConfig
from dragoman.core.errors import ForbiddenError, quote
from dragoman.gateway.gateway import Gateway
from dragoman.host_names import LOOPBACK, host_name, parse_host_header, parse_origin_header
from dragoman.server.capture.store import CaptureStore
from dragoman.server.keys.ring import KeyRing


class Snapshot:
    """What a reload of the configuration may replace. Only the number of exchanges changes in it."""

    __slots__ = (
        "__weakref__",
        "_exchanges",
        "_on_idle",
        "captures",
        "captures_to_disk",
        "config",
        "gateway",
        "hosts",
        "keys",
        "settings",
    )

    def __init__(
        self,
        gateway: Gateway,
        config: ServerConfig,
        capture: CaptureConfig = NO_CAPTURE,
        keys: KeyRing | None = None,
        settings: Config | None = None,
    ) -> None:
        """Args:
            gateway: answers the requests.
            config: the settings of the server.
            capture: which exchanges are written to disk.
            keys: the API keys; None: those of `config`.
            settings: all settings; None: those at the start.

        Raises:
            ConfigError: captures are enabled, but their folder cannot be written.
        """
        self.gateway, self.config, self.settings = gateway, config, settings
        self.keys = KeyRing({}, config.api_keys) if keys is None else keys
        self.hosts = frozenset(host_name(name) for name in (*LOOPBACK, *config.allowed_hosts, config.host)) - {""}
        """Host names that requests may be for."""
        self.captures = CaptureStore(capture, gateway, self.keys.plain_secrets()) if capture.dir else None
        self.captures_to_disk = self.captures is not None
        self._exchanges = 0
        self._on_idle: Callable[[], None] | None = None

    def begin(self) -> None:
        """A request begins that uses this configuration."""
        self._exchanges += 1

    def end(self) -> None:
        """A request that uses this configuration has ended."""
        self._exchanges -= 1
        if self._on_idle is not None and not self._exchanges:
            callback, self._on_idle = self._on_idle, None  # it may refer to this object
            callback()

    @property
    def exchanges(self) -> int:
        """The number of requests that use this configuration."""
        return self._exchanges

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Calls the callback once no request uses this configuration; call it after the last one has begun."""
        if self._exchanges:
            self._on_idle = callback
        else:
            callback()

    def capture_for_console(self, make: "NewCaptures | None") -> None:
        """Captures exchanges that begin from now on for the console, if they are not captured to disk anyway.

        Args:
            make: returns the captures of a configuration; None: exchanges are not captured.
        """
        if not self.captures_to_disk:
            self.captures = None if make is None else make(self)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Refuses a request for an unknown host, as after DNS rebinding.

        Args:
            headers: the headers of the request.

        Raises:
            ForbiddenError: the host is not allowed.
        """
        self._check_name("host", headers.get("host", ""), parse_host_header)

    def check_origin(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Refuses an unknown Host or Origin, as of a web page in the user's browser.

        Returns: the headers that let an allowed page read the response.
        Raises: ForbiddenError: the host or the origin is not allowed.
        """
        self.check_host(headers)
        if "origin" not in headers:
            return {}
        self._check_name("origin", headers["origin"], parse_origin_header)
        requested = headers.get("access-control-request-headers", "*")
        return {
            "access-control-allow-origin": headers["origin"],
            "access-control-allow-headers": requested,
            "access-control-expose-headers": "*",
            "vary": "origin",
        }

    def _check_name(self, header: str, value: str, read: Callable[[str], str]) -> None:
        """
        Raises: ForbiddenError: the host name that `read` finds in the value of the header is not allowed.
        """
        name = read(value)
        if name not in self.hosts and "*" not in self.hosts:
            advice = f"; add {quote(name)} to server.allowed_hosts if it should be" if name else ""
            raise ForbiddenError(f"{header} {quote(value)} is not served{advice}")


NewCaptures: TypeAlias = Callable[[Snapshot], CaptureStore]
"""Returns the captures of a configuration."""
