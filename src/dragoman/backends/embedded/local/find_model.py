"""Finds a model of this machine by the name that the user typed."""

from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.model_facts import LocalModels
from dragoman.core.errors import ConfigError, nearest, quote


def find_model(local: LocalModels, name: str) -> LocalModel | None:
    """Returns the model with this name, alias or path, ignoring case; None: there is none."""
    if name in local.models:
        return local.models[name]
    key = name.lower()
    for model in local.models.values():
        if key in (model.id.lower(), *(alias.lower() for alias in model.aliases)) or name == str(model.path):
            return model
    return None


def unknown_model(local: LocalModels, name: str) -> ConfigError:
    """Returns the error for a name that no model of this machine has."""
    names = [known for model in local.models.values() for known in (model.id, *model.aliases)]
    advice = nearest(name, names) or "; `dragoman models list` lists them, `dragoman pull` downloads one"
    return ConfigError(f"expected a model of this machine, got {quote(name)}{advice}")
