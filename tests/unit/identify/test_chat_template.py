"""Detects the format of an unknown model from its chat template and its name."""

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import formats
from dragoman.cli import main
from dragoman.core.errors import UsageError
from dragoman.identify import chat_template, detect_format
from dragoman.identify.chat_template import CALLS
from support.gguf_files import WHOLE, gguf, text

CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for call in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
PROMPT{% endif %}"""


def chatml(call: str, prompt: str = "") -> str:
    return CHATML.replace("CALL", call).replace("PROMPT", prompt)


HERMES = """<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>"""
XML = (
    "<tool_call>\n<function={{ call.function.name }}>\n{% for k, v in call.function.arguments.items() %}"
    "<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
)
GLM = (
    "<tool_call>{{ call.function.name }}{% for k, v in call.function.arguments.items() %}"
    "<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>"
)
MISTRAL = """{% for m in messages %}{% if m.role == 'user' %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]
[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}{% for call in m.tool_calls %}
{% if call.id | length != 9 %}{{ raise_exception('expected an id of nine characters') }}{% endif %}
[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments if call.function.arguments is string else
call.function.arguments | tojson }}{% endfor %}{{ eos_token }}{% endif %}{% endfor %}"""
DEEPSEEK = (
    "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>"
    "<｜tool▁calls▁begin｜>{% for call in m.tool_calls %}<｜tool▁call▁begin｜>"
    "{{ call.function.name + '<｜tool▁sep｜>' + call.function.arguments }}<｜tool▁call▁end｜>"
    "{% endfor %}<｜tool▁calls▁end｜><｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>{% endif %}"
)
LLAMA = """{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{% set call = m.tool_calls[0].function %}
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}{% else %}{{ m.content }}{% endif %}<|eot_id|>
{%- endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
HARMONY = """{% for m in messages %}{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>{% else %}
{% for call in m.tool_calls %}
<|start|>assistant to=functions.{{ call.function.name }}<|channel|>commentary json<|message|>
{{- call.function.arguments | tojson }}<|call|>{% endfor %}{% endif %}{% endfor %}
{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
PYTHONIC = (
    "<|tool_call_start|>[{{ call.function.name }}({% for k, v in call.function.arguments.items() %}"
    "{{ k }}={% if v is string %}'{{ v }}'{% else %}{{ v }}{% endif %}{% if not loop.last %}, {% endif %}"
    "{% endfor %})]<|tool_call_end|>"
)
FRAMED = """{% for m in messages %}{% if m.tool_calls %}<|header_start|>assistant<|header_end|>

<|python_start|>{{ m.content }}<|python_end|>{"name": "{{ m.tool_calls[0].function.name }}", "parameters":
{{- m.tool_calls[0].function.arguments | tojson }}}<|eot|>{% else %}{{ m.content }}{% endif %}{% endfor %}
{% if add_generation_prompt %}<|header_start|>assistant<|header_end|>

{% endif %}"""

TEMPLATES = {
    "JSON between tags": (chatml(HERMES), "hermes", "", None),
    "JSON between tags, thoughts": (
        chatml(HERMES, "<think>\n") + "{# </think> #}",
        "hermes",
        "<think>\n",
        ("<think>", "</think>"),
    ),
    "JSON between tags, closed thoughts": (
        chatml(HERMES, "<think>\n\n</think>\n\n"),
        "hermes",
        "",
        ("<think>", "</think>"),
    ),
    "no line breaks": (chatml(HERMES.replace("\n", "")), "hermes", "", None),
    "marked for training": (chatml("{% generation %}" + HERMES + "{% endgeneration %}"), "hermes", "", None),
    "XML parameters": (chatml(XML, "<think>\n"), "qwen3_xml", "<think>\n", ("<think>", "</think>")),
    "XML parameters in Seed's tags": (chatml(XML.replace("tool_call>", "seed:tool_call>")), "seed_oss", "", None),
    "keys and values": (chatml(GLM), "glm47", "", None),
    "keys and values in lines": (
        chatml(GLM.replace("<arg_", "\n<arg_").replace("</tool", "\n</tool")),
        "glm",
        "",
        None,
    ),
    "refuses ids and needs the last turn to be the user's": (MISTRAL, "mistral", "", None),
    "wants arguments as text": (DEEPSEEK, "deepseek_v31", "<think>", ("<think>", "</think>")),
    "a bare object": (LLAMA, "llama3_json", "", None),
    "a bare object behind an empty frame": (FRAMED, "llama3_json", "", None),
    "channels": (HARMONY, "harmony", "", None),
    "all values as text, and nothing between them": (
        chatml(PYTHONIC.replace("{{ v }}{% endif %}", "'{{ v }}'{% endif %}").replace("%}, {%", "%}{%")),
        "lfm2",
        "",
        None,
    ),
    "a Python call": (chatml(PYTHONIC), "lfm2", "", None),
}


@pytest.mark.parametrize("title", TEMPLATES)
def test_chat_template_selects_format(title: str) -> None:
    source, format, tail, thoughts = TEMPLATES[title]
    found = detect_format("gpt-oss", chat_template=source)
    assert (found.format.name, found.by, found.prompt_suffix, found.reasoning_tags) == (
        format,
        "chat_template",
        tail,
        thoughts,
    )
    assert f"read back by {format}" in found.why


DISTINCT_FORMATS = [name for name in formats.names() if name not in ("auto", "beam")]
"""Beam's calls differ from gpt-oss's only in their arguments."""


@pytest.mark.parametrize("name", DISTINCT_FORMATS)
def test_each_format_is_distinguished_from_all_others(name: str) -> None:
    """The template contains the format's markers, and writes the call like the format."""
    format = formats.get(name)
    markers = "".join(
        f"{{% if {n} == 0 %}}{{% raw %}}{m}{{% endraw %}}{{% endif %}}" for n, m in enumerate(format.markers, 1)
    )
    call = format.write_calls([CALLS[0]])
    found = chat_template.match_template(
        markers
        + "{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% raw %}"
        + call
        + "{% endraw %}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    assert (found.format, found.rendered) == (name, True), found.why


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (chatml("", "<|tool_call_start|>"), "it writes no calls"),
        (chatml(PYTHONIC).replace("{% endfor %}", ""), "cannot be read"),
        (chatml(PYTHONIC) + "{{ raise_exception('no calls here') }}", "it refuses a call: no calls here"),
        (chatml(PYTHONIC) + "{{ ().__class__.__base__ }}", "it refuses a call: access to attribute"),
        (chatml(PYTHONIC.replace("{{ k }}=", "{{ k }}:=")), "it writes calls as no known format does"),
        ("Call like this: <|tool_call_start|>[f()]\n" + LLAMA, "or not as it asks for them"),
    ],
)
def test_template_markers_select_format_if_rendering_fails(source: str, why: str) -> None:
    found = detect_format("my-model", chat_template=source)
    assert (found.format.name, found.by) == ("lfm2", "chat_template")
    assert found.why.startswith("'<|tool_call_start|>' stands in the chat template (")
    assert why in found.why
    assert detect_format("qwen3:8b", chat_template=source).by == "model", "a name counts more than a literal"


def test_unknown_model_and_template_select_auto() -> None:
    found = detect_format("my-model", chat_template=chatml("", "<think>\n"))
    assert (found.format.name, found.by, found.prompt_suffix) == ("auto", "nothing", "<think>\n")
    assert "'my-model'" in found.why
    assert "names no tool-call markers" in found.why
    assert detect_format().format.name == "auto"
    assert detect_format("Qwen/Qwen3-Embedding-0.6B").format.name == "auto"


def test_model_name_selects_format_and_template_prompt_suffix() -> None:
    found = detect_format("Qwen/Qwen3-4B-Thinking-2507", chat_template=chatml("", "<think>\n"))
    assert (found.format.name, found.by, found.prompt_suffix) == ("hermes", "model", "<think>\n")
    assert "Qwen3" in found.why
    assert found.why.endswith("; the chat template names no tool-call markers (it writes no calls)")


def test_tool_use_template_is_preferred() -> None:
    several = {"default": chatml(""), "tool_use": chatml(XML)}
    assert detect_format(chat_template=several).format.name == "qwen3_xml"
    assert detect_format(chat_template={"default": chatml(GLM)}).format.name == "glm47"
    assert detect_format("qwen3:8b", chat_template={"rag": ""}).by == "model"


def test_detected_format_can_parse_reply() -> None:
    found = dragoman.detect_format(chat_template=chatml(XML, "<think>\n"))
    text = "Hm.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
    reply = dragoman.parse(text, found.format, prompt_suffix=found.prompt_suffix)
    assert [type(part).__name__ for part in reply.parts] == ["Reasoning", "ToolCall"]


@pytest.mark.parametrize(
    ("args", "kwargs"), [((7,), {}), ((), {"chat_template": 7}), ((), {"chat_template": {"default": 7}})]
)
def test_invalid_argument_type_is_rejected(args: tuple[str, ...], kwargs: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="got int - at"):
        detect_format(*args, **kwargs)


HOSTILE = {
    "more blocks than Python nests": "{% for a in [1] %}" * 25 + "{% endfor %}" * 25,
    "no Python": "{% break %}",
    "a constant without end": "{{ 9**9999 }}",
    "no room": "{% for m in messages %}{{ m.content * 10**17 }}{% endfor %}",
    "an error of Jinja's own": "{{ cycler() }}",
    "arguments deeper than Python reads": chatml(
        HERMES.replace("{{ call.function.arguments | tojson }}", '{"a":' + "[" * 3000 + "]" * 3000 + "}")
    ),
}


@pytest.mark.parametrize("title", HOSTILE)
def test_hostile_template_raises_no_error(title: str) -> None:
    assert detect_format("qwen3:8b", chat_template=HOSTILE[title]).by == "model"


@given(st.data())
def test_damaged_template_raises_no_error(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([source for source, *_ in TEMPLATES.values()]))
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, min(len(source), start + 20)))
    found = chat_template.match_template(source[:start] + data.draw(st.text("{}%|' x", max_size=3)) + source[end:])
    assert found.format == "" or found.format in formats.names()


TRL = {
    "cohere": "",
    "cohere2": "",
    "deepseek_r1_distill": "deepseek_v3",
    "deepseekv3": "deepseek_v3",
    "diffusion_gemma": "gemma4",
    "gemma": "",
    "gemma3": "",
    "gemma4": "gemma4",
    "gemma4_v2": "gemma4",
    "glm4moe": "glm",
    "gptoss": "harmony",
    "lfm2": "",
    "lfm2_2_5": "lfm2",
    "lfm2_2_5_vl": "lfm2",
    "lfm2_v2": "lfm2",
    "llama3": "",
    "llama3_1": "llama3_json",
    "llama3_2": "llama3_json",
    "muse_glimmer": "muse_glimmer",
    "nemotron_3_nano": "qwen3_xml",
    "nemotron_3_ultra": "qwen3_xml",
    "phi3": "",
    "qwen2_5": "hermes",
    "qwen2_5_vl": "",
    "qwen3": "hermes",
    "qwen3_5_nothink": "qwen3_xml",
    "qwen3_5_think": "qwen3_xml",
    "qwen3_8": "qwen3_xml",
    "qwen3_instruct_2507": "hermes",
    "qwen3_vl": "hermes",
    "smolvlm": "",
}
"""Models' own chat templates from the package trl. Those with "" write no calls."""


@pytest.mark.parametrize("name", TRL)
@pytest.mark.parametrize("kind", ["", "_training"])
def test_real_template_selects_format(name: str, kind: str) -> None:
    installed = importlib.util.find_spec("trl")
    assert installed is not None
    assert installed.submodule_search_locations
    file = Path(installed.submodule_search_locations[0], "chat_templates", f"{name}{kind}.jinja")
    if kind and not file.is_file():
        return
    assert chat_template.match_template(file.read_text()).format == TRL[name]


RESPONSE_TEMPLATE = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>]+)>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>]+)>\s*(?P<value>.*?)\s*</parameter>"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close": "<|im_end|>"},
    },
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chat_template.jinja", chatml(XML, "<think>\n").encode()),
        ("tokenizer_config.json", json.dumps({"chat_template": chatml(XML, "<think>\n"), "eos_token": "x"}).encode()),
        (
            "tokenizer_config.json",
            json.dumps({"chat_template": [{"name": "tool_use", "template": chatml(XML, "<think>\n")}]}).encode(),
        ),
        (
            "tokenizer_config.json",
            json.dumps({"chat_template": chatml("", "<think>\n"), "response_template": RESPONSE_TEMPLATE}).encode(),
        ),
        ("model.gguf", gguf(WHOLE | {"tokenizer.chat_template": text(chatml(XML, "<think>\n"))})),
    ],
    ids=["jinja", "config", "several", "response", "gguf"],
)
def test_parse_command_detects_format_from_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "reply.txt").write_text("Hm.</think>" + "<tool_call><function=f></function></tool_call>")
    assert main(["parse", str(tmp_path / "reply.txt"), "--template", str(tmp_path / name)]) == 0
    done = capsys.readouterr()
    assert [part["type"] for part in json.loads(done.out)["parts"]] == ["reasoning", "tool_call"]
    assert done.err.startswith("dragoman: format qwen3_xml, the prompt ends in '<think>\\n': the ")
    assert main(["parse", str(tmp_path / "reply.txt"), "--prompt-suffix", "", "--template", str(tmp_path / name)]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["type"] == "text", "the option takes precedence"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--format", "glm", "--model", "x"], "--format cannot be combined with --model or --template"),
        (["--template", "missing.jinja"], "--template: cannot read missing.jinja: No such file or directory\n"),
        (["--template", "broken.json"], "--template: cannot read broken.json: "),
        (["--template", "deep.json"], "--template: cannot read deep.json: "),
        (["--template", "binary.jinja"], "--template: cannot read binary.jinja: "),
        (["--template", "broken.gguf"], "broken.gguf is not a readable GGUF file"),
    ],
)
def test_parse_command_rejects_invalid_template_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("broken.json", "binary.jinja", "broken.gguf"):
        Path(name).write_bytes(b'{"chat_template": 7}\xff')
    Path("deep.json").write_text('{"x": ' + "[" * 99_999)
    assert main(["parse", "binary.jinja", *args]) == 2
    assert says in capsys.readouterr().err
