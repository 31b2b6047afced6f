"""Writes a tiny model of the architecture Llama with random weights, for llama-server. Its texts mean nothing.

The package gguf of llama.cpp writes the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

WIDTH: Final = 64
HEADS: Final = 2
INNER: Final = 128
CONTEXT: Final = 2048
_SPECIAL: Final = ("<unk>", "<s>", "</s>")
_PIECES: Final = tuple(chr(code) for code in range(ord("a"), ord("z") + 1))
_OUTPUT: Final = "output.weight"
_CHAT: Final = "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"


def write(file: Path, seed: int = 4) -> None:
    """Write the model.

    Args:
        seed: determines the weights. With the default, no two tokens of the tests are almost equally probable.
    """
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_chat_template(_CHAT)
    _add_vocabulary(writer)
    for name, shape in _tensors().items():
        writer.add_tensor(name, _weights(name, shape, seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tokens() -> list[tuple[str, float, gguf.TokenType]]:
    special = [(name, 0.0, gguf.TokenType.CONTROL) for name in _SPECIAL]
    special[0] = (_SPECIAL[0], 0.0, gguf.TokenType.UNKNOWN)
    octets = [(f"<0x{number:02X}>", 0.0, gguf.TokenType.BYTE) for number in range(256)]
    pieces = [(piece, -1.0, gguf.TokenType.NORMAL) for piece in ("▁", *_PIECES)]
    return [*special, *octets, *pieces]


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    tokens, scores, types = zip(*_tokens(), strict=True)
    writer.add_tokenizer_model("llama")  # SentencePiece, which falls back to bytes
    writer.add_token_list(list(tokens))
    writer.add_token_scores(list(scores))
    writer.add_token_types(list(types))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors() -> dict[str, tuple[int, ...]]:
    square, up, down = (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER)
    block = {"attn_norm": (WIDTH,), "attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
    block |= {"ffn_norm": (WIDTH,), "ffn_gate": up, "ffn_up": up, "ffn_down": down}
    words = (len(_tokens()), WIDTH)
    ends = {"token_embd.weight": words, "output_norm.weight": (WIDTH,), _OUTPUT: words}
    return {**ends, **{f"blk.0.{name}.weight": shape for name, shape in block.items()}}


def _weights(name: str, shape: tuple[int, ...], seed: int) -> Any:
    if len(shape) == 1:
        return np.ones(shape, np.float32)  # of a norm
    weights = np.random.default_rng([seed, *name.encode()]).normal(0, 0.1, shape).astype(np.float32)
    if name == _OUTPUT:
        weights[: -len(_PIECES)] = 0  # letters are more probable than bytes and the end of the text
    return weights
