"""What a source's words are, by Pygments, in a form that a page carries cheaply."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygments.token import _TokenType

PLAIN = "-"


def tokens(file: str, text: str) -> list[str]:
    """Of each line the lengths of its parts, each with its style behind it, as ``4-3k1-12s``:
    ``c`` a comment, ``s`` a string, ``k`` a keyword or type, ``n`` a number, ``p`` a line of the
    preprocessor. What is plain at a line's end is left out.
    """
    from pygments.lexers.c_like import CudaLexer
    from pygments.lexers.python import PythonLexer

    lexer = (PythonLexer if file.endswith(".py") else CudaLexer)(stripnl=False, ensurenl=False)
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in lexer.get_tokens(text):
        style = _style(kind)
        for n, piece in enumerate(value.split("\n")):
            if n:
                lines.append([])
            lines[-1].append((style, piece))
    return [_packed(line) for line in lines]


@cache  # of a few dozen kinds
def _style(kind: _TokenType) -> str:
    from pygments.token import (
        Comment,
        Keyword,
        Name,
        Number,
        Operator,
        String,
        is_token_subtype,
    )

    styles = (
        (Comment.Preproc, "p"),
        (Comment.PreprocFile, "p"),
        (Comment, "c"),
        (String, "s"),
        (Keyword, "k"),
        (Operator.Word, "k"),
        (Name.Builtin, "k"),
        (Number, "n"),
    )
    return next((style for parent, style in styles if is_token_subtype(kind, parent)), PLAIN)


def _packed(line: Iterable[tuple[str, str]]) -> str:
    parts = [
        (style, sum(len(piece) for _, piece in group))
        for style, group in groupby(line, key=lambda part: part[0])
    ]
    while parts and parts[-1][0] == PLAIN:
        parts.pop()
    return "".join(f"{length}{style}" for style, length in parts if length)
