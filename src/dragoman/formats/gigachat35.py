"""GigaChat 3.5: GCML, which is DSML with another vendor's name.

    <｜GCML｜tool_calls>
    <｜GCML｜invoke name="get_weather">
    <｜GCML｜parameter name="city" string="true">Paris</｜GCML｜parameter>
    <｜GCML｜parameter name="days" string="false">3</｜GCML｜parameter>
    </｜GCML｜invoke>
    </｜GCML｜tool_calls>

Strings are raw, including trailing spaces; other values are JSON. Also accepted: a self-closing call, one JSON object
instead of the parameters, calls outside a section.

Source: chat template of GigaChat 3.5, GigaChat3.5.jinja of llama.cpp (2026).
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import dsml_tags, invoke_format

TAGS: Final = dsml_tags("｜GCML｜", "tool_calls", blank=False)

FORMAT: Final = invoke_format(
    TAGS,
    name="gigachat35",
    model_families="GigaChat 3.5",
    source="GigaChat3.5.jinja of llama.cpp (2026)",
)
