"""`dragoman keys`: creates, lists, rotates and revokes API keys of the gateway."""

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dragoman import compose
from dragoman import config as settings
from dragoman.cli._common import add_config_flag, print_status
from dragoman.cli.completion import complete_with
from dragoman.compose.limits import used_by_all
from dragoman.config.keys import KeyConfig, expiry_time, key_state
from dragoman.config.keys_file import read_keys
from dragoman.core.errors import ConfigError, quote
from dragoman.usage_limits.budgets import Spent

if TYPE_CHECKING:
    from dragoman.cli.keys.edit import KeysEditor

_EXAMPLES: Final = """
    examples:
      dragoman keys create alice --models 'qwen*,small' --expires 90d
      dragoman keys create prometheus --admin
      dragoman keys list
      dragoman keys rotate alice --grace 1d
      dragoman keys revoke alice

    exit status:
      0  success
      2  the key exists already or is unknown, or a setting is wrong
"""
_PATTERN_LISTS: Final = {
    "models": "models that may be requested, as names, aliases, or patterns such as 'qwen*', separated by commas",
    "upstreams": "backends that may answer: names of upstreams, 'embedded', 'claude_cli', or patterns",
    "tools": "tools that the gateway may run: web_search, web_fetch, code_execution, mcp:NAME, or patterns",
}
_LIMITS: Final = {
    "requests_per_minute": "maximum requests per minute",
    "tokens_per_minute": "maximum tokens per minute",
    "max_concurrency": "maximum requests at the same time",
    "budget_usd_per_day": "budget of a day in US dollars",
    "budget_usd_per_month": "budget of a month in US dollars",
    "budget_tokens_per_day": "budget of a day in tokens",
    "budget_tokens_per_month": "budget of a month in tokens",
}
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])")


class _KeyList(NamedTuple):
    """The keys of the settings and of the keys file."""

    path: Path
    """The keys file, which may not exist."""
    in_settings: dict[str, KeyConfig]
    used: Callable[[], Mapping[str, tuple[Spent, Spent]]]
    """Returns what each key has used today and in this month."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command and its own commands."""
    command = commands.add_parser(
        "keys",
        help="create, list, rotate and revoke API keys",
        description="Create, list, rotate and revoke API keys of the gateway, each with a name and what its owner may "
        "use. They are stored in a keys file next to the settings file (setting server.keys_path), without their "
        "secrets. A running gateway uses a change at once. As soon as there is a keys file, each request needs a key.",
        epilog=_EXAMPLES,
    )
    _add_common_flags(command)
    command.set_defaults(run=_list)
    more = command.add_subparsers(title="commands", dest="keys_command", metavar="COMMAND", help="(default: list)")
    create = _add(more, "create", "create a key and print its secret", _create)
    _add_name(create, exists=False)
    for name, what in _PATTERN_LISTS.items():
        create.add_argument(f"--{name}", metavar="LIST", help=f"{what} (default: all)")
    create.add_argument("--admin", action="store_true", help="may read /metrics, load models, and use /admin")
    create.add_argument(
        "--expires", metavar="WHEN", help="last day, such as 2027-01-31, a time, or a duration such as 90d"
    )
    for name, what in _LIMITS.items():
        kind = float if "usd" in name else int
        create.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N", help=f"{what} (default: no limit)")
    _add(more, "list", "list the keys", _list)
    rotate = _add(more, "rotate", "replace the secret of a key, and print the new one", _rotate)
    _add_name(rotate)
    rotate.add_argument(
        "--grace",
        default="1h",
        metavar="TIME",
        help="how long the old secret is accepted, such as 30m or 0s (default: 1h)",
    )
    _add_name(_add(more, "revoke", "refuse a key from now on", _revoke))


def _add(
    more: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    command = more.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    _add_common_flags(command, default=argparse.SUPPRESS)
    command.set_defaults(run=run)
    return command


def _add_common_flags(command: argparse.ArgumentParser, default: str | None = None) -> None:
    command.add_argument("--json", action="store_true", default=default or False, help="print the result as JSON")
    add_config_flag(command, default=default)


def _add_name(command: argparse.ArgumentParser, *, exists: bool = True) -> None:
    name = command.add_argument("name", metavar="NAME", help="name of the key, such as that of a person or a service")
    if exists:
        complete_with(name, _key_names)


def _key_names() -> list[str]:
    """Returns the names of the keys in the keys file, for completion."""
    try:
        config, _ = settings.load(compose.settings_path(None), os.environ, {}, checks_access=False)
        return list(read_keys(Path(config.server.keys_path), os.environ))
    except ConfigError:
        return []


def _create(args: argparse.Namespace) -> int:
    keys = _load(args)
    _require_file_key(args.name, keys)
    values: dict[str, Any] = {}
    for name in _PATTERN_LISTS:
        if (text := getattr(args, name)) is not None:
            values[name] = [pattern.strip() for pattern in text.split(",")]
    values |= {name: value for name in _LIMITS if (value := getattr(args, name)) is not None}
    if args.admin:
        values["admin"] = True
    if args.expires is not None:
        values["expires"] = _expiry(args.expires)
    is_first = not keys.path.exists() and not keys.in_settings
    secret = _editor(keys).create(args.name, values)
    print_status(f"created the key {args.name} in {keys.path}; its secret is shown only now:")
    _print_secret(args, secret)
    if is_first:
        print_status("from now on, each request to the gateway needs an API key")
    return 0


def _rotate(args: argparse.Namespace) -> int:
    keys, grace = _load(args), _duration(args.grace, "--grace")
    _require_file_key(args.name, keys)
    secret = _editor(keys).rotate(args.name, grace)
    old = f"the old one is accepted for another {args.grace}" if grace else "the old one is refused now"
    print_status(f"replaced the secret of the key {args.name}: {old}; the new one is shown only now:")
    _print_secret(args, secret)
    return 0


def _revoke(args: argparse.Namespace) -> int:
    keys = _load(args)
    _require_file_key(args.name, keys)
    _editor(keys).revoke(args.name)
    print_status(f"revoked the key {args.name}")
    return 0


def _list(args: argparse.Namespace) -> int:
    keys = _load(args)
    in_file = read_keys(keys.path, os.environ) if keys.path.exists() else {}
    rows = [(name, key, "settings") for name, key in keys.in_settings.items()]
    rows += [(name, key, str(keys.path)) for name, key in in_file.items()]
    used = keys.used() if rows else {}
    if args.json:
        print(json.dumps([_facts(*row) | _usage_facts(used.get(row[0])) for row in rows], indent=2))
    elif rows:
        from dragoman.cli.models.table import format_table

        head = ("NAME", "STATE", "MODELS", "UPSTREAMS", "TOOLS", "LIMITS", "EXPIRES", "TODAY")
        print(format_table(head, [(*_cells(name, key), _today(used.get(name))) for name, key, _ in rows]))
    else:
        print_status("there are no named keys; `dragoman keys create NAME` creates one")
    return 0


def _print_secret(args: argparse.Namespace, secret: str) -> None:
    print(json.dumps({"name": args.name, "secret": secret}) if args.json else secret)


def _load(args: argparse.Namespace) -> _KeyList:
    config, _ = settings.load(compose.settings_path(args.config), os.environ, {}, checks_access=False)
    return _KeyList(Path(config.server.keys_path), config.keys, partial(used_by_all, config))


def _editor(keys: _KeyList) -> "KeysEditor":
    from dragoman.cli.keys.edit import KeysEditor

    return KeysEditor(keys.path, os.environ, datetime.now(UTC))


def _require_file_key(name: str, keys: _KeyList) -> None:
    if name in keys.in_settings:
        raise ConfigError(f"the key {name} is in the settings file: change it there - at keys.{name}")


def _expiry(text: str) -> str:
    """Returns a date or time as the keys file has it, from one or from a duration."""
    if _DURATION.fullmatch(text):
        return (datetime.now(UTC) + _duration(text, "--expires")).isoformat(timespec="seconds")
    expiry_time(text, "--expires")
    return text


def _duration(text: str, option: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    try:
        if match:
            return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    except OverflowError:
        pass
    raise ConfigError(f"expected a duration such as 30m, 1h or 7d, got {quote(text)} - at {option}")


def _state(key: KeyConfig) -> str:
    return key_state(key, datetime.now(UTC).timestamp())


def _limits(key: KeyConfig) -> dict[str, object]:
    return {name: value for name in _LIMITS if (value := getattr(key, name))}


def _cells(name: str, key: KeyConfig) -> Sequence[str]:
    limits = ", ".join(f"{value:g} {limit}" for limit, value in _limits(key).items() if isinstance(value, int | float))
    lists = [", ".join(getattr(key, patterns)) or "all" for patterns in _PATTERN_LISTS]
    return (f"{name} (admin)" if key.admin else name, _state(key), *lists, limits or "none", key.expires or "never")


def _today(used: tuple[Spent, Spent] | None) -> str:
    """Returns what a key has used today, for the table."""
    if used is None or not used[0].requests:
        return "unused"
    day = used[0]
    amount = f"${day.cost_usd:.2f}" if day.cost else f"{day.tokens} tokens"
    return f"{day.requests} request{'s' if day.requests > 1 else ''}, {amount}"


def _usage_facts(used: tuple[Spent, Spent] | None) -> dict[str, object]:
    day, month = used or (Spent(), Spent())
    periods = {"day": day, "month": month}
    return {
        "usage": {
            name: {"requests": each.requests, "tokens": each.tokens, "cost_usd": each.cost_usd}
            for name, each in periods.items()
        }
    }


def _facts(name: str, key: KeyConfig, source: str) -> dict[str, object]:
    lists = {patterns: list(getattr(key, patterns)) for patterns in _PATTERN_LISTS}
    replaced = len(key.previous)
    return {
        "name": name,
        "state": _state(key),
        **lists,
        "admin": key.admin,
        "expires": key.expires or None,
        "revoked": key.revoked or None,
        "limits": _limits(key),
        "replaced_secrets": replaced,
        "source": source,
    }
