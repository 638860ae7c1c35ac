"""Selects the tool mode of each model: from the settings, else from the probe, else the server's native API.

    [upstreams.far]
    tool_mode = "parse"
    [upstreams.far.model_overrides."smollm*"]
    tool_mode = "prompt"
    call_format = "hermes"

A field that is empty in a row of `model_overrides` has the server's value. If the tool mode is `auto` there too, or no
format is set, the values given to `set_measured` apply; without those, `native`, and the format that fits the model's
name. If two settings contradict each other, the more specific one wins: `native` and `parse` imply the chat endpoint,
`completions` implies `prompt`.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from dragoman import formats
from dragoman.backends.http.config import HttpConfig, ModelOverride
from dragoman.catalog import families
from dragoman.core.errors import ConfigError, one_of
from dragoman.parsing.format import Format

log = logging.getLogger("dragoman.backends.http")

Endpoint: TypeAlias = Literal["chat", "completions"]
ToolMode: TypeAlias = Literal["native", "parse", "prompt"]
AUTO: Final = "auto"
_ENDPOINTS: Final[dict[str, Endpoint]] = {endpoint: endpoint for endpoint in get_args(Endpoint)}
_MODES: Final[dict[str, ToolMode]] = {mode: mode for mode in get_args(ToolMode)}


@dataclass(frozen=True, slots=True)
class ModelMode:
    """How one model is requested, and the reason."""

    tool_mode: ToolMode = "native"
    """`native`: the server describes the tools and parses the calls. `parse`: the server describes them, and Dragoman
    parses the text. `prompt`: Dragoman does both, and the server sees no tools.
    """
    call_format: str = ""
    """The format in which the model writes calls; empty: by the model's name."""
    endpoint: Endpoint = "chat"
    """The endpoint that is used in tool mode `prompt`."""
    chat_template: str = ""
    """File of the model's chat template; empty: the one that the server reports, for `completions`."""
    constrain: tuple[str, ...] = ()
    """Methods by which the server can constrain the model, best first (`constrained_decoding`); empty: those of the
    provider.
    """
    why: str = "nothing else is known of it"
    own_format: Format | None = None
    """The format `call_format` if the settings define it."""

    @property
    def writes_past_turns(self) -> bool:
        """Whether Dragoman writes the calls of past turns into text."""
        return self.tool_mode != "native" or self.endpoint == "completions"

    def format_of(self, model: str) -> Format:
        """Returns the format of the model with this name; `auto` if none is known."""
        if self.own_format is not None:
            return self.own_format
        family = None if self.call_format else families.find(model)
        return formats.get(self.call_format or (family.format if family else AUTO))


class ModelModes:
    """The tool modes of one server's models."""

    def __init__(self, server: str, config: HttpConfig) -> None:
        """
        Raises:
            ConfigError: a tool mode, format or endpoint is unknown.
        """
        self._formats = _defined_formats(config)
        own = ModelOverride(config.tool_mode, config.call_format, config.endpoint, config.chat_template)
        for pattern, row in [("", own), *config.model_overrides.items()]:
            _validate(row, self._formats, f"upstreams.{server}{f'.model_overrides.{pattern}' if pattern else ''}")
        self._server, self._own, self._overrides = server, own, config.model_overrides
        self._measured: dict[str, ModelMode] = {}
        self._chosen: dict[str, ModelMode] = {}

    def set_measured(self, model: str, chosen: ModelMode) -> None:
        """Sets the mode found by a probe, for what the settings leave open; `chosen.why` is the reason."""
        self._measured[model] = chosen
        self._chosen.pop(model, None)

    def is_auto(self, model: str) -> bool:
        """Returns whether the settings leave the mode of this model open."""
        return not any(row.tool_mode not in ("", AUTO) for row in self._rows(model))

    def get(self, model: str) -> ModelMode:
        """Returns the mode of this model; logs it when it is first selected."""
        if model not in self._chosen:
            chosen = self._chosen[model] = self._choose(model)
            setting = f"tool mode {chosen.tool_mode}" + (f", format {chosen.call_format}" if chosen.call_format else "")
            log.info("%s: %s is asked in %s: %s", self._server, model, setting, chosen.why)
        return self._chosen[model]

    def measured(self, model: str) -> ModelMode | None:
        """Returns the mode that a probe of this model found; None: it was not probed."""
        return self._measured.get(model)

    def known(self) -> Mapping[str, ModelMode]:
        """Returns the modes of the models that were requested or measured."""
        return {model: self._chosen.get(model) or self._choose(model) for model in [*self._chosen, *self._measured]}

    def _choose(self, model: str) -> ModelMode:
        rows = self._rows(model)
        known = self._measured.get(model, ModelMode())
        mode, endpoint = _configured(rows)
        written = next((row.call_format for row in rows if row.call_format), known.call_format)
        chosen = replace(
            known,
            call_format=written,
            own_format=self._formats.get(written),
            endpoint=endpoint,
            chat_template=next((row.chat_template for row in rows if row.chat_template), ""),
        )
        if not mode and endpoint == "completions":
            return replace(chosen, tool_mode="prompt", why="the settings say that Dragoman renders its prompts")
        return replace(chosen, tool_mode=mode, why="the settings say so") if mode else chosen

    def _rows(self, model: str) -> list[ModelOverride]:
        """Returns the settings that match this model, the most specific first."""
        name = model.lower()
        return [row for pattern, row in self._overrides.items() if fnmatchcase(name, pattern.lower())] + [self._own]


def _configured(rows: Iterable[ModelOverride]) -> tuple[ToolMode | None, Endpoint]:
    """Returns the mode, if one is set, and the endpoint that these settings imply; the most specific come first."""
    mode: ToolMode | None = None
    endpoint: Endpoint | None = None
    for row in rows:
        if row.endpoint and endpoint is None:
            endpoint = _ENDPOINTS[row.endpoint] if mode in (None, "prompt") else "chat"
        if endpoint == "completions":  # a mode in a less specific row no longer counts
            break
        mode = mode or _MODES.get(row.tool_mode)
    return mode, endpoint or "chat"


def _defined_formats(config: HttpConfig) -> Mapping[str, Format]:
    """Returns the formats that the settings define, by name."""
    if not config.formats:
        return {}
    from dragoman.parsing.tag_format import tag_format

    return {name: tag_format(name, table, f"formats.{name}") for name, table in config.formats.items()}


def _validate(row: ModelOverride, defined: Mapping[str, Format], where: str) -> None:
    if row.tool_mode and row.tool_mode not in (AUTO, *_MODES):
        hint = one_of(row.tool_mode, (AUTO, *_MODES), "expected ")
        raise ConfigError(f"unknown tool_mode {row.tool_mode!r}{hint} - at {where}.tool_mode")
    if row.endpoint and row.endpoint not in _ENDPOINTS:
        hint = one_of(row.endpoint, _ENDPOINTS, "expected ")
        raise ConfigError(f"unknown endpoint {row.endpoint!r}{hint} - at {where}.endpoint")
    if row.endpoint == "completions" and row.tool_mode not in ("", AUTO, "prompt"):
        raise ConfigError(
            f"completions know nothing of tools: expected tool_mode prompt, got {row.tool_mode} - at {where}.tool_mode"
        )
    if row.call_format and row.call_format not in defined:
        try:
            formats.get(row.call_format)
        except ConfigError as e:
            raise ConfigError(f"{e.message} - at {where}.call_format") from None
