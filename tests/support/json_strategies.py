"""Hypothesis strategies for JSON texts."""

from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


styles = st.sampled_from(
    [{}, {"ensure_ascii": False}, {"indent": 1}, {"separators": (",", ":")}, {"separators": (" ,\n", "\t: ")}]
)


tails = st.sampled_from(["", "}", "]", '"', ",", "x", "1", " ", "\n</tool_call>", "{"])


junk = st.text('{}[]",:\\ux0 1.-eE+t\n\x01', max_size=4)
