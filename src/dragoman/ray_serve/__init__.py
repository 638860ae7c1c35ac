"""The gateway and its models on a Ray cluster, as an application of Ray Serve.

dragoman deploy ray config.toml
serve run dragoman.ray_serve:build_app config=config.toml
"""

from collections.abc import Mapping
from typing import Any


def build_app(args: Mapping[str, str]) -> Any:
    """Returns the application that a settings file describes; `serve run` and `serve deploy` call it.

    Args:
        args: `config`, the path of the settings file on the node that builds the application; without it, the default.

    Returns:
        A `ray.serve.Application`.

    Raises:
        ConfigError: an argument or a setting is wrong.
    """
    from dragoman.ray_serve import application  # imports Ray

    return application.build_app(args)
