"""English words in member names and values that decide whether a repair is safe (`repair_steps`, `split_calls`).

A word too many costs one more turn of the model; a missing word can cost more.
"""

from typing import Final


def word_set(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


RESTRICTING_WORDS: Final = word_set(
    "after approval approve before check condition confirm confirmation dry dryrun except exclude excluded excluding "
    "filter filters from glob id ids if ignore keep limit match max maximum min minimum newer no noop not older only "
    "pattern pretend preview prompt query safe scope selector simulate since skip status test to unless until validate "
    "when where without"
)
"""Words in a member's name: setting the member limits an action or prevents it."""
EXPLANATION_NAMES: Final = word_set(
    "comment comments confidence description explanation intent justification note notes purpose rationale reason "
    "reasoning summary thought thoughts why"
)
"""Names of members in which models explain a call. The whole name must match: `reason_code` is not an explanation."""
WRAPPER_NAMES: Final = word_set(
    "args arguments body data input inputs json kwargs params parameters payload properties request"
)
"""Names of members that models put around the arguments."""
DOCUMENT_WORDS: Final = word_set("body code content contents data document file json payload source")
"""Words in a member's name: its text can be the JSON of an object."""
COMPOSITE_WORDS: Final = word_set(
    "address addresses args argv argument arguments between bbox body box branch branches cmd code command commands "
    "content contents coordinates date dates description dir directories directory dirs file filename files "
    "filter folder folders key keys lat lines lng location lon message messages namespace note options parent "
    "path paths pattern period phrase pointer prefix prompt query range ref route scope script selector sentence sql "
    "summary text time times title uri uris url urls when"
)
"""Words in a member's name: a list in it is one value in parts, not several values."""
NOT_ABBREVIATIONS: Final = word_set(
    "add admin all allow any append auto block copy create delete deny drop edit every force full hard list move new "
    "nil none non not null off open out over private protected public pull push read remove replace reset restart "
    "root send set share soft start stop super sync test update user write"
)
"""Words that are never an abbreviation of a longer word (`public` is not short for `publicread`)."""
WIDENING_SUFFIXES: Final = ("all", "any", "both", "every", "everyone", "everything", "everywhere")
"""Endings of an option that make it apply to more than other options."""
