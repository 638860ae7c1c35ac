"""Reads from llama.cpp's log on which hardware a model was loaded, and what explains an exit.

    … load_tensors: offloaded 20/31 layers to GPU

Source: llama.cpp of 2026-10, src/llama.cpp, src/llama-model.cpp, src/llama-context.cpp, src/llama-kv-cache.cpp,
common/common.cpp. The lines begin with time, level and part of the program: `0.00.437.638 I `.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

KEPT_LINES: Final = 20
_MAX_CHARS: Final = 500
_INFORMATION: Final = re.compile(r"\d+\.\d+\.\d+\.\d+ [DIW] |\s")
"""The beginning of a line that explains no exit: below the level of errors, or more of such a line."""
_DEVICE: Final = re.compile(r"using device (\S+) \((.*?)\)(?: \([^()]*\))? - \d+ MiB free")
_LAYERS: Final = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_BUFFER: Final = re.compile(r" (model|KV|RS|compute) buffer size = +([0-9.]+) MiB")
_THREADS: Final = re.compile(r"\bn_threads = (\d+) \(n_threads_batch = (\d+)\)")
_CACHE_TYPES: Final = re.compile(r"\bK \((\w+)\): .*\bV \((\w+)\):")
_BATCH: Final = re.compile(r"\bn_ubatch += (\d+)")
_FLASH: Final = re.compile(r"\bflash_attn += (\w+)")
_FLASH_CHOSEN: Final = re.compile(r"Flash Attention (?:not supported, set to )?(enabled|disabled)")
_BUILT_WITH: Final = re.compile(r"\| (\w+) : ")
_LOADED: Final = re.compile(r"\blistening on |\bserver is listening")


class Device(NamedTuple):
    """A device that the engine uses besides the CPU."""

    id: str
    """As llama.cpp names it: `CUDA0`, `MTL0`."""
    name: str
    """As its maker names it."""


@dataclass
class LoadFacts:
    """What the engine reported while it loaded a model."""

    devices: list[Device] = field(default_factory=list)
    gpu_layers: int = 0
    """Layers on the devices; a build without a GPU reports all, so it counts only with a device."""
    layers: int = 0
    """All layers, with the output layer; 0: not reported."""
    built_with: tuple[str, ...] = ()
    """Parts of the build that report their features, such as `CUDA` and `CPU`; Vulkan does not."""
    threads: int = 0
    reading_threads: int = 0
    batch_tokens: int = 0
    flash_attention: str = ""
    """`enabled` or `disabled`."""
    cache_types: tuple[str, ...] = ()
    """Number types of keys and values."""
    buffers_mib: dict[tuple[str, str], float] = field(default_factory=dict)
    """Sizes by device or kind of memory (`CPU_Mapped`), and by use (`KV`)."""
    is_complete: bool = False

    @property
    def gpu_mib(self) -> float:
        """Returns the memory of devices that the model uses."""
        ids = {device.id for device in self.devices}
        return sum(size for (place, _), size in self.buffers_mib.items() if place in ids)


class EngineLog:
    """The log of one engine process."""

    def __init__(self) -> None:
        self.facts = LoadFacts()
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        """The latest lines that may explain an exit."""

    def feed(self, line: str) -> None:
        """Takes in one line."""
        if not _INFORMATION.match(line):
            self.last.append(line.strip()[:_MAX_CHARS])
        if not self.facts.is_complete:
            _read_fact(line, self.facts)
            if _LOADED.search(line):
                self.facts.is_complete = True
                self.last.clear()


def _read_fact(line: str, facts: LoadFacts) -> None:
    if match := _BUFFER.search(line):
        place = line[: match.start()].split()[-1:]
        facts.buffers_mib["".join(place), match[1]] = float(match[2])
    elif match := _DEVICE.search(line):
        device = Device(match[1], match[2])
        facts.devices = [*(each for each in facts.devices if each.id != device.id), device]
    elif match := _LAYERS.search(line):
        facts.gpu_layers, facts.layers = int(match[1]), int(match[2])
    elif match := _THREADS.search(line):
        facts.threads, facts.reading_threads = int(match[1]), int(match[2])
        facts.built_with = tuple(_BUILT_WITH.findall(line))
    elif match := _CACHE_TYPES.search(line):
        facts.cache_types = match[1], match[2]
    elif match := _BATCH.search(line):
        facts.batch_tokens = int(match[1])
    elif match := _FLASH.search(line) or _FLASH_CHOSEN.search(line):
        facts.flash_attention = match[1]
