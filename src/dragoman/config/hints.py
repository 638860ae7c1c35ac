"""Hints for unknown settings: the setting that is probably meant, else all settings of the section."""

from collections.abc import Iterable, Mapping, Sequence

from dragoman.core.errors import closest

Sections = Mapping[str, Sequence[str]]
"""For each section, the names of its settings."""


def hint_for_key(key: str, value: object, sections: Sections) -> str:
    """Returns a hint for an unknown setting, which starts with a semicolon.

    Args:
        key: The key, with its section if it is in one.
        value: What it is set to.
        sections: All sections but those whose names the user chooses.
    """
    section, dot, name = key.rpartition(".")
    if not dot:
        return _hint_without_section(key, sections)
    if section in sections:
        nearest_key = nearest_setting(name, sections[section])
        return (
            f"; did you mean '{section}.{nearest_key}'?"
            if nearest_key
            else f"; [{section}] has {_listed(sections[section])}"
        )
    if isinstance(value, dict):
        return f"; did you mean [upstreams.{name}]?"
    nearest = nearest_setting(section, [*sections, "model_aliases"])
    if nearest == "model_aliases":
        return f"; did you mean [{nearest}]?"
    if nearest and (nearest_key := nearest_setting(name, sections[nearest])):
        return f"; did you mean '{nearest}.{nearest_key}'?"
    named = ("upstreams.NAME", "mcp.NAME", "formats.NAME", "backends.NAME", "model_aliases")
    return f"; the sections are {', '.join(f'[{each}]' for each in (*sections, *named))}"


def hint_for_named(name: str, known: Sequence[str], what: str) -> str:
    """Returns a hint for an unknown setting of an upstream server or an MCP server, as `what` says."""
    nearest_key = nearest_setting(name, known)
    return f"; did you mean '{nearest_key}'?" if nearest_key else f"; {what} has {_listed(known)}"


def nearest_setting(name: str, known: Iterable[str]) -> str:
    """Returns the known name that has `name` as one of its words, else the most similar one; "" if there is none."""
    names = list(known)
    with_word = [each for each in names if f"_{name}_" in f"_{each}_"]
    return min(with_word, key=len) if with_word else closest(name, names)


def _hint_without_section(name: str, sections: Sections) -> str:
    by_name = {each: section for section, names in reversed(list(sections.items())) for each in names}
    nearest_key = nearest_setting(name, by_name)
    return f"; did you mean [{by_name[nearest_key]}] {nearest_key}?" if nearest_key else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
