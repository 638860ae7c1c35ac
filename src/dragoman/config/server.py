"""Settings of the HTTP server and of captures."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting

CAPTURE_FILTERS = ("all", "failed", "requested")
RELOAD_MODES = ("watch", "signal", "off")


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Address and limits of the gateway."""

    host: Annotated[str, setting("Address to listen on. Other than loopback requires API keys.")] = "127.0.0.1"
    port: Annotated[int, setting("Port to listen on; 0: a free one.", ge=0, le=65535)] = 8484
    workers: Annotated[
        int, setting("Number of gateway processes, all at one port (docs/performance.md).", ge=1, le=64)
    ] = 1
    worker_timeout_s: Annotated[
        float, setting("Time after which a worker that does not respond is replaced, in seconds; 0: never.", ge=0)
    ] = 30.0
    api_keys: Annotated[
        tuple[str, ...],
        setting(
            "API keys with all rights, of at least 6 characters. If there are any keys, each request must have one; "
            "keys with names and limits: `[keys.NAME]` (docs/keys.md)."
        ),
    ] = ()
    keys_path: Annotated[
        str,
        setting(
            "File with `[keys.NAME]` tables, which `dragoman keys` edits; empty: keys.toml next to the settings file. "
            "If it exists, each request must have a key."
        ),
    ] = ""
    allowed_hosts: Annotated[
        tuple[str, ...],
        setting("Names accepted in the Host and Origin headers, besides loopback; `*`: any, which requires API keys."),
    ] = ()
    max_body_bytes: Annotated[
        int, setting("Maximum size of a request body when it is decompressed, in bytes.", ge=1024)
    ] = 32 * 1024 * 1024
    body_timeout_s: Annotated[
        float, setting("Timeout to receive the head of a request, and then its body, in seconds.", gt=0)
    ] = 30.0
    max_connections: Annotated[
        int,
        setting("Maximum open connections of each worker; more get status 503. 0: half of its file descriptors.", ge=0),
    ] = 0
    keepalive_interval_s: Annotated[
        float, setting("Time between pings of an idle stream, in seconds.", gt=0, le=15)
    ] = 10.0
    delta_min_chars: Annotated[
        int,
        setting("A delta of a stream waits for this many characters unless another event follows; 0: no wait.", ge=0),
    ] = 0
    delta_max_chars: Annotated[int, setting("Maximum characters of one delta of a stream; 0: no limit.", ge=0)] = 0
    max_status_delay_s: Annotated[float, setting("Time that a status waits for the backend, in seconds.", ge=0)] = 5.0
    write_timeout_s: Annotated[float, setting("Timeout for a client to receive what is sent, in seconds.", gt=0)] = 60.0
    drain_delay_s: Annotated[
        float,
        setting(
            "Time after SIGTERM in which requests are still accepted while `/ready` has status 503, in seconds: load "
            "balancers stop sending requests meanwhile (docs/scale.md).",
            ge=0,
        ),
    ] = 0.0
    graceful_shutdown_s: Annotated[float, setting("Time for running responses after SIGTERM, in seconds.", ge=0)] = 60.0
    reload: Annotated[
        str,
        setting(
            "When changed settings are applied (docs/reload.md): `watch`, soon after the file has changed; `signal`, "
            "at SIGHUP or POST /admin/reload; `off`, at the next start.",
            choices=RELOAD_MODES,
        ),
    ] = "watch"
    metrics: Annotated[bool, setting("Whether `/metrics` is served (docs/metrics.md).")] = True


class CaptureConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which exchanges are written to disk."""

    dir: Annotated[
        str, setting("Folder that each exchange is written to, stage by stage (docs/debugging.md); empty: no capture.")
    ] = ""
    filter: Annotated[
        str,
        setting(
            "Which exchanges: `all`, `failed` those with an error or a warning, `requested` those with the header "
            "x-dragoman-capture: on.",
            choices=CAPTURE_FILTERS,
        ),
    ] = "all"
    max_exchanges: Annotated[int, setting("Maximum number of exchanges; the oldest are deleted.", ge=1)] = 200
    max_bytes: Annotated[int, setting("Maximum total size of the exchanges, in bytes.", ge=1)] = 256 * 1024 * 1024


NO_CAPTURE = CaptureConfig()
