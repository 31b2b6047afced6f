"""The tokens of the model: each is a character."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .generation import RequestError


class Vocabulary:
    """The characters that the model knows, in the order of their tokens."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self._tokens = {character: token for token, character in enumerate(characters)}

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text. Raise RequestError if the model does not know one of the characters."""
        try:
            return [self._tokens[character] for character in text]
        except KeyError as error:
            character = error.args[0]
            place = f"the character {character!a} at position {text.index(character)}"
            raise RequestError("prompt", f"contains {place}, which is not in the vocabulary of the model") from None

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of some tokens."""
        return "".join(self.characters[token] for token in tokens)
