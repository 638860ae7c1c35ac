"""Selects the tool mode of each model: from the settings, else from the probe, else the server's native API.

    [upstreams.far]
    mode = "parse"
    [upstreams.far.per_model."smollm*"]
    mode = "inject"
    format = "hermes"

A field that is empty in a row of `per_model` has the server's value. If the mode is `auto` there too, or no format is
set, the values given to `set_measured` apply; without those, `native`, and the format that fits the model's name. If
two settings contradict each other, the more specific one wins: `native` and `parse` imply the chat endpoint,
`completions` implies `inject`.
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

log = logging.getLogger("dragoman.backends.http")

Endpoint: TypeAlias = Literal["chat", "completions"]
Mode: TypeAlias = Literal["native", "parse", "inject"]
AUTO: Final = "auto"
_ENDPOINTS: Final[dict[str, Endpoint]] = {endpoint: endpoint for endpoint in get_args(Endpoint)}
_MODES: Final[dict[str, Mode]] = {mode: mode for mode in get_args(Mode)}


@dataclass(frozen=True, slots=True)
class ModelMode:
    """How one model is requested, and the reason."""

    mode: Mode = "native"
    """`native`: the server describes the tools and parses the calls. `parse`: the server describes them, and Dragoman
    parses the text. `inject`: Dragoman does both, and the server sees no tools.
    """
    format: str = ""
    """The format in which the model writes calls; empty: by the model's name."""
    endpoint: Endpoint = "chat"
    """The endpoint that is used in mode `inject`."""
    template: str = ""
    """File of the model's chat template; empty: the one that the server reports, for `completions`."""
    constrain: tuple[str, ...] = ()
    """Methods by which the server can constrain the model, best first (`constrained_decoding`); empty: those of the
    provider.
    """
    why: str = "nothing else is known of it"

    def format_of(self, model: str) -> Format:
        """Returns the format of the model with this name; `auto` if none is known."""
        family = None if self.format else families.find(model)
        return formats.get(self.format or (family.format if family else AUTO))


class ModelModes:
    """The tool modes of one server's models."""

    def __init__(self, server: str, config: HttpConfig) -> None:
        """
        Raises:
            ConfigError: a mode, format or endpoint is unknown.
        """
        own = PerModel(config.mode, config.format, config.endpoint, config.template)
        for pattern, row in [("", own), *config.per_model.items()]:
            _validate(row, f"upstreams.{server}{f'.per_model.{pattern}' if pattern else ''}")
        self._server, self._own, self._per_model = server, own, config.per_model
        self._measured: dict[str, ModelMode] = {}
        self._chosen: dict[str, ModelMode] = {}

    def set_measured(self, model: str, chosen: ModelMode) -> None:
        """Sets the mode found by a probe, for what the settings leave open; `chosen.why` is the reason."""
        self._measured[model] = chosen
        self._chosen.pop(model, None)

    def is_auto(self, model: str) -> bool:
        """Returns whether the settings leave the mode of this model open."""
        return not any(row.mode not in ("", AUTO) for row in self._rows(model))

    def get(self, model: str) -> ModelMode:
        """Returns the mode of this model; logs it when it is first selected."""
        if model not in self._chosen:
            chosen = self._chosen[model] = self._choose(model)
            setting = f"mode {chosen.mode}" + (f", format {chosen.format}" if chosen.format else "")
            log.info("%s: %s is asked in %s: %s", self._server, model, setting, chosen.why)
        return self._chosen[model]

    def _choose(self, model: str) -> ModelMode:
        rows = self._rows(model)
        known = self._measured.get(model, ModelMode())
        mode, endpoint = _configured(rows)
        chosen = replace(
            known,
            format=next((row.format for row in rows if row.format), known.format),
            endpoint=endpoint,
            template=next((row.template for row in rows if row.template), ""),
        )
        if not mode and endpoint == "completions":
            return replace(chosen, mode="inject", why="the settings say that Dragoman renders its prompts")
        return replace(chosen, mode=mode, why="the settings say so") if mode else chosen

    def _rows(self, model: str) -> list[PerModel]:
        """Returns the settings that match this model, the most specific first."""
        name = model.lower()
        return [row for pattern, row in self._per_model.items() if fnmatchcase(name, pattern.lower())] + [self._own]


def _configured(rows: Iterable[PerModel]) -> tuple[Mode | None, Endpoint]:
    """Returns the mode, if one is set, and the endpoint that these settings imply; the most specific come first."""
    mode: Mode | None = None
    endpoint: Endpoint | None = None
    for row in rows:
        if row.endpoint and endpoint is None:
            endpoint = _ENDPOINTS[row.endpoint] if mode in (None, "inject") else "chat"
        if endpoint == "completions":  # a mode in a less specific row no longer counts
            break
        mode = mode or _MODES.get(row.mode)
    return mode, endpoint or "chat"


def _validate(row: PerModel, where: str) -> None:
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
