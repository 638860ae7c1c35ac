"""An upstream server with a completions endpoint and a chat template."""

import json
from typing import Any

from support.fake_upstream import END, HEAD, whole

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


PROPS = json.dumps({"chat_template": CHATML, "bos_token": "<s>", "eos_token": "<|im_end|>", "n_ctx": 4096})


def completes(text: str, props: str = PROPS, *, stays: bool = False) -> Any:
    """A server that reports its chat template, and completes with this text."""

    def piece(choice: dict[str, Any], **more: Any) -> bytes:
        data = f"data: {json.dumps({'object': 'text_completion', 'choices': [choice], **more})}\n\n".encode()
        return f"{len(data):x}\r\n".encode() + data + b"\r\n"

    async def play(far: Any, writer: Any) -> None:
        if far.asked[-1][0].startswith("GET /props"):
            await whole(200 if props else 404, props or "{}")(far, writer)
            return
        pieces = [piece({"text": char, "index": 0, "finish_reason": None}) for char in text]
        writer.write(HEAD + b"".join(pieces))
        if stays:
            await far.left.wait()
        usage = {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}
        writer.write(piece({"text": "", "index": 0, "finish_reason": "stop"}, usage=usage) + END)

    return play
