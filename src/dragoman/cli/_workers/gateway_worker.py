"""One gateway process of several. `supervisor` starts it and never imports it."""

import socket
import sys
from functools import partial

from dragoman import compose
from dragoman.cli._workers.child import Child
from dragoman.cli._workers.gateway_server import run_worker
from dragoman.compose.limits import usage_limits
from dragoman.compose.records import record_writer
from dragoman.compose.reload import rebuild_gateway
from dragoman.console.install import console_installer
from dragoman.server.keys.ring import KeyRing


def _serve(child: Child) -> int:
    plan = child.plan
    gateway = compose.build_gateway(plan.config, plan.embedded, child.report, shared_dir=plan.folder)
    keys = KeyRing.from_config(plan.config)
    sockets = [socket.socket(fileno=descriptor) for descriptor in plan.sockets]
    rebuild = partial(rebuild_gateway, shared_dir=plan.folder)
    records = record_writer(plan.config)
    limits = usage_limits(plan.config, plan.folder)
    return run_worker(
        gateway,
        plan.config,
        rebuild,
        sockets,
        plan.number,
        child,
        child.report,
        plan.folder,
        keys,
        records,
        limits,
        console_installer(plan.config, plan.source, limits, plan.folder),
    )


if __name__ == "__main__":
    sys.exit(Child().run(_serve))
