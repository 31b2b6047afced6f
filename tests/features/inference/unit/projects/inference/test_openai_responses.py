"""The logprobs of OpenAI's protocol list at most the requested number of tokens."""

from __future__ import annotations

from reference_server.generation import Detail, Generated
from reference_server.openai_responses import ChatFormat, Format

TIE = Detail(logprob=-3.0, rank=4, top=[(0, -1.0), (1, -1.0), (2, -1.0)])
TOKEN = Generated(token=3, detail=TIE, stop_reason=None)


def test_equally_probable_tokens_do_not_lengthen_the_list() -> None:
    completion = Format("abcd").logprobs([TOKEN], offset=0, top_tokens=2)
    assert completion["top_logprobs"] == [{"a": -1.0, "b": -1.0, "d": -3.0}]  # the chosen token is always listed
    chat = ChatFormat("abcd").logprobs([TOKEN], offset=0, top_tokens=2)
    expected = [{"token": token, "logprob": -1.0, "bytes": list(token.encode())} for token in "ab"]
    assert chat["content"] == [{"token": "d", "logprob": -3.0, "bytes": [100], "top_logprobs": expected}]
