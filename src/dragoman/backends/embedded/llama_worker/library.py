"""llama.cpp in the child process, by xllamacpp."""

import os
from collections.abc import Callable
from typing import Any, Final

_LOG_LEVEL: Final = 4
"""The lowest level at which a load reports its hardware; prompts are not logged below 5."""
_GPU_TYPES: Final = ("GGML_BACKEND_DEVICE_TYPE_GPU", "GGML_BACKEND_DEVICE_TYPE_IGPU")


class Library:
    """llama.cpp in this process."""

    def __init__(self, settings: dict[str, Any], address: tuple[str, int], key: str) -> None:
        try:
            import xllamacpp
        except ImportError as error:
            if "libgomp" not in str(error):
                raise
            # The wheel contains everything else; slim Debian images lack this library.
            raise ImportError(f"{error}; install it: apt-get install libgomp1 (or: dnf install libgomp)") from None
        params = xllamacpp.CommonParams()
        params.model.path = settings["path"]
        if settings["projector"]:
            params.mmproj.path = settings["projector"]
            params.video_ffmpeg_bin_dir = settings["private"]  # a client's data never reaches a program of the machine
        params.n_parallel = settings["max_concurrency"]
        params.n_ctx = settings["context_window"] * settings["max_concurrency"]
        _set_hardware(params, settings, xllamacpp)
        if settings["pooling"]:  # each text is read in one batch
            params.embedding = True
            params.pooling_type = xllamacpp.llama_pooling_type(settings["pooling"])
            params.n_batch = params.n_ubatch = settings["context_window"]
        params.cache_ram_mib = settings["cache_mb"]
        if settings["prefix_dir"]:
            params.slot_save_path = os.path.join(settings["prefix_dir"], "")
        params.warmup = False
        params.verbosity = _LOG_LEVEL
        params.endpoint_metrics = True
        params.ui = False
        params.cors_origins = ""
        params.api_keys = [key]
        params.hostnames = [address[0]]
        if address[1]:
            params.port = address[1]
        self._server = xllamacpp.Server(params)
        self.pid = os.getpid()

    def complete(self, body: dict[str, Any], took: Callable[[dict[str, Any]], bool]) -> None:
        """Passes chunks to `took` until it returns True."""
        self._server.handle_completions(body, took)

    def has_ended(self) -> bool:
        """Returns that it has not: it ends with this process."""
        return False

    def close(self) -> None:
        """Has nothing to end."""


def _set_hardware(params: Any, settings: dict[str, Any], xllamacpp: Any) -> None:
    layers: str = settings["gpu_layers"]
    params.n_gpu_layers = {"auto": -1, "all": -2}[layers] if layers in ("auto", "all") else int(layers)
    shares: list[float] = settings["tensor_split"]
    if shares:  # the engine has a share for each of the devices that it can manage
        params.tensor_split = [*shares, *params.tensor_split[len(shares) :]]
    flash = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}[settings["flash_attention"]]
    params.flash_attn_type = xllamacpp.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{flash}"]
    keys, values = (xllamacpp.ggml_type[f"GGML_TYPE_{kind.upper()}"] for kind in settings["cache_types"])
    params.cache_type_k, params.cache_type_v = keys, values
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["reading_threads"]
    has_gpu = layers != "0" and any(device["type"].name in _GPU_TYPES for device in xllamacpp.get_device_info())
    params.n_batch = params.n_ubatch = settings["batch_tokens"] or (512 if has_gpu else 256)
    params.fit_params = has_gpu  # loads the vocabulary a second time, to choose the layers
