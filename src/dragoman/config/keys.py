"""Settings of a named API key: the sections `[keys.NAME]`, in the settings file or in a keys file of its own.

A secret is stored as its plain SHA-256. Secrets that `dragoman keys` generates are random 256-bit tokens, so they
cannot be guessed from their digest; a slow password hash would only add time to each request.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final, Literal

import msgspec

from dragoman.core.errors import ConfigError, quote
from dragoman.schema.setting import setting

SECRET_CHARS: Final = 6
"""Minimum length in characters of a secret; a shorter one could not be redacted from captures."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class PreviousSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that was replaced, and is accepted for some more time."""

    sha256: Annotated[str, setting("SHA-256 of the secret, in hexadecimal digits.")]
    expires: Annotated[str, setting("Time after which it is no longer accepted.")]


class KeyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one API key: its secret, what its owner may use, and how much of it."""

    secret: Annotated[str, setting("Secret that clients send, of at least 6 characters.")] = ""
    secret_env: Annotated[str, setting("Environment variable that contains the secret.")] = ""
    sha256: Annotated[
        str, setting("SHA-256 of the secret, in hexadecimal digits, for a random secret (docs/keys.md).")
    ] = ""
    previous: Annotated[
        tuple[PreviousSecret, ...],
        setting("Replaced secrets that are still accepted; `dragoman keys rotate NAME` adds them."),
    ] = ()
    models: Annotated[
        tuple[str, ...],
        setting("Models that may be requested, as patterns of names and aliases such as `qwen*`; empty: all."),
    ] = ()
    upstreams: Annotated[
        tuple[str, ...],
        setting("Backends that may answer, as patterns of names of upstreams, `embedded` or `claude_cli`; empty: all."),
    ] = ()
    tools: Annotated[
        tuple[str, ...],
        setting(
            "Tools that the gateway may run, as patterns of `web_search`, `web_fetch`, `code_execution` and "
            "`mcp:NAME`, where NAME is an MCP server or the host of one that a request names; empty: all."
        ),
    ] = ()
    admin: Annotated[
        bool, setting("Whether the key may read `/metrics`, load and unload models, and use `/admin`.")
    ] = False
    expires: Annotated[
        str,
        setting("Last day (UTC) on which the key is accepted, or a time such as 2027-01-31T18:00:00Z; empty: never."),
    ] = ""
    revoked: Annotated[
        str, setting("Time since which the key is not accepted; `dragoman keys revoke NAME` sets it.")
    ] = ""
    requests_per_minute: Annotated[int, setting("Maximum requests per minute; 0: no limit.", ge=0)] = 0
    tokens_per_minute: Annotated[
        int, setting("Maximum tokens per minute, of prompts and responses; 0: no limit.", ge=0)
    ] = 0
    max_concurrency: Annotated[int, setting("Maximum requests at the same time; 0: no limit.", ge=0)] = 0
    budget_usd_per_day: Annotated[float, setting("Budget of a day (UTC) in US dollars; 0: no limit.", ge=0)] = 0.0
    budget_usd_per_month: Annotated[float, setting("Budget of a month (UTC) in US dollars; 0: no limit.", ge=0)] = 0.0
    budget_tokens_per_day: Annotated[int, setting("Budget of a day (UTC) in tokens; 0: no limit.", ge=0)] = 0
    budget_tokens_per_month: Annotated[int, setting("Budget of a month (UTC) in tokens; 0: no limit.", ge=0)] = 0


def check_key_name(name: str) -> None:
    """Checks the name of a key.

    Raises:
        ConfigError: It is too long, or has other characters.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"expected a name of at most 64 letters, digits, '-' and '_' that starts with a letter or a digit, "
            f"got {quote(name)} - at keys"
        )


def check_key(name: str, config: KeyConfig, environ: Mapping[str, str]) -> None:
    """Checks the settings of a key.

    Args:
        name: Its name.
        config: Its settings.
        environ: The environment variables.

    Raises:
        ConfigError: A setting is wrong, or the variable with the secret is not set.
    """
    where = f"at keys.{name}"
    check_key_name(name)
    stored = [field for field in ("secret", "secret_env", "sha256") if getattr(config, field)]
    if len(stored) != 1:
        got = " and ".join(stored) if stored else "none"
        raise ConfigError(f"expected exactly one of secret, secret_env and sha256, got {got} - {where}")
    if config.sha256 and not _SHA256.fullmatch(config.sha256.lower()):
        raise ConfigError(f"expected 64 hexadecimal digits, got {len(config.sha256)} characters - {where}.sha256")
    if config.secret_env and not environ.get(config.secret_env):
        raise ConfigError(f"expected a value in the variable {config.secret_env}, got none - {where}.secret_env")
    secret = config.secret or environ.get(config.secret_env, "")
    if not config.sha256 and not is_secret(secret):
        raise ConfigError(
            f"expected a secret of at least {SECRET_CHARS} characters without blanks around it, got another; "
            f"`dragoman keys create {name}` generates one - {where}.{stored[0]}"
        )
    for number, previous in enumerate(config.previous):
        if not _SHA256.fullmatch(previous.sha256.lower()):
            raise ConfigError(f"expected 64 hexadecimal digits, got others - {where}.previous[{number}].sha256")
        expiry_time(previous.expires, f"{where}.previous[{number}].expires")
    for field in ("models", "upstreams", "tools"):
        if not all(pattern.strip() for pattern in getattr(config, field)):
            raise ConfigError(f'expected patterns such as "qwen*", got an empty one - {where}.{field}')
    for field in ("budget_usd_per_day", "budget_usd_per_month"):
        if not math.isfinite(getattr(config, field)):
            raise ConfigError(f"expected a finite number, got {getattr(config, field)} - {where}.{field}")
    expiry_time(config.expires, f"{where}.expires")


def key_state(config: KeyConfig, now_s: float) -> Literal["valid", "expired", "revoked"]:
    """Returns whether a checked key is accepted at this time, in seconds since 1970."""
    if config.revoked:
        return "revoked"
    return "expired" if expiry_time(config.expires, "") <= now_s else "valid"


def is_secret(text: str) -> bool:
    """Returns whether the text can be a secret: long enough, and without blanks around it."""
    return len(text) >= SECRET_CHARS and text == text.strip()


def expiry_time(text: str, where: str) -> float:
    """Returns the seconds since 1970 at which this date has ended, or this time is reached; infinity for "".

    Without a zone, it is UTC.

    Args:
        text: The date or time, as ISO 8601 writes it.
        where: The setting, for an error.

    Raises:
        ConfigError: It is not a date or a time.
    """
    if not text:
        return math.inf
    try:
        if len(text) <= len("2027-01-31"):
            return datetime.combine(date.fromisoformat(text) + timedelta(days=1), time(), UTC).timestamp()
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"expected a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z, got {quote(text)} - {where}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def secret_digests(config: KeyConfig, environ: Mapping[str, str]) -> list[tuple[bytes, float]]:
    """Returns the SHA-256 of each secret of a checked key, and the seconds since 1970 up to which it is accepted."""
    until_s = expiry_time(config.expires, "")
    if config.sha256:
        digest = bytes.fromhex(config.sha256)
    else:
        digest = hashlib.sha256((config.secret or environ[config.secret_env]).encode()).digest()
    previous = [(bytes.fromhex(old.sha256), min(until_s, expiry_time(old.expires, ""))) for old in config.previous]
    return [*previous, (digest, until_s)]


def plain_secrets(keys: Mapping[str, KeyConfig], environ: Mapping[str, str]) -> list[str]:
    """Returns the secrets of keys, to redact them: not those of which there is only a digest.

    Args:
        keys: The keys by name.
        environ: The environment variables.
    """
    return [secret for config in keys.values() if (secret := config.secret or environ.get(config.secret_env, ""))]
