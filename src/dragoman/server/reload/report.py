"""The result of a reload, as JSON and as a line of the log."""

from typing import Literal, TypeAlias

import msgspec

from dragoman.config.position import with_line

ReloadResult: TypeAlias = Literal["reloaded", "unchanged", "rejected"]
RESULTS: tuple[ReloadResult, ...] = ("reloaded", "unchanged", "rejected")


class ReloadReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reload did. It contains no values of settings, except those that an error quotes."""

    result: ReloadResult
    file: str = ""
    """The settings file; empty: there is none."""
    changed: tuple[str, ...] = ()
    """Keys of the settings that have changed."""
    need_restart: tuple[str, ...] = ()
    """Keys of settings that have changed, but only a restart applies."""
    error: str = ""
    """Why the new settings were rejected."""
    line: int = 0
    """The line of the file that the error is about; 0: not known."""

    def text(self) -> str:
        """Returns the line of the log."""
        if self.result == "rejected":
            located = with_line(self.error, self.file, self.line)
            return f"the configuration was not reloaded, and nothing has changed: {located}"
        waits = f"; only a restart changes {', '.join(self.need_restart)}" if self.need_restart else ""
        if self.result == "unchanged":
            return f"the configuration is unchanged{waits}"
        return f"the configuration was reloaded: {', '.join(self.changed)}{waits}"
