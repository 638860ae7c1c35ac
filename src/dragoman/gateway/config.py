"""Settings of the response store: the section `[response_store]`."""

from typing import Annotated

import msgspec

from dragoman.gateway.storage import response_store
from dragoman.schema.setting import setting


class ResponseStoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long stored responses can be continued."""

    max_responses: Annotated[
        int, setting("Maximum stored responses, for `previous_response_id` and `item_reference`; 0: none.", ge=0)
    ] = response_store.MAX_RESPONSES
    max_bytes: Annotated[int, setting("Maximum size of the stored responses and their requests, in bytes.", ge=0)] = (
        response_store.MAX_BYTES
    )
    ttl_s: Annotated[float, setting("A response that is unused for this time is deleted, in seconds.", gt=0)] = (
        response_store.TTL_S
    )
    path: Annotated[
        str,
        setting(
            "SQLite file for the responses, which then outlive a restart; empty: `[state]` has them, else the process."
        ),
    ] = ""
    seal_key: Annotated[
        str,
        setting(
            "Key that compacted conversations are signed with, the same for all replicas. Empty: a random key that "
            "`serve` stores in its folder, or that replicas share by `[state]`."
        ),
    ] = ""
