"""llama.cpp's own server, from xllamacpp, as a process: `llama_server.py WEIGHTS CONTEXT SLOTS [TEMPLATE [pure]]`.

Prints the URL that it listens on, and ends with its standard input. TEMPLATE is the file of a chat template in place
of the model's own; with `pure` it leaves calls in the text. Each of the SLOTS has its own context, and there is no
cache of prompts but theirs.
Source: https://github.com/xorbitsai/xllamacpp (2026.10, `Server`, `CommonParams`).
"""

import os
import sys
from pathlib import Path

os.environ["OMP_WAIT_POLICY"] = "passive"  # read when the library is loaded; threads that spin starve each other

import xllamacpp


def main(weights: str, context: str, slots: str, template: str = "", reading: str = "") -> None:
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx, params.n_parallel = int(context) * int(slots), int(slots)
    params.kv_unified = False
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) - 1)
    params.use_jinja = True
    params.endpoint_metrics = params.endpoint_slots = True
    params.warmup = False
    params.verbosity = 0
    params.sampling.temp = 0.0  # of requests that name none: runs can be repeated
    if template:
        params.chat_template = Path(template).read_text()
    params.force_pure_content_parser = reading == "pure"
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
