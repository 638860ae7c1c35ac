"""The list of models, in one object that the clients of both vendors understand.

    {"object": "list", "data": [{"id": "m", "object": "model", "type": "model", "display_name": "m", …}],
     "has_more": false, "first_id": "m", "last_id": "m"}

`limit`, `after_id` and `before_id` page it as Anthropic's list is paged; without a limit all are given. To clients of a
dialect that has names of its own for them (`listed_as`), models are listed under those too, behind the others. Where
several servers have a model of one name, the entry is that of the first, to which requests go. `created` and
`display_name` are as the server reports them; 0 and the id where it does not.

Source: https://platform.openai.com/docs/api-reference/models/list and https://docs.anthropic.com/en/api/models-list
(2026-11).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from dragoman.core.backend import ServedModel
from dragoman.core.errors import NotFoundError, RequestError, quote
from dragoman.wire.dialect import Dialect


def listed(models: Sequence[ServedModel], dialect: Dialect, query: str) -> dict[str, object]:
    """The page that is asked for.

    Raises: RequestError: the limit is no number from 1 on, or nothing is listed under an id that is named.
    """
    asked = dict(parse_qsl(query))
    named = _named(models, dialect)
    ids = list(named)
    limit = _limit(asked.get("limit"))
    if before := asked.get("before_id"):
        left = ids[: _place(ids, before, "before_id")]
        page = left[-limit:] if limit else left
    else:
        left = ids[_place(ids, asked["after_id"], "after_id") + 1 :] if asked.get("after_id") else ids
        page = left[:limit] if limit else left
    return {
        "object": "list",
        "data": [_shown(id, named[id]) for id in page],
        "has_more": len(page) < len(left),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def one_model(models: Sequence[ServedModel], dialect: Dialect, id: str) -> dict[str, object]:
    """One model by a name that it is listed under.

    Raises: NotFoundError: nothing is.
    """
    named = _named(models, dialect)
    if id not in named:
        raise NotFoundError(f"unknown model {quote(id)}; GET /v1/models lists all")
    return _shown(id, named[id])


def _named(models: Sequence[ServedModel], dialect: Dialect) -> dict[str, ServedModel]:
    """By the names that they are listed under; a model's own name is nobody else's."""
    own = {model.id: model for model in models}
    return own | {name: model for model in models if (name := dialect.listed_as(model.id)) not in own}


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:9])):
        raise RequestError(f"expected a whole number of at least 1, got {quote(text)}", "limit")
    return int(text[:9])


def _place(ids: Sequence[str], id: str, what: str) -> int:
    if id not in ids:
        raise RequestError(f"expected the id of a model that is listed, got {quote(id)}", what)
    return ids.index(id)


def _shown(id: str, model: ServedModel) -> dict[str, object]:
    return {
        "id": id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owner,
        "type": "model",
        "display_name": model.display_name or model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "context_length": model.context_tokens,
    }
