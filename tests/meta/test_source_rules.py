"""Each source rule finds a planted violation at its line, and accepts correct text."""

import ast

import pytest

from meta.source_rules import docstrings, language, layout, names
from meta.source_rules.__main__ import check_text, read_folder

PLANTED = {
    "amiss": ("# something is amiss\n", 1),
    "heeded": ('x = "it is heeded"\n', 1),
    "over two comment lines": ("x = 1\n# it is asked once\n# more\n", 2),
    "over two literals": ('x = (\n    "asked once "\n    "more"\n)\n', 2),
    "over two lines of a docstring": ('"""A.\n\nThe model in\nthe box.\n"""\n', 3),
    "negated noun": ('x = f"{path} is no capture"\n', 1),
    "negated plural": ('x = f"{path!r} {"\'x\'"!s:>3}"\n'.replace("{\"'x'\"!s:>3}", "are no words"), 1),
    "is none": ('"""A thing that is none."""\n', 1),
    "at the end of a file": ("x = 1\n# anew", 2),
}
CLEAN = {
    "a name": "mended = nobody\n",
    "inside of an f-string's braces": 'x = f"{once.more} {mended}"\n',
    "there is no": '"""There is no file."""\n',
    "there are none": '"""Returns nothing if there are none."""\n',
    "is no longer": '"""It is no longer read."""\n',
    "is None": '# what is None\nx = "are not"\n',
    "a longer word": 'x = "amended, besides, Mendel"\n',
    "an escape": 'x = "a\\nanew"\n'.replace("anew", "a new"),
    "other literals": 'x = ("once", "more")\n',
}


@pytest.mark.parametrize("title", PLANTED)
def test_language_rule_finds_planted_phrase(title: str) -> None:
    source, line = PLANTED[title]
    (found,) = language.check("a.py", source)
    assert (found.path, found.line) == ("a.py", line)
    assert found.instead.startswith("write: ")


@pytest.mark.parametrize("title", CLEAN)
def test_language_rule_accepts_correct_text(title: str) -> None:
    assert not list(language.check("a.py", CLEAN[title]))


@pytest.mark.parametrize("phrase", [key for key in language.WORDING if "(" not in key and "|" not in key])
def test_language_rule_finds_each_phrase(phrase: str) -> None:
    said = phrase.replace("?", "")
    assert [found.found for found in language.check("a.py", f"# {said}\n")] == [repr(said)]


def test_language_data_is_exempt_in_its_file_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(language.DATA, "a.py", {"mended", "is no X"})
    source = 'x = "mended"\ny = "this is no X"\n'
    assert not list(language.check("a.py", source))
    assert [found.line for found in language.check("b.py", source)] == [1, 2]
    assert [found.line for found in language.check("a.py", 'x = "it is mended"\n')] == [1]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (
            'def f(a, b):\n    """Adds two numbers.\n\n    Args:\n        b: one.\n        a: another.\n    """\n',
            "Args: b, a",
        ),
        ('def f(a, *b):\n    """Adds two numbers.\n\n    Args:\n        a: one.\n    """\n', "Args: a"),
        ('class A:\n    """The same."""\n', "placeholder 'The same.'"),
        ('def f():\n    """One name."""\n', "placeholder 'One name.'"),
    ],
)
def test_docstrings_rule_finds_wrong_args_and_placeholders(source: str, found: str) -> None:
    (finding,) = docstrings.check("a.py", ast.parse(source))
    assert (finding.line, finding.found) == (1, found)


def test_docstrings_rule_accepts_matching_args() -> None:
    source = (
        'def f(self, a, *b, c=1, **d):\n    """Adds numbers.\n\n    Args:\n        a: one,\n            or more.\n'
        '        *b: more.\n        c (int): last.\n        **d: others.\n\n    Returns: the sum.\n    """\n'
    )
    assert not list(docstrings.check("a.py", ast.parse(source)))


@pytest.mark.parametrize("source", ["def f(a, b, *, c, d): ...", "class A:\n    async def f(self, a, b, *c, **d): ..."])
def test_docstrings_rule_requires_args_with_many_parameters(source: str) -> None:
    (finding,) = docstrings.check("a.py", ast.parse(source))
    assert finding.found == "f without Args:"
    assert not list(docstrings.check("a.py", ast.parse(source.replace("f(", "_f("))))


def test_docstrings_rule_ignores_private_classes() -> None:
    source = "class _A:\n    def f(self, a, b, c, d): ..."
    assert not list(docstrings.check("a.py", ast.parse(source)))


def test_names_rule_finds_duplicate_class() -> None:
    trees = {
        "a.py": ast.parse("class A: ...\nclass _B: ...\n"),
        "b.py": ast.parse("x = 1\nclass A: ...\nclass _B: ...\n"),
    }
    (finding,) = names.check(trees)
    assert (finding.path, finding.line, finding.found) == ("b.py", 2, "class A, also at a.py:1")
    assert not list(names.check({"a.py": trees["a.py"]}))


def test_layout_rule_finds_large_folders() -> None:
    paths = [f"src/dragoman/a/m{n}.py" for n in range(16)]
    (finding,) = layout.check_folders([*paths, "src/dragoman/a/__init__.py", "src/dragoman/b/m.py"])
    assert (finding.path, finding.found) == ("src/dragoman/a", "16 modules")
    assert not list(layout.check_folders([*paths[1:], "src/dragoman/a/__init__.py"]))


def test_layout_rule_finds_import_cycles() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    (finding,) = layout.check_cycles(imports)
    assert set(finding.found.split(" imports ")) == {"a", "b", "c"}
    assert not list(layout.check_cycles({"a": {"a", "b"}, "b": {"c"}, "c": set()}))


@pytest.mark.parametrize(
    "source",
    [
        "said = 1",
        "_SAID = 1",
        "def said(): ...",
        "class Said: ...",
        "def f(*, said): ...",
        "self._said = 1",
        "[1 for said in x]",
        "with x as said: ...",
        "try: ...\nexcept E as said: ...",
        "match x:\n    case A(said): ...",
    ],
)
def test_names_rule_finds_vague_words(source: str) -> None:
    (finding,) = names.check_words("a.py", ast.parse(source))
    assert finding.found.startswith("name ")
    assert finding.instead == f"write: {names.VAGUE['said']}"


@pytest.mark.parametrize("source", ["text = said", "f(said=1)", "x.said", "said_before = 1", "'said'"])
def test_names_rule_accepts_other_uses_of_vague_words(source: str) -> None:
    assert not list(names.check_words("a.py", ast.parse(source)))


def test_text_rules_apply_to_each_module() -> None:
    sources = {"a.py": "class A: ...\n", "b.py": "class A: ...\nsaid = 1\n# anew\n"}
    assert [(found.path, found.line) for found in sorted(check_text(sources))] == [
        ("b.py", 1),
        ("b.py", 2),
        ("b.py", 3),
    ]


def test_benchmarks_are_read() -> None:
    assert "bench/accuracy/report.py" in read_folder("bench")
