"""The language of filters: its grammar, and what is checked before a capture is opened.

In: the text of a filter. Out: an `Expression` whose fields exist and whose values are of their fields' kinds,
or a `FilterError` with the place of what is wrong. Bounds: `MAX_TEXT` characters, `MAX_DEPTH` levels.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any, TypeAlias

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from rpcinspect.errors import FilterError
from rpcinspect.fields.field import Field
from rpcinspect.fields.kinds import RESERVED, Word, unquote
from rpcinspect.fields.table import BY_NAME
from rpcinspect.filter.expression import And, Compare, Expression, Not, Or, Present
from rpcinspect.filter.regex import compile_search

MAX_TEXT = 10_000
MAX_DEPTH = 64
"""Of `and`, `or` and `not` inside of each other; parentheses alone do not count."""

GRAMMAR = r"""
start: either
?either: both ((_OR | _BARS) both)*                        -> either
?both: opposite ((_AND | _AMPERSANDS) opposite)*           -> both
?opposite: (_NOT | _BANG) opposite                         -> opposite
    | _OPEN either _CLOSE
    | WORD                                                 -> present
    | WORD OPERATOR value                                  -> compare
    | WORD _IN _BRACE value (_COMMA value)* _UNBRACE       -> among
value: WORD | QUOTED | SHAPE

_OR: "or"
_BARS: "||"
_AND: "and"
_AMPERSANDS: "&&"
_NOT: "not"
_BANG: "!"
_IN: "in"
_OPEN: "("
_CLOSE: ")"
_BRACE: "{"
_UNBRACE: "}"
_COMMA: ","
OPERATOR: "==" | "!=" | "<=" | ">=" | "<" | ">" | "~"
QUOTED: /"(?:[^"\\]|\\.)*"/s | /'[^']*'/
SHAPE: /\[[^\[\]]*\]/
WORD: /[^\s()\[\]{}"',=!<>~&|]+/
%ignore /\s+/
"""

EXPECTED = {
    "WORD": "a name or a value",
    "OPERATOR": "== != < <= > >= ~",
    "QUOTED": "a text in quotes",
    "SHAPE": "a shape",
    "_OR": "or",
    "_AND": "and",
    "_NOT": "not",
    "_IN": "in",
    "_OPEN": "(",
    "_CLOSE": ")",
    "_BRACE": "{",
    "_UNBRACE": "}",
    "_COMMA": "a comma",
    "$END": "the end",
}
"""What the parser may wait for, for people; other spellings of the same are left out."""

UNCLOSED = {
    '"': "the text in quotes has no end",
    "'": "the text in quotes has no end",
    "[": "the shape has no end",
    "=": "= is not part of the language; == compares",
}

Built: TypeAlias = tuple[Expression, int]
"""An expression and how deep it is."""


def parse(text: str) -> Expression:
    """The expression; `FilterError` for anything else."""
    if not text.strip():
        raise FilterError("the filter is empty", text, 0, len(text))
    if len(text) > MAX_TEXT:
        raise FilterError(f"longer than {MAX_TEXT:,} characters", text, MAX_TEXT, len(text))
    try:
        expression: Expression = _parser().parse(text)[0]
    except _Mistake as mistake:
        raise FilterError(mistake.reason, text, mistake.start, mistake.end or len(text)) from None
    except UnexpectedInput as error:
        raise _unexpected(error, text) from None
    return expression


@cache
def _parser() -> Any:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), maybe_placeholders=False)


class _Mistake(Exception):
    """A `FilterError` that does not know the text yet."""

    def __init__(self, reason: str, token: Token | None = None) -> None:
        """`token`: which is wrong; None: no single one is."""
        super().__init__(reason)
        self.reason = reason
        self.start = 0 if token is None else token.start_pos or 0
        self.end = None if token is None else token.end_pos


class _Builder(Transformer[Token, Any]):
    """What each rule of the grammar becomes; called while the parser goes: nothing here is recursive."""

    def start(self, items: list[Built]) -> Built:
        return items[0]

    def value(self, items: list[Token]) -> Token:
        return items[0]

    def either(self, items: list[Built]) -> Built:
        return items[0] if len(items) == 1 else (Or(tuple(item for item, _ in items)), _deeper(items))

    def both(self, items: list[Built]) -> Built:
        return items[0] if len(items) == 1 else (And(tuple(item for item, _ in items)), _deeper(items))

    def opposite(self, items: list[Built]) -> Built:
        return Not(items[0][0]), _deeper(items)

    def present(self, items: list[Token]) -> Built:
        return Present(_field(items[0])), 1

    def compare(self, items: list[Token]) -> Built:
        name, operator, token = items
        field = _field(name)
        if operator not in field.kind.operators:
            known = " ".join(sorted(field.kind.operators))
            raise _Mistake(f"{field.name} is a {field.kind.name}, which knows {known}", operator)
        value = _pattern(token) if operator == "~" else _value(field, token)
        return Compare(field, str(operator), value), 1

    def among(self, items: list[Token]) -> Built:
        field = _field(items[0])
        return Compare(field, "in", tuple(_value(field, token) for token in items[1:])), 1


def _deeper(items: list[Built]) -> int:
    depth = 1 + max(depth for _, depth in items)
    if depth > MAX_DEPTH:
        raise _Mistake(f"more than {MAX_DEPTH} levels of and, or and not inside of each other")
    return depth


def _field(token: Token) -> Field:
    field = BY_NAME.get(token)
    if field is None:
        near = [name for name in BY_NAME if name.endswith(f".{token}")]
        near += [name for name in get_close_matches(token, BY_NAME, 3, 0.6) if name not in near]
        hint = f"; near: {', '.join(near)}" if near else "; decode --fields lists them"
        raise _Mistake(f"there is no field {token}{hint}", token)
    return field


def _value(field: Field, token: Token) -> Word:
    if token.type == "QUOTED":
        if not field.kind.quoted:
            raise _Mistake(f"{field.name} is a {field.kind.name}: {field.kind.unit}", token)
        text = unquote(token)
    elif token.type == "SHAPE" and field.kind.name != "shape":
        raise _Mistake(f"{field.name} is a {field.kind.name}: {field.kind.unit}", token)
    else:
        text = str(token)
    try:
        return field.kind.read(text)
    except ValueError as error:
        raise _Mistake(f"{field.name}: {error}", token) from None


def _pattern(token: Token) -> str:
    if token.type == "SHAPE":
        raise _Mistake("a regular expression with brackets must be in quotes", token)
    pattern = unquote(token) if token.type == "QUOTED" else str(token)
    try:
        compile_search(pattern)
    except ValueError as error:
        raise _Mistake(str(error), token) from None
    return pattern


def _unexpected(error: UnexpectedInput, text: str) -> FilterError:
    """What the parser stumbled on."""
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        found = text[at]
        return FilterError(UNCLOSED.get(found, f"{found} is not part of the language"), text, at, at + 1)
    assert isinstance(error, UnexpectedToken)
    wanted = sorted({EXPECTED[name] for name in error.accepts or error.expected if name in EXPECTED})
    told = f"expected {', '.join(wanted)}"
    token = error.token
    if token.type == "$END":
        return FilterError(f"the filter ends too early: {told}", text, len(text), len(text))
    hint = " (a value that is a word of the language must be in quotes)" if str(token) in RESERVED else ""
    return FilterError(f"{told}{hint}", text, token.start_pos or 0, token.end_pos or 0)
