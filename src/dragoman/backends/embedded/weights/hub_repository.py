"""The GGUF files of a repository on the Hugging Face Hub, with their sizes and checksums.

The Hub lists them at `GET /api/models/OWNER/REPO/tree/REVISION?recursive=true`, a page at a time. `huggingface_hub`
sends the requests, so `HF_TOKEN` and `HF_ENDPOINT` apply. It would retry for half a minute if the Hub cannot be
reached, so its session is used here, with a short timeout.

Source: https://huggingface.co/docs/hub/api (2026-11).
"""

import re
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.weights.hub import REACH_TIMEOUT_S, require_library, translated_errors
from dragoman.backends.embedded.weights.quantization import HubFile, HubModel, group_models, is_projector
from dragoman.core.errors import ConfigError, RemoteError, UpstreamError, quote

_NAME: Final = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::([\w.-]+))?", re.ASCII)
_REVISION: Final = "main"
_HEADER_BYTES: Final = 1 << 20
"""Enough for all of a header before the vocabulary."""
_MAX_FILES: Final = 20_000


class RepositoryName(NamedTuple):
    """What the user calls a model of the Hub."""

    repo: str
    quantization: str
    """"": the user names none."""


class HubRepository(NamedTuple):
    """The models of a repository."""

    repo: str
    models: list[HubModel]
    projectors: list[HubFile]


class HubChoice(NamedTuple):
    """A model of the Hub to download."""

    repo: str
    model: HubModel
    projector: HubFile | None
    """With which it sees images or hears sound."""

    @property
    def name(self) -> str:
        """The name under which its weights are found later."""
        return f"hf:{self.repo}/{self.model.files[0].path}"


def parse_repository(name: str) -> RepositoryName | None:
    """Returns the repository and the quantization of a name such as `hf:owner/repo:Q4_K_M`.

    Returns: None if it is the name of a file, or of something else.

    Raises:
        ConfigError: it begins with `hf:` but is neither.
    """
    if not name.startswith("hf:") or name.endswith(".gguf"):
        return None
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"expected hf:owner/repo, hf:owner/repo:QUANTIZATION or hf:owner/repo/file.gguf, got {quote(name)}"
        )
    return RepositoryName(match[1], match[2] or "")


def list_repository(repo: str) -> HubRepository:
    """Returns the GGUF files of a repository.

    Raises:
        SourceUnavailableError: there is no such repository, or `huggingface_hub` is not installed.
        UpstreamError: the Hub cannot be reached, or failed.
    """
    require_library(repo)
    import huggingface_hub as hub
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    session, files = hub.get_session(), list[HubFile]()
    url: str | None = f"{constants.ENDPOINT}/api/models/{repo}/tree/{_REVISION}?recursive=true"
    with translated_errors(repo):
        while url and len(files) < _MAX_FILES:
            response = session.get(url, headers=build_hf_headers(), timeout=REACH_TIMEOUT_S)
            hf_raise_for_status(response)
            files += _gguf_files(response.json(), repo)
            url = response.links.get("next", {}).get("url")
    projectors = [file for file in files if is_projector(file.path)]
    return HubRepository(repo, group_models(files), projectors)


def fetch_shape(repo: str, file: str) -> gguf.Shape | None:
    """Returns the sizes in the header of a file, of which the beginning is downloaded; None: they are not known."""
    import huggingface_hub as hub
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hub.hf_hub_url(repo, file, revision=_REVISION)
    headers = build_hf_headers() | {"Range": f"bytes=0-{_HEADER_BYTES - 1}", "Accept-Encoding": "identity"}
    data = b""
    with (
        suppress(RemoteError, ConfigError),
        translated_errors(repo),
        hub.get_session().stream(
            "GET", url, headers=headers, timeout=REACH_TIMEOUT_S, follow_redirects=True
        ) as response,
    ):
        for chunk in response.iter_bytes() if response.is_success else ():
            data += chunk
            if len(data) >= _HEADER_BYTES:  # a server may send the whole file
                break
    return gguf.shape_of_beginning(data)


def pick_projector(repository: HubRepository, model: HubModel) -> HubFile | None:
    """Returns the projector to download with a model; None: the repository has none.

    Several are the same one in different precisions, unless they are in folders: F16 is preferred, as llama.cpp's own
    conversion writes it.
    """
    folder = model.files[0].path.rpartition("/")[0]
    own = [file for file in repository.projectors if file.path.rpartition("/")[0] == folder]
    found = own or [file for file in repository.projectors if "/" not in file.path]
    halves = [file for file in found if re.search(r"(?<![a-z])f(p)?16", file.path, re.IGNORECASE)]
    return min(halves or found, key=lambda file: file.size_bytes, default=None)


def _gguf_files(page: Any, repo: str) -> list[HubFile]:
    try:
        return [_hub_file(entry) for entry in page if entry["type"] == "file" and entry["path"].endswith(".gguf")]
    except (KeyError, TypeError, AttributeError) as error:
        raise UpstreamError(f"the Hugging Face Hub failed for {repo}: its list of files is not valid") from error


def _hub_file(entry: dict[str, Any]) -> HubFile:
    stored = entry.get("lfs") or {}
    return HubFile(str(entry["path"]), int(stored.get("size") or entry["size"]), str(stored.get("oid", "")))
