"""The list of models, as one object that clients of both vendors understand.

    {"object": "list", "data": [{"id": "m", "object": "model", "type": "model", "display_name": "m", …}],
     "has_more": false, "first_id": "m", "last_id": "m"}

`limit`, `after_id` and `before_id` page it as Anthropic's list is paged; without a limit, all models are returned. For
clients of a dialect with its own names for models (`listed_as`), models are also listed under those names, after the
others. If several servers have a model of the same name, the entry is that of the first server, which gets the
requests. `created` and `display_name` are those that the server reports, else 0 and the id.

Source: https://platform.openai.com/docs/api-reference/models/list and https://docs.anthropic.com/en/api/models-list
(2026-11).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from dragoman.core.backend import ServedModel
from dragoman.core.errors import NotFoundError, RequestError, quote
from dragoman.wire.dialect import Dialect


def list_response(models: Sequence[ServedModel], dialect: Dialect, query: str) -> dict[str, object]:
    """Returns the requested page of the list.

    Raises: RequestError: the limit is not a number from 1 on, or no model has the id in `after_id` or `before_id`.
    """
    params = dict(parse_qsl(query))
    named = _visible_models(models, dialect)
    ids = list(named)
    limit = _limit(params.get("limit"))
    if before := params.get("before_id"):
        left = ids[: _index(ids, before, "before_id")]
        page = left[-limit:] if limit else left
    else:
        left = ids[_index(ids, params["after_id"], "after_id") + 1 :] if params.get("after_id") else ids
        page = left[:limit] if limit else left
    return {
        "object": "list",
        "data": [_model_object(id, named[id]) for id in page],
        "has_more": len(page) < len(left),
        "first_id": page[0] if page else None,
        "last_id": page[-1] if page else None,
    }


def model_response(models: Sequence[ServedModel], dialect: Dialect, id: str) -> dict[str, object]:
    """Returns one model by a name under which it is listed.

    Raises: NotFoundError: there is no such model.
    """
    named = _visible_models(models, dialect)
    if id not in named:
        raise NotFoundError(f"unknown model {quote(id)}; GET /v1/models lists all")
    return _model_object(id, named[id])


def _visible_models(models: Sequence[ServedModel], dialect: Dialect) -> dict[str, ServedModel]:
    """Returns the models by the names under which they are listed; a model's own name wins over another's alias."""
    own = {model.id: model for model in models}
    return own | {name: model for model in models if (name := dialect.display_name(model.id)) not in own}


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:9])):
        raise RequestError(f"expected a whole number of at least 1, got {quote(text)}", "limit")
    return int(text[:9])


def _index(ids: Sequence[str], id: str, what: str) -> int:
    if id not in ids:
        raise RequestError(f"expected the id of a model that is listed, got {quote(id)}", what)
    return ids.index(id)


def _model_object(id: str, model: ServedModel) -> dict[str, object]:
    return {
        "id": id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owner,
        "type": "model",
        "display_name": model.display_name or model.id,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "context_length": model.context_window,
    }
