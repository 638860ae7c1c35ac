"""The table of edge cases is complete, and each test that it names exists."""

import pytest
from docs import edge_cases
from docs.edge_cases import DATA, NUMBERS, MissingProofError, exists, read


def test_each_case_has_its_proofs() -> None:
    assert len(read(DATA.read_text())) == 45


def test_edge_case_page_is_up_to_date() -> None:
    written = (DATA.parent / "edge-cases.md").read_text()
    assert edge_cases.page("").partition("\n\n")[2] in written


PROOF = "tests/meta/test_edge_cases.py::test_each_case_has_its_proofs"
CASE = 'title = "t"\nrule = "r"\nproofs = {}\n'


@pytest.mark.parametrize(
    ("proofs", "message"),
    [
        ("[]", "E45 lacks"),
        ('["tests/meta/test_edge_cases.py::test_each_case"]', "E45: there is no"),
        ('["tests/test_nothing.py::test_x"]', "E45: there is no"),
        ('["tests/data/dialects/openai_chat/sent.txt: nothing of this title"]', "E45: there is no"),
        ('["words"]', "E45: there is no"),
    ],
)
def test_missing_proof_is_reported(proofs: str, message: str) -> None:
    good = "".join(f"[{number}]\n" + CASE.format(f'["{PROOF}"]') for number in NUMBERS[:-1])
    with pytest.raises(MissingProofError, match=message):
        read(good + f"[{NUMBERS[-1]}]\n" + CASE.format(proofs))
    with pytest.raises(MissingProofError, match="look at E45"):
        read(good)


def test_proof_is_a_test_or_a_case_title() -> None:
    assert exists(PROOF)
    assert exists("tests/integration/server/test_requests.py::test_query_string_is_ignored")
    assert exists("tests/data/dialects/openai_chat/upstream.txt: a call without an index, in pieces")
    assert not exists("tests/data/dialects/openai_chat/upstream.txt: a call without an index")
