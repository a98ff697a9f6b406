"""Requests and answers of the OpenAI-compatible API, as values: parsing, bodies and server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_MAX_TOKENS = 16
DONE = b"data: [DONE]\n\n"


class BadRequest(ValueError):
    """The body cannot be served; `status` is the HTTP status vLLM answers."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Completion:
    """What a client asks for. `chat` tells the two endpoints' answer shapes apart."""

    chat: bool
    model: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool


def parse(body: Any, chat: bool, model_name: str, max_model_len: int) -> Completion:
    """Read a request body; BadRequest says what is wrong with it.

    The prompt's length is `prompt_tokens` if given, else its number of words or token ids.
    """
    if not isinstance(body, Mapping):
        raise BadRequest(400, "expected a JSON object as the body, found something else: send an object")
    if body.get("model", model_name) != model_name:
        raise BadRequest(404, f"expected model {model_name}, found {body['model']}: use the served model's name")
    explicit = body.get("prompt_tokens")
    prompt = explicit if explicit is not None else _prompt_tokens(body, chat)
    limit = body.get("max_completion_tokens", body.get("max_tokens", DEFAULT_MAX_TOKENS))
    if not (_is_count(prompt) and _is_count(limit)):
        raise BadRequest(400, f"expected a prompt and max_tokens of at least 1, found {prompt!r} and {limit!r}")
    if prompt + limit > max_model_len:
        raise BadRequest(
            400,
            f"expected at most {max_model_len} tokens in all, found {prompt} + {limit}: shorten the request",
        )
    options = body.get("stream_options") or {}
    return Completion(
        chat=chat,
        model=model_name,
        prompt_tokens=prompt,
        max_tokens=limit,
        stream=bool(body.get("stream", False)),
        include_usage=bool(options.get("include_usage", False)),
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _prompt_tokens(body: Mapping[str, Any], chat: bool) -> int:
    if chat:
        messages = body.get("messages") or []
        return sum(len(str(m.get("content", "")).split()) for m in messages if isinstance(m, Mapping))
    prompt = body.get("prompt", "")
    return len(prompt) if isinstance(prompt, list) else len(str(prompt).split())


class Answer:
    """Writes the answer to one request, whole or in events."""

    def __init__(self, asked: Completion, request_id: int) -> None:
        self._asked = asked
        kind = "chat.completion" if asked.chat else "text_completion"
        self._chunk_kind = f"{kind}.chunk" if asked.chat else kind
        self._envelope = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{request_id}",
            "object": kind,
            "created": int(time.time()),
            "model": asked.model,
        }

    def _usage(self, tokens: int) -> dict[str, int]:
        prompt = self._asked.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}

    def whole(self, tokens: int) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        text = " token" * tokens
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": "length"}
        if self._asked.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return {**self._envelope, "choices": [choice], "usage": self._usage(tokens)}

    def chunk(self, tokens: int, last: bool) -> bytes:
        """One event with the text of `tokens` tokens."""
        text = " token" * tokens
        choice: dict[str, Any] = {
            "index": 0,
            "logprobs": None,
            "finish_reason": "length" if last else None,
        }
        if self._asked.chat:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        return _event({**self._envelope, "object": self._chunk_kind, "choices": [choice]})

    def closing(self, tokens: int) -> bytes:
        """The usage event if it was asked for, and the end mark."""
        if not self._asked.include_usage:
            return DONE
        body = {**self._envelope, "object": self._chunk_kind, "choices": [], "usage": self._usage(tokens)}
        return _event(body) + DONE


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def error_body(status: int, message: str) -> dict[str, Any]:
    kinds = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
    return {"error": {"message": message, "type": kinds.get(status, "InternalServerError"), "code": status}}
