"""A private nginx in front of gateways, with the settings of deploy/nginx.conf."""

import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.gateway import until
from support.paths import ROOT

MAIN = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/dragoman.conf;
}}
"""


def program() -> str:
    """Returns the path of nginx; skips the test where there is none."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("no nginx (Debian: nginx-light)")
    return found


def settings(port: int, gateways: Sequence[int]) -> str:
    """Returns deploy/nginx.conf for these ports; the header x-served-by of responses names the gateways."""
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    pattern = r"^ *server [\d.]+:8484 (.*)$"
    kinds = dict.fromkeys(re.findall(pattern, text, re.M))
    assert kinds
    servers = "\n".join(f"server 127.0.0.1:{port} {kind}" for kind in kinds for port in gateways)
    text = re.sub(pattern, "", text, flags=re.M).replace("least_conn;", f"least_conn;\n{servers}")
    listen = f"listen 127.0.0.1:{port};\n    add_header x-served-by $upstream_addr always;"
    return re.sub(r"listen \d+;", listen, text)


@contextlib.contextmanager
def running(folder: Path, port: int, gateways: Sequence[int]) -> Iterator[str]:
    """Yields the URL of nginx in front of gateways at these ports."""
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder))
    (folder / "dragoman.conf").write_text(settings(port, gateways))
    command = [program(), "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(command)
    try:

        def accepts() -> bool:
            assert process.poll() is None, (folder / "error.log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        until(accepts, "nginx")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
