"""Which format a model writes, by its name."""

from operator import itemgetter

import pytest

from dragoman import formats
from dragoman.catalog import families
from dragoman.core.errors import ConfigError
from support.check_each import check_each
from support.paths import DATA

NAMES = DATA / "model_names.txt"
ROWS = [line.rsplit(maxsplit=1) for line in NAMES.read_text().splitlines() if not line.startswith("#")]


def test_model_name_selects_format(subtests: pytest.Subtests) -> None:
    def check(row: list[str]) -> None:
        model, format = row
        found = families.find(model)
        assert (found.format if found and found.format != "auto" else "-") == format

    check_each(subtests, ROWS, check, itemgetter(0))


def test_model_name_list_has_enough_unique_names() -> None:
    assert len(ROWS) >= 200
    assert len({model for model, _ in ROWS}) == len(ROWS)


def test_family_row_is_complete_and_used(subtests: pytest.Subtests) -> None:
    found = [families.find(model) for model, _ in ROWS]

    def check(family: families.Family) -> None:
        assert formats.get(family.format).name == family.format
        assert family.source.isprintable()
        assert family.names
        assert family in found, "no name in the list matches this row"

    check_each(subtests, families.families(), check, lambda family: str(family.names))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("names = ['a(']\nformat = 'hermes'\nsource = 'x'", r"families file: missing \)"),
        ("names = 'a'\nformat = 'hermes'\nsource = 'x'", r"Expected `array`, got `str` - at `\$.family\[0\].names`"),
        ("names = ['a']\nformat = 'hermes'", "missing required field `source`"),
        ("names = ['a']\nformat = 'x'\nsource = 'x'\nnote = ''", "unknown field `note`"),
    ],
)
def test_invalid_families_file_is_rejected(row: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        families.read(f"[[family]]\n{row}".encode())
