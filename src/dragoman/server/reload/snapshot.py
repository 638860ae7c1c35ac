"""One configuration in force. Each request reads it once, at its beginning, and uses it to its end."""

from collections.abc import Callable

from dragoman.config.server import NO_CAPTURE, CaptureConfig, ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.host_names import LOOPBACK, host_name
from dragoman.server.capture.store import CaptureStore


class Snapshot:
    """What a reload of the configuration may replace. Only the number of exchanges changes in it."""

    __slots__ = ("__weakref__", "_exchanges", "_on_idle", "captures", "config", "gateway", "hosts")

    def __init__(self, gateway: Gateway, config: ServerConfig, capture: CaptureConfig = NO_CAPTURE) -> None:
        """Args:
            gateway: answers the requests.
            config: the settings of the server.
            capture: which exchanges are written to disk.

        Raises:
            ConfigError: captures are enabled, but their folder cannot be written.
        """
        self.gateway, self.config = gateway, config
        self.hosts = frozenset(host_name(name) for name in (*LOOPBACK, *config.allowed_hosts, config.host)) - {""}
        """Host names that requests may be for."""
        self.captures = CaptureStore(capture, gateway, config.api_keys) if capture.dir else None
        self._exchanges = 0
        self._on_idle: Callable[[], None] | None = None

    def begin(self) -> None:
        """A request begins that uses this configuration."""
        self._exchanges += 1

    def end(self) -> None:
        """A request that uses this configuration has ended."""
        self._exchanges -= 1
        if self._on_idle is not None and not self._exchanges:
            self._on_idle()

    @property
    def exchanges(self) -> int:
        """The number of requests that use this configuration."""
        return self._exchanges

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Calls the callback once no request uses this configuration; call it after the last one has begun."""
        self._on_idle = callback
        if not self._exchanges:
            callback()
