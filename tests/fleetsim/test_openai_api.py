import json
from typing import Any

import pytest

from fleetsim.openai_api import DONE, Answer, BadRequest, parse


def read(body: Any, chat: bool = False) -> Any:
    return parse(body, chat, "m", 100)


def test_prompt_length_is_counted_or_given() -> None:
    assert read({"prompt": "one two three"}).prompt_tokens == 3
    assert read({"prompt": [5, 6]}).prompt_tokens == 2
    assert read({"prompt": "one", "prompt_tokens": 80}).prompt_tokens == 80
    chat = {"messages": [{"role": "system", "content": "a b"}, {"role": "user", "content": "c"}]}
    assert read(chat, chat=True).prompt_tokens == 3


def test_chat_prefers_the_newer_name_of_the_limit() -> None:
    assert read({"prompt": "a", "max_tokens": 7, "max_completion_tokens": 9}).max_tokens == 9


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ({"prompt": ""}, 400),
        ({"prompt": "a", "max_tokens": 0}, 400),
        ({"prompt": "a", "max_tokens": "many"}, 400),
        ({"prompt": "a", "max_tokens": True}, 400),
        ({"prompt": "a", "max_tokens": 100}, 400),
        ({"prompt": "a", "model": "other"}, 404),
    ],
)
def test_bad_bodies(body: Any, status: int) -> None:
    with pytest.raises(BadRequest) as error:
        read(body)
    assert error.value.status == status


def test_stream_closes_with_usage_only_when_asked() -> None:
    plain = Answer(read({"prompt": "a b", "stream": True}), 1)
    assert plain.closing(5) == DONE
    asked = Answer(read({"prompt": "a b", "stream": True, "stream_options": {"include_usage": True}}), 1)
    usage = json.loads(asked.closing(5).split(b"\n\n")[0].removeprefix(b"data: "))
    assert usage["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
