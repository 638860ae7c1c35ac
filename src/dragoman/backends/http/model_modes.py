"""How each model of a server is asked: what the settings say of it, else what was measured, else as the API has it.

    [servers.far]
    mode = "parse"
    [servers.far.per_model."smollm*"]
    mode = "inject"
    format = "hermes"

A field that a row of `per_model` leaves open is that of the server. A mode that is `auto` there too, or a format that
is stated nowhere, is what `take` was told of the model; where nothing was, native, and the format by the model's name.
What is closer wins over what contradicts it: `native` and `parse` mean chat, `completions` mean `inject`.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from dragoman import formats
from dragoman.backends.http.config import HttpConfig, PerModel
from dragoman.catalog import families
from dragoman.core.errors import ConfigError, one_of
from dragoman.parsing.format import Format

log = logging.getLogger("dragoman.backends.http.model_modes")

Endpoint: TypeAlias = Literal["chat", "completions"]
Mode: TypeAlias = Literal["native", "parse", "inject"]
AUTO: Final = "auto"
_ENDPOINTS: Final[dict[str, Endpoint]] = {endpoint: endpoint for endpoint in get_args(Endpoint)}
_MODES: Final[dict[str, Mode]] = {mode: mode for mode in get_args(Mode)}


@dataclass(frozen=True, slots=True)
class Way:
    """How one model is asked, and why so."""

    mode: Mode = "native"
    """`native`: the server writes the tools and reads the calls. `parse`: it writes them, and its text is read here.
    `inject`: it knows nothing of tools."""
    format: str = ""
    """What the model writes; empty: by its name."""
    endpoint: Endpoint = "chat"
    """What is asked where Dragoman writes the tools."""
    template: str = ""
    """The file of the model's chat template; empty: what the server tells, where `completions` are asked for."""
    constrain: tuple[str, ...] = ()
    """How the server can hold the model to a grammar, best first (`held`); empty: as its kind does."""
    why: str = "nothing else is known of it"

    def format_of(self, model: str) -> Format:
        """What the model of this name writes; where nothing tells, `auto`."""
        family = None if self.format else families.find(model)
        return formats.get(self.format or (family.format if family else AUTO))


class Ways:
    """Those of one server's models."""

    def __init__(self, server: str, config: HttpConfig) -> None:
        """Raises: ConfigError: a mode, format or endpoint is none."""
        own = PerModel(config.mode, config.format, config.endpoint, config.template)
        for pattern, row in [("", own), *config.per_model.items()]:
            _check(row, f"servers.{server}{f'.per_model.{pattern}' if pattern else ''}")
        self._server, self._own, self._per_model = server, own, config.per_model
        self._measured: dict[str, Way] = {}
        self._chosen: dict[str, Way] = {}

    def take(self, model: str, way: Way) -> None:
        """From now on ask this model so, as far as the settings leave it open; `way.why` says what was measured."""
        self._measured[model] = way
        self._chosen.pop(model, None)

    def is_open(self, model: str) -> bool:
        """Whether the settings leave open how this model is asked."""
        return not any(row.mode not in ("", AUTO) for row in self._rows(model))

    def of(self, model: str) -> Way:
        """How this model is asked; said in the log when it is chosen."""
        if model not in self._chosen:
            way = self._chosen[model] = self._choose(model)
            shown = f"mode {way.mode}" + (f", format {way.format}" if way.format else "")
            log.info("%s: %s is asked in %s: %s", self._server, model, shown, way.why)
        return self._chosen[model]

    def _choose(self, model: str) -> Way:
        rows = self._rows(model)
        known = self._measured.get(model, Way())
        mode, endpoint = _stated(rows)
        way = replace(
            known,
            format=next((row.format for row in rows if row.format), known.format),
            endpoint=endpoint,
            template=next((row.template for row in rows if row.template), ""),
        )
        if not mode and endpoint == "completions":
            return replace(way, mode="inject", why="its prompts are made here, as the settings say")
        return replace(way, mode=mode, why="the settings say so") if mode else way

    def _rows(self, model: str) -> list[PerModel]:
        """What the settings say of it, the closest first."""
        name = model.lower()
        return [row for pattern, row in self._per_model.items() if fnmatchcase(name, pattern.lower())] + [self._own]


def _stated(rows: Iterable[PerModel]) -> tuple[Mode | None, Endpoint]:
    """The mode, where there is one, and the endpoint that these say together, the closest first."""
    mode: Mode | None = None
    endpoint: Endpoint | None = None
    for row in rows:
        if row.endpoint and endpoint is None:
            endpoint = _ENDPOINTS[row.endpoint] if mode in (None, "inject") else "chat"
        if endpoint == "completions":  # whatever mode is said further off
            break
        mode = mode or _MODES.get(row.mode)
    return mode, endpoint or "chat"


def _check(row: PerModel, where: str) -> None:
    if row.mode and row.mode not in (AUTO, *_MODES):
        raise ConfigError(
            f"unknown mode {row.mode!r}{one_of(row.mode, (AUTO, *_MODES), 'expected ')} - at {where}.mode"
        )
    if row.endpoint and row.endpoint not in _ENDPOINTS:
        hint = one_of(row.endpoint, _ENDPOINTS, "expected ")
        raise ConfigError(f"unknown endpoint {row.endpoint!r}{hint} - at {where}.endpoint")
    if row.endpoint == "completions" and row.mode not in ("", AUTO, "inject"):
        raise ConfigError(f"completions know nothing of tools: expected mode inject, got {row.mode} - at {where}.mode")
    if row.format:
        try:
            formats.get(row.format)
        except ConfigError as e:
            raise ConfigError(f"{e.message} - at {where}.format") from None
