"""Asks an engine which GPUs it can use, without a model: for `dragoman doctor`."""

import json
import re
import subprocess
import sys
from typing import Final

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.engine import hardware
from dragoman.backends.embedded.engine.hardware import Hardware
from dragoman.backends.embedded.engine.llama_server import find_program
from dragoman.backends.embedded.engine.load_log import Device, LoadFacts
from dragoman.backends.embedded.engine.settings import thread_counts
from dragoman.backends.embedded.start_worker import child_environment
from dragoman.core.errors import ConfigError

_TIMEOUT_S: Final = 30
_CODE: Final = """
import json, xllamacpp
devices = [[d["name"], d["description"], d["type"].name, d["memory_free"] >> 20] for d in xllamacpp.get_device_info()]
print(json.dumps([devices, xllamacpp.get_system_info()]))
"""
_BUILT_WITH: Final = re.compile(r"(?:^|\| )(\w+) : ")
_LISTED: Final = re.compile(r"^  (\w+): (.*) \(\d+ MiB, (\d+) MiB free\)$", re.MULTILINE)


def check_devices(config: EmbeddedConfig) -> Hardware:
    """Returns what models would run on.

    Args:
        config: the settings.

    Raises:
        ConfigError: the llama-server program is missing, or the engine cannot be started.
    """
    program = find_program(config.llama_server) if config.engine == "llama-server" else ""
    facts, free_mib = _of_program(program) if program else _of_package()
    facts.threads, facts.reading_threads = thread_counts(config)
    if not facts.devices:
        return hardware.without_devices(facts, hardware.find_gpu(), program)
    free = f"{hardware.name_devices(facts.devices)}, {free_mib} MiB of its memory free"
    if str(config.gpu_layers) == "0":
        return hardware.cpu_only(facts)._replace(reason=f"{free}, is not used: embedded.gpu_layers = 0")
    return Hardware(free)


def _of_package() -> tuple[LoadFacts, int]:
    devices, features = json.loads(_output_of([sys.executable, "-P", "-c", _CODE]))
    gpus = [(Device(id, name), free) for id, name, kind, free in devices if kind.endswith("GPU")]
    facts = LoadFacts(devices=[gpu for gpu, _ in gpus], built_with=tuple(_BUILT_WITH.findall(features)))
    return facts, sum(free for _, free in gpus)


def _of_program(program: str) -> tuple[LoadFacts, int]:
    listed = _LISTED.findall(_output_of([program, "--list-devices"]))
    facts = LoadFacts(devices=[Device(id, name) for id, name, _ in listed])
    return facts, sum(int(free) for _, _, free in listed)


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=child_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"the embedded engine could not be started: {error}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise ConfigError(f"the embedded engine could not be started: {last}")
    return done.stdout
