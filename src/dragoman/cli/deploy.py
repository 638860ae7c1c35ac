"""`dragoman deploy`: runs the gateway and its models on a cluster."""

import argparse
import os
from pathlib import Path

from dragoman.cli._common import print_status, require_extras
from dragoman.core.errors import ConfigError
from dragoman.host_names import LOOPBACK, host_name

_EXAMPLES = """
    examples:
      dragoman deploy ray config.toml                           on the cluster of this machine
      dragoman deploy ray config.toml --address 10.0.0.1:6379   on another one
      dragoman deploy ray config.toml --dry-run                 configuration for `serve deploy`
      dragoman deploy ray --remove                              stop it

    exit status:
      0  the application runs, or was removed
      1  a deployment did not start
      2  the command or the settings are invalid, or there is no such cluster
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "deploy",
        help="run the gateway and its models on a Ray cluster",
        description="Run the gateway and its models on a Ray cluster, as an application of Ray Serve. If it runs "
        "already, it is updated replica by replica; running responses finish. The settings are in docs/ray.md.",
        epilog=_EXAMPLES,
    )
    command.add_argument("target", choices=("ray",), metavar="ray", help="kind of the cluster")
    command.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="settings file (default: as for serve)")
    command.add_argument(
        "--address",
        metavar="HOST:PORT",
        default="",
        help="address of the cluster (default: RAY_ADDRESS, or the cluster of this machine)",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="print the configuration for Ray Serve as YAML, and deploy nothing"
    )
    command.add_argument("--remove", action="store_true", help="stop the application, after its running responses")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Deploys or removes the application, or prints its configuration.

    Raises:
        ConfigError: the settings are wrong, the extra is missing, or there is no such cluster.
        RemoteError: a deployment did not start.
    """
    require_extras("ray", doing="deploying on Ray")
    if args.remove:
        if args.config or args.dry_run:
            raise ConfigError("--remove needs neither a settings file nor --dry-run")
        _prepare(args.address)
        from dragoman.ray_serve.deploy import remove

        remove(args.address)
        print_status("removed")
        return 0
    from dragoman import compose
    from dragoman.ray_serve import plan as planning
    from dragoman.ray_serve.settings import load

    path = compose.settings_path(args.config)
    config, origin = load(path)
    plans = planning.plan(config, origin)
    for warning in planning.warnings(config):
        print_status(warning)
    if args.dry_run:
        import yaml

        described = planning.serve_config(config, plans, str(path.resolve()) if path else "")
        print(yaml.safe_dump(described, sort_keys=False), end="")
        return 0
    _prepare(args.address)
    from dragoman.ray_serve.deploy import deploy

    print_status(f"ready: {deploy(config, plans, args.address, print_status)}")
    return 0


def _prepare(address: str) -> None:
    """Sets variables that Ray reads when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if host_name(address or os.environ.get("RAY_ADDRESS", "")) in LOOPBACK:
        # Ray replaces a loopback address by that of the network, where a cluster on loopback does not listen.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
