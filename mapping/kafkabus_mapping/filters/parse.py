"""Parser of SQL filters and actions.

The grammar is ``sql.lark``, after the one that Service Bus documents ("Subscription Rule SQL Filter Syntax", "… SQL Action
Syntax"). An LALR parser reads the text and builds the tree at the same time; it reads each token once, whatever the input.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from kafkabus_mapping.filters.nodes import (
    SYSTEM_PROPERTIES,
    WRITABLE,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Every,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Lookup,
    NewId,
    Not,
    Parameter,
    Property,
    Remove,
    Set,
    Sign,
    Some,
    Statement,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 1024
"""The maximum length of a filter or an action, in characters; Service Bus's limit."""
LONGEST_TEXT = 1 << 20
"""The maximum length of a concatenated text, in characters: the size of the largest message in bytes."""
DEEPEST = 50
"""The maximum depth of a filter's tree; Spark's analyzer cannot process deeper ones."""
LOOKUP_DEPTH = 3
"""The levels that ``property(…)`` counts as, because its Spark expression is deeper than those of other nodes."""
INT64 = range(-(1 << 63), 1 << 63)
"""The range of results of integers of 64 bits with a sign."""
INTEGERS = range(-(1 << 63), 1 << 64)
"""The range of integers in filters and actions: those of 64 bits, with and without a sign."""

_NAMES = {
    "COMPARISON": "a comparison",
    "EQUAL": "=",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "SEMICOLON": ";",
    "DOT": ".",
    "REGULAR": "a name",
    "QUOTED": "a name",
    "DELIMITED": "a name",
    "INTEGER": "a number",
    "REAL": "a number",
    "STRING": "a text",
    "PARAMETER": "a parameter",
    "SIGN": "+ or -",
    "FACTOR": "*, / or %",
    "$END": "the end",
}
_CLOSES = {"'": "'", '"': '"', "[": "]"}


class FilterSyntaxError(ValueError):
    """The text is not a valid filter or action.

    Attributes:
        line: The line of the error, from 1 on.
        column: The column of the error, from 1 on.
    """

    def __init__(self, complaint: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {complaint}")
        self.line = line
        self.column = column


def parse_filter(text: str) -> Condition:
    """Return the condition that the text of a SQL filter states.

    Raises:
        FilterSyntaxError: The text is not a valid filter; the error says at which place, and what was expected there.
    """
    condition: Condition = _parse(text, "filter")
    return condition


def parse_action(text: str) -> tuple[Statement, ...]:
    """Return the statements of the text of a SQL action.

    Raises:
        FilterSyntaxError: The text is not a valid action, or it sets a property that actions may not change.
    """
    statements: tuple[Statement, ...] = _parse(text, "action")
    return statements


def _parse(text: str, start: str) -> Any:
    if len(text) > LONGEST:
        raise FilterSyntaxError(f"it has {len(text)} characters: {LONGEST} are allowed", 1, 1)
    try:
        tree = _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    _check(text, tree)
    return tree


def _syntax_error(text: str, error: UnexpectedInput) -> FilterSyntaxError:
    if isinstance(error, UnexpectedCharacters):
        position: Any = error.pos_in_stream  # lark declares that it is None
        found = text[position]
        if found in _CLOSES:
            complaint = (
                f"the {found} here opens a text or a name that is empty or not closed: close it with {_CLOSES[found]}"
            )
            return FilterSyntaxError(complaint, error.line, error.column)
        return FilterSyntaxError(f"{found!r} means nothing here", error.line, error.column)
    if isinstance(error, UnexpectedToken):
        ended = error.token.type == "$END"
        line, column = _place_of(text, len(text)) if ended else (error.line, error.column)
        expected = sorted({_name_of(terminal) for terminal in error.expected})
        found = "the text ends" if ended else f"found {str(error.token)!r}"
        return FilterSyntaxError(f"{found} where there should be {_one_of(expected)}", line, column)
    return FilterSyntaxError("the text ends too early", *_place_of(text, len(text)))


def _place_of(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def _name_of(terminal: str) -> str:
    return _NAMES.get(terminal, terminal.lstrip("_"))


def _one_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


@cache
def _parser() -> Lark:
    grammar = resources.files("kafkabus_mapping.filters").joinpath("sql.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", start=["filter", "action"], transformer=_Builder())


def _check(text: str, root: object) -> None:
    """Check that evaluators can process a tree.

    Raises:
        FilterSyntaxError: The tree is too deep, or has an integer that is out of range.
    """
    left: list[tuple[object, int]] = [(root, 0)]
    while left:
        node, depth = left.pop()
        if depth > DEEPEST:
            raise FilterSyntaxError(
                f"it is nested more than {DEEPEST} times, where property(…) counts {LOOKUP_DEPTH}", 1, 1
            )
        if isinstance(node, tuple):
            left += [(part, depth) for part in node]
        elif is_dataclass(node):
            below = depth + (LOOKUP_DEPTH if isinstance(node, Lookup) else 1)
            left += [(getattr(node, field.name), below) for field in fields(node)]
        elif type(node) is int and node not in INTEGERS:
            place = _place_of(text, max(0, text.find(str(abs(node)))))
            raise FilterSyntaxError(f"{node} has more than 64 bits", *place)


def _unquote(token: Token) -> str:
    """Return the text between a token's quotes, with doubled closing quotes replaced by single ones."""
    return token[1:-1].replace(token[-1] * 2, token[-1])


def _complain(token: Token, complaint: str) -> FilterSyntaxError:
    return FilterSyntaxError(complaint, token.line or 1, token.column or 1)


def _system(name: str, token: Token) -> Property:
    known = SYSTEM_PROPERTIES.get(name.lower())
    if known is None:
        choices = ", ".join(sorted(SYSTEM_PROPERTIES.values()))
        raise _complain(token, f"a message has no property sys.{name}; there are {choices}")
    return Property(known, system=True)


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    """Builds the nodes of a tree from their parsed parts."""

    def filter(self, condition: Condition) -> Condition:
        return condition

    def action(self, *statements: Statement) -> tuple[Statement, ...]:
        return statements

    def set(self, keyword: Token, target: Property, value: Expression) -> Set:
        return Set(_writable(keyword, target), value)

    def remove(self, keyword: Token, target: Property) -> Remove:
        return Remove(_writable(keyword, target))

    def some(self, *operands: Condition) -> Condition:
        return operands[0] if len(operands) == 1 else Some(operands)

    def every(self, *operands: Condition) -> Condition:
        return operands[0] if len(operands) == 1 else Every(operands)

    def negate(self, operand: Condition) -> Not:
        return Not(operand)

    def compare(self, left: Expression, operator: Token, right: Expression) -> Comparison:
        return Comparison("<>" if operator == "!=" else str(operator), left, right)

    def equal(self, left: Expression, right: Expression) -> Comparison:
        return Comparison("=", left, right)

    def is_null(self, of: Property | Lookup | NewId) -> IsNull:
        return IsNull(_check_property(of))

    def is_not_null(self, of: Property | Lookup | NewId) -> Not:
        return Not(IsNull(_check_property(of)))

    def is_in(self, left: Expression, options: tuple[Expression, ...]) -> In:
        return In(left, options)

    def is_not_in(self, left: Expression, options: tuple[Expression, ...]) -> Not:
        return Not(In(left, options))

    def like(self, left: Expression, pattern: Expression, keyword: Token | None, escape: Expression | None) -> Like:
        if keyword is not None and isinstance(escape, Constant) and not is_character(escape.value):
            raise _complain(keyword, f"ESCAPE {escape.value!r}: give a text of one character")
        return Like(left, pattern, escape)

    def not_like(self, left: Expression, pattern: Expression, keyword: Token | None, escape: Expression | None) -> Not:
        return Not(self.like(left, pattern, keyword, escape))

    def exists(self, of: Property | Lookup | NewId) -> Exists:
        return Exists(_check_property(of))

    def expressions(self, *nodes: Expression) -> tuple[Expression, ...]:
        return nodes

    def arithmetic(self, left: Expression, operator: Token, right: Expression) -> Arithmetic:
        return Arithmetic(str(operator), left, right)

    def sign(self, sign: Token, operand: Expression) -> Expression:
        negative = sign == "-"
        if isinstance(operand, Constant) and type(operand.value) in {int, float}:
            return Constant(-operand.value) if negative else operand  # type: ignore[operator]  # a number, see above
        return Sign(negative, operand)

    def integer(self, token: Token) -> Constant:
        return Constant(int(token))

    def real(self, token: Token) -> Constant:
        value = float(token)
        if math.isinf(value):
            raise _complain(token, f"{token} is more than a number can be")
        return Constant(value)

    def string(self, token: Token) -> Constant:
        return Constant(_unquote(token))

    def true(self) -> Constant:
        return Constant(True)

    def false(self) -> Constant:
        return Constant(False)

    def null(self) -> Constant:
        return Constant(None)

    def parameter(self, token: Token) -> Parameter:
        return Parameter(str(token))

    def property(self, name: str) -> Property:
        return Property(name.lower(), written=name)

    def scoped_property(self, scope: Token, name: str) -> Property:
        named = (scope if scope.type == "REGULAR" else _unquote(scope)).lower()
        if named == "user":
            return Property(name.lower(), written=name)
        if named == "sys":
            return _system(name, scope)
        raise _complain(scope, f"{scope}.{name}: a property's scope is sys or user")

    def lookup(self, function: Token, argument: Expression | None) -> Lookup | NewId:
        if function.lower() in {"property", "p"} and argument is not None:
            return Lookup(argument)
        if function.lower() == "newid" and argument is None:
            return NewId()
        raise _complain(function, f"{function}(…): there are newid(), property(name) and p(name)")

    def regular(self, token: Token) -> str:
        return str(token)

    def quoted_name(self, token: Token) -> str:
        return _unquote(token)

    def delimited_name(self, token: Token) -> str:
        return _unquote(token)


def is_character(value: object) -> bool:
    """Return whether a value is a text of one character, as ESCAPE requires."""
    return isinstance(value, str) and len(value) == 1


def _check_property(of: Property | Lookup | NewId) -> Property | Lookup:
    if isinstance(of, NewId):
        raise FilterSyntaxError("IS NULL and EXISTS ask for a property, which newid() is not", 1, 1)
    return of


def _writable(keyword: Token, target: Property) -> Property:
    if target.system and target.name not in WRITABLE:
        raise _complain(
            keyword,
            f"sys.{target.name} stays as it is: actions change application properties, and sys. "
            f"{', '.join(sorted(WRITABLE))}",
        )
    return target
