"""A stream never shows a part of a stop sequence, and shows all else as early as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference_server.generation import Generated, StopReason
from reference_server.visible_text import VisibleText
from reference_server.vocabulary import Vocabulary

VOCABULARY = Vocabulary("abc")


def shown(text: str, stops: list[str], stop_sequence: str = "") -> list[str]:
    """Return what becomes visible with each token of a text, which ends with `stop_sequence` or a limit."""
    visible = VisibleText(stops, VOCABULARY)
    chunks = []
    for place, character in enumerate(text, start=1):
        is_last = place == len(text)
        reason = StopReason.STOP_SEQUENCE if stop_sequence else StopReason.MAX_TOKENS
        token = Generated(
            token=VOCABULARY.characters.index(character),
            detail=None,
            stop_reason=reason if is_last else None,
            stop_sequence=stop_sequence if is_last else "",
        )
        chunks.append(VOCABULARY.decode(event.token for event in visible.add(token)))
    return chunks


def test_a_possible_beginning_of_a_stop_sequence_waits() -> None:
    assert shown("abaca", ["aca"], "aca") == ["", "ab", "", "", ""]


def test_what_turns_out_to_be_no_stop_sequence_is_shown() -> None:
    assert shown("aabb", ["aac"]) == ["", "", "aab", "b"]


def test_a_held_back_beginning_is_shown_at_the_end() -> None:
    assert shown("ba", ["ab"]) == ["b", "a"]


def test_without_stop_sequences_each_token_is_shown_at_once() -> None:
    assert shown("abc", []) == ["a", "b", "c"]


def test_only_the_longer_stop_sequence_is_dropped() -> None:
    assert shown("cab", ["b", "ab"], "ab") == ["c", "", ""]


texts = st.text("abc", min_size=1, max_size=30)


@given(texts, st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_chunks_are_the_text_without_its_stop_sequence(text: str, stops: list[str]) -> None:
    # As the batch does: the text ends as soon as it ends with a stop sequence.
    ends = [end for end in range(1, len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    ended = text[: ends[0]] if ends else text
    stop = max((stop for stop in stops if ended.endswith(stop)), key=len, default="")
    chunks = shown(ended, stops, stop)
    assert "".join(chunks) == ended.removesuffix(stop)
    for place in range(1, len(ended)):
        hidden = ended[len("".join(chunks[:place])) : place]
        assert hidden == "" or any(other.startswith(hidden) for other in stops)
