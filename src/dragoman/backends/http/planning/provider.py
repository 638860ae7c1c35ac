"""What the settings and the catalogue say of the provider of one server."""

from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import servers
from dragoman.catalog.servers import Provider
from dragoman.core.errors import ConfigError
from dragoman.schema.targets import Target, get_target


def provider_of(name: str, config: HttpConfig) -> Provider | None:
    """Returns the provider that the settings name; None: they name none.

    Raises:
        ConfigError: the provider is unknown.
    """
    try:
        return servers.get(config.provider) if config.provider else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at upstreams.{name}.provider") from None


def schema_target(name: str, config: HttpConfig, provider: Provider | None) -> Target | None:
    """Returns the schema profile of the settings, or else of the provider; None: schemas are not adapted.

    Args:
        name: the server's name in the settings.
        config: the server's settings.
        provider: the provider, if it is known.

    Raises:
        ConfigError: the profile is unknown.
    """
    profile = config.schema_profile or (provider.schema_profile if provider else "")
    try:
        return get_target(profile) if profile else None
    except ConfigError as e:
        raise ConfigError(f"{e.message} - at upstreams.{name}.schema_profile") from None
