"""English words in names and values that say how careful mending has to be; each set is a reason of `steps`, `spread`.

A word too many costs one more turn of the model; one that is missing may cost more.
"""

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


RESTRAINTS: Final = _words(
    "after approval approve before check condition confirm confirmation dry dryrun except exclude excluded excluding "
    "filter filters from glob id ids if ignore keep limit match max maximum min minimum newer no noop not older only "
    "pattern pretend preview prompt query safe scope selector simulate since skip status test to unless until validate "
    "when where without"
)
"""In the name of a member: with it an action is smaller, or none."""
REASONS: Final = _words(
    "comment comments confidence description explanation intent justification note notes purpose rationale reason "
    "reasoning summary thought thoughts why"
)
"""The name of a member by which models explain a call; one that is no more than this, for `reason_code` is another."""
AROUND: Final = _words("args arguments body data input inputs json kwargs params parameters payload properties request")
"""The name of a member that models put around arguments."""
DOCUMENTS: Final = _words("body code content contents data document file json payload source")
"""In the name of a member: its text may be that of an object."""
IN_PIECES: Final = _words(
    "address addresses args argv argument arguments between bbox body box branch branches cmd code command commands "
    "content contents coordinates date dates description dir directories directory dirs file filename files "
    "filter folder folders key keys lat lines lng location lon message messages namespace note options parent "
    "path paths pattern period phrase pointer prefix prompt query range ref route scope script selector sentence sql "
    "summary text time times title uri uris url urls when"
)
"""In the name of a member: a list in it is one thing in pieces."""
NO_BEGINNINGS: Final = _words(
    "add admin all allow any append auto block copy create delete deny drop edit every force full hard list move new "
    "nil none non not null off open out over private protected public pull push read remove replace reset restart "
    "root send set share soft start stop super sync test update user write"
)
"""Begin no other word, however it is written (`public`, `publicread`)."""
WIDE: Final = ("all", "any", "both", "every", "everyone", "everything", "everywhere")
"""At the end of an option: it reaches further than others."""
