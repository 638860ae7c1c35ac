"""Settings of the records: the section `[records]`."""

from typing import Annotated

import msgspec

from dragoman.schema.setting import setting


class RecordsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether, where and how long exchanges are recorded."""

    enabled: Annotated[
        bool,
        setting("Whether each exchange is recorded, without messages, arguments and results (docs/records.md)."),
    ] = True
    url: Annotated[
        str,
        setting(
            "`sqlite:////path` or `postgresql://user:password@host/name`; empty: `state.database_url`, else a file in "
            "the user's state folder."
        ),
    ] = ""
    keep_days: Annotated[int, setting("Age in days at which records are deleted.", ge=1, le=36500)] = 90
    max_bytes: Annotated[
        int, setting("Size of the database, in bytes, above which the oldest records are deleted.", ge=1024 * 1024)
    ] = 1024 * 1024 * 1024
