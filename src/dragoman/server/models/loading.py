"""Loads and unloads models of this machine at a client's request, by the paths of llama-server's router.

    POST /models/load   {"model": "m"} → {"success": true}   when the model is ready
    POST /models/unload {"model": "m"} → {"success": true}   at once if the model is busy: it is unloaded afterwards

As there, a model that is loaded already, or not loaded, is an error with status 400, and an unknown one with 404.

Source: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md (2026-11).
"""

from collections.abc import Mapping

import msgspec

from dragoman.config.server import ServerConfig
from dragoman.core.errors import RequestError
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.base_exchange import BaseExchange, Route
from dragoman.server.client_watch import Client, ClientWatch
from dragoman.server.observe.access_log import AccessRecord
from dragoman.text import json_cursor


class ModelLoading(BaseExchange):
    """One request to load or unload a model."""

    def __init__(
        self, route: Route, gateway: Gateway, config: ServerConfig, record: AccessRecord, client: Client
    ) -> None:
        super().__init__(route.dialect, config, record, client)
        self._loads, self._gateway = bool(route.loads), gateway

    async def _serve(self, headers: Mapping[str, str]) -> None:
        model = json_cursor.parse(await self._body(headers)).fields().pop("model")
        if model is None or not (name := model.string()):
            raise RequestError("missing required field 'model'", "model")
        async with ClientWatch(self._client, self._config.write_timeout_s) as self._watch:
            backend, request = (await self._gateway.routes_or_refresh(Request(name, ()), self._record.client))[0]
            await (backend.load_model(request.model) if self._loads else backend.unload_model(request.model))
            await self._reply(200, msgspec.json.encode({"success": True}), {})
