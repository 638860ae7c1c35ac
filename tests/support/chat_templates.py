"""Chat templates of real models."""

CHATML = """{{ bos_token }}{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""


# Tools in the system turn, results in the user turn, as in models trained on Hermes calls.
HERMES_TEMPLATE = """{% if tools %}
<|im_start|>system
{% if messages[0].role == "system" %}{{ messages[0].content }}
{% endif %}
<tools>{% for tool in tools %}

{{ tool | tojson }}
{% endfor %}</tools><|im_end|>
{% endif %}
{% for message in messages %}
{% if message.role == "tool" %}
<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% elif message.role != "system" or not tools %}
<|im_start|>{{ message.role }}
{{ message.content }}
{% for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{% endfor %}
<|im_end|>
{% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""
