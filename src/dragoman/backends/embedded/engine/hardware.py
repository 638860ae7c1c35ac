"""States on which hardware a model runs, and which build of the engine would use a GPU that is here.

    Metal (Apple M2 Pro), 29 of 29 layers on the GPU
    CPU only, 4 threads (this build has no CUDA; an NVIDIA GPU is here: pip install …)

Source: https://github.com/xorbitsai/xllamacpp (README of 2026.10: builds and their indexes).
"""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dragoman import extras
from dragoman.backends.embedded.engine.load_log import Device, LoadFacts

_INDEX: Final = "https://xorbitsai.github.io/xllamacpp/whl/"
_KINDS: Final = {"MTL": "Metal", "GPUOpenCL": "OpenCL"}
"""Names of backends for users, where they differ from those in the names of devices."""
_INTEL, _AMD, _NVIDIA = "0x8086", "0x1002", "0x10de"
"""PCI numbers of makers."""
_OLD_ROCM: Final = "6"


class Gpu(NamedTuple):
    """A GPU of this machine, and the build that uses it."""

    maker: str
    backend: str
    """`CUDA`, `ROCm`, `Vulkan` or `Metal`."""
    build: str
    """The name of the build in the engine's package index; empty: PyPI has it."""

    @property
    def command(self) -> str:
        """Returns the command that installs the build."""
        return extras.replace_command("xllamacpp", _INDEX + self.build if self.build else "")


class Hardware(NamedTuple):
    """What a model runs on."""

    text: str
    """`CPU only, 4 threads`."""
    reason: str = ""
    """Why no GPU is used although one is here."""
    command: str = ""
    """Installs the build that uses it."""

    def __str__(self) -> str:
        """Returns one line."""
        advice = f"{self.reason}: {self.command}" if self.command else self.reason
        return f"{self.text} ({advice})" if advice else self.text


def find_gpu(root: Path = Path("/"), platform: str = sys.platform, machine: str = "") -> Gpu | None:
    """Returns the GPU of this machine, whether or not the engine can use it; None: no sign of one.

    Args:
        root: the folder in which `/proc`, `/dev` and `/sys` are.
        platform: as `sys.platform`.
        machine: as `platform.machine()`; empty: this machine's.
    """
    if platform == "darwin":
        machine = machine or os.uname().machine
        return Gpu("Apple", "Metal", "") if machine == "arm64" else None
    makers = _render_nodes(root)
    if (root / "proc/driver/nvidia/version").exists() or (platform == "win32" and shutil.which("nvidia-smi")):
        return Gpu("NVIDIA", "CUDA", "cu128")
    if (root / "dev/kfd").exists():
        return Gpu("AMD", "ROCm", "rocm-6.4.1" if _rocm_version(root).startswith(_OLD_ROCM) else "rocm-7.2.4")
    names = {_AMD: "AMD", _INTEL: "Intel", _NVIDIA: "NVIDIA"}
    return next((Gpu(names[maker], "Vulkan", "vulkan") for maker in makers if maker in names), None)


def describe(facts: LoadFacts, gpu: Gpu | None, program: str = "", gpu_layers: str = "auto") -> Hardware:
    """Returns what a loaded model runs on.

    Args:
        facts: what the engine reported.
        gpu: the GPU of this machine.
        program: the llama-server that runs it; empty: the Python package.
        gpu_layers: the setting.
    """
    if facts.devices and facts.gpu_layers:
        where = "the GPU" if len(facts.devices) == 1 else f"{len(facts.devices)} GPUs"
        return Hardware(f"{name_devices(facts.devices)}, {facts.gpu_layers} of {facts.layers} layers on {where}")
    if facts.devices:
        name = name_devices(facts.devices)
        why = (
            "has no memory for a layer" if gpu_layers == "auto" else f"is not used: embedded.gpu_layers = {gpu_layers}"
        )
        return cpu_only(facts)._replace(reason=f"{name} {why}")
    return without_devices(facts, gpu, program)


def without_devices(facts: LoadFacts, gpu: Gpu | None, program: str) -> Hardware:
    """Returns the hardware for an engine that found no GPU.

    Args:
        facts: what the engine reported.
        gpu: the GPU of this machine.
        program: the llama-server; empty: the Python package.
    """
    if gpu is None:
        return cpu_only(facts)
    here = f"an {gpu.maker} GPU is here"
    if gpu.backend in (_kind(name) for name in facts.built_with):
        reason = f"{here}, but this build with {gpu.backend} found none: its driver is missing or too old"
        return cpu_only(facts)._replace(reason=reason)
    reason = f"this build has no {gpu.backend}; {here}"
    if program:
        return cpu_only(facts)._replace(reason=f"{reason}; set embedded.llama_server to a build with {gpu.backend}")
    return cpu_only(facts)._replace(reason=reason, command=gpu.command)


def cpu_only(facts: LoadFacts) -> Hardware:
    """Returns the hardware for a model that runs on the CPU."""
    threads = facts.threads
    count = f"{threads} thread{'s' * (threads != 1)}"
    reading = facts.reading_threads
    more = f", {reading} while a prompt is read" if reading not in (0, threads) else ""
    return Hardware(f"CPU only, {count}{more}" if threads else "CPU only")


def name_devices(devices: Sequence[Device]) -> str:
    """Returns the names of devices: `CUDA (NVIDIA GeForce RTX 3090)`."""
    kinds = list(dict.fromkeys(_kind(device.id) for device in devices))
    return f"{' and '.join(kinds)} ({', '.join(device.name for device in devices)})"


def _kind(id: str) -> str:
    """Returns the name of a device's backend: `CUDA` for `CUDA0`."""
    name = re.sub(r"\d+$", "", id)
    return _KINDS.get(name, name)


def _render_nodes(root: Path) -> list[str]:
    """Returns the PCI numbers of the makers of what can render."""
    makers = []
    for node in sorted((root / "sys/class/drm").glob("renderD*")):
        try:
            makers.append((node / "device/vendor").read_text().strip())
        except OSError:
            continue
    return makers


def _rocm_version(root: Path) -> str:
    try:
        return (root / "opt/rocm/.info/version").read_text().strip()
    except OSError:
        return ""
