"""What installed packages offer Dragoman, and which of it the settings use."""

from collections.abc import Callable

from dragoman import config as settings
from dragoman import formats, plugins
from dragoman.cli.doctor.finding import Finding
from dragoman.core.errors import ConfigError
from dragoman.plugins import Plugin


def plugins_found(config: settings.Config) -> list[Finding]:
    """Returns a finding for each plug-in; none if no package has one.

    Formats are imported, as by `dragoman formats`; backends and hooks only if the settings use them.
    """
    used = {
        plugins.BACKENDS: {str(table.get("plugin")) for table in config.backends.values()},
        plugins.HOOKS: set(config.hooks.enabled),
    }
    found = [
        _finding(plugin, "can be used as `call_format`", formats.load_plugin)
        for plugin in plugins.installed(plugins.FORMATS).values()
    ]
    for group, names in used.items():
        for plugin in plugins.installed(group).values():
            if plugin.name in names:
                found.append(_finding(plugin, "used by the settings", Plugin.load))
            else:
                found.append(Finding(_title(plugin), "note", f"of {plugin.package}: not used by the settings"))
    return found


def _finding(plugin: Plugin, use: str, load: Callable[[Plugin], object]) -> Finding:
    try:
        load(plugin)
    except ConfigError as error:
        is_needed = plugin.group != plugins.FORMATS  # a format is needed only where its name is used
        return Finding(_title(plugin), "no" if is_needed else "note", error.message)
    return Finding(_title(plugin), "ok", f"of {plugin.package}: {use}")


def _title(plugin: Plugin) -> str:
    return f"{plugin.group.removeprefix('dragoman.').removesuffix('s')} {plugin.name}"
