"""Filters of a subscription's rules as Spark SQL.

The result for each message equals that of ``kafkabus_mapping.filters.evaluate``, which documents the rules; no message can
fail a job. A value is a struct that contains its kind, because the kind of a property is known only when its message is read.
The result of a condition is one of four codes, because an error counts only if the condition is evaluated.

An expression that is used more than once is bound to a name first (``let``): otherwise Spark would compute it, and Catalyst
walk it, twice, and nested ones twice at each level. The predicate is built as text because a column that is built call by
call needs thousands of calls to Java.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Final

from kafkabus_mapping.amqp.decimals import MOST_DIGITS, parts_of
from kafkabus_mapping.codec import EPOCH
from kafkabus_mapping.filters.decimals import MOST_QUOTIENT_DIGITS, WIDEST
from kafkabus_mapping.filters.evaluate import given_value
from kafkabus_mapping.filters.nodes import (
    SYSTEM_PROPERTIES,
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
    Sign,
    Some,
    Value,
)
from kafkabus_mapping.filters.parse import INT64, INTEGERS, LONGEST, LONGEST_TEXT

FALSE, TRUE, UNKNOWN, ERROR = 0, 1, 2, 3
"""Codes of a condition's result. Among codes that decide nothing the largest counts; ``_join`` relies on this."""

NULL, INTEGER, REAL, TEXT, BOOLEAN, UUID, TIME, DURATION, BYTES, OTHER, BROKEN, DECIMAL = range(12)
"""Kinds of values. ``BROKEN`` is a value that could not be evaluated, ``OTHER`` an integer of more than 64 bits."""

USER: Final = "_user"
"""The column of application properties: an array of ``name``, in lower case, and ``value``. If names differ only by case, the
array has an entry for each, and the last one counts."""
VALUE: Final = "struct<kind:int,number:decimal(38,0),scale:int,real:double,text:string>"
"""The SQL type of a value. ``number`` holds integers, booleans, times and durations in microseconds, and decimals' digits, of
which ``scale`` are behind the point. ``text`` holds texts, UUIDs in their usual form, and bytes in base 64."""

_TEXTUAL: Final = (TEXT, UUID)
_ORDERED: Final = (TIME, DURATION)
_EQUATED: Final = (*_TEXTUAL, BOOLEAN, *_ORDERED)
_NUMBERS: Final = {INTEGER, REAL, DECIMAL}
_KINDS: Final[Mapping[type, int]] = {
    type(None): NULL,
    bool: BOOLEAN,
    int: INTEGER,
    float: REAL,
    Decimal: DECIMAL,
    str: TEXT,
    uuid.UUID: UUID,
    datetime: TIME,
    timedelta: DURATION,
    bytes: BYTES,
}
_MICROSECOND: Final = timedelta(microseconds=1)
_BEYOND: Final = 100_000
"""An exponent beyond those of all decimals."""


def system_column(name: str) -> str:
    """Return the column of a system property by its name in ``SYSTEM_PROPERTIES``: a value, or null if it is missing."""
    return f"_system_{name}"


def sql_value(kind: int, *, number: str = "NULL", scale: str = "0", real: str = "NULL", text: str = "NULL") -> str:
    """Return SQL for a value of a kind."""
    return (
        f"named_struct('kind', {kind}, 'number', CAST({number} AS DECIMAL(38,0)), 'scale', CAST({scale} AS INT), "
        f"'real', CAST({real} AS DOUBLE), 'text', CAST({text} AS STRING))"
    )


def quote_text(text: str) -> str:
    """Return SQL for a text, which may contain any characters."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def predicate(condition: Condition, parameters: Mapping[str, Value]) -> str:
    """Return SQL for the code of a condition's result for each message, over ``USER`` and ``system_column``s.

    Args:
        condition: The condition.
        parameters: Values of its parameters, by name with the ``@``.

    Raises:
        ValueError: A parameter has no value.
    """
    return _Compiler(parameters).condition(condition)


def equals(value: str, wanted: Value) -> str:
    """Return SQL for whether a value equals a given one in a correlation filter: values of different kinds never do.

    Args:
        value: SQL of the property's value; null if it is missing.
        wanted: The value to compare it with.
    """
    compiler = _Compiler({})

    def same(left: str, right: str) -> str:
        bytes_too = f"{left}.kind = {BYTES} AND {right}.kind = {BYTES} AND {left}.text = {right}.text"
        kinds = [_kind_of(wanted)]
        return f"(({_compare('=', left, right, kinds=kinds)}) = {TRUE} OR ({bytes_too}))"

    return compiler.let_each([_present(value), _constant(wanted)], same)


def application_property(name: str) -> str:
    """Return SQL for the value of an application property, or null if it is missing.

    Args:
        name: SQL of the property's name in lower case.
    """
    return f"try_element_at(filter({USER}, one -> one.name = {name}), -1).value"


def system_properties(node: object) -> Iterator[str]:
    """Return the names of the system properties that a condition may use."""
    if isinstance(node, Property) and node.system:
        yield node.name
    elif isinstance(node, Lookup):
        yield from SYSTEM_PROPERTIES.values()
    if isinstance(node, tuple):
        for part in node:
            yield from system_properties(part)
    elif is_dataclass(node):
        for field in fields(node):
            yield from system_properties(getattr(node, field.name))


def system_value(kind: int, column: str) -> str:
    """Return SQL for a system property; null if its column is null.

    Args:
        kind: The kind of the property.
        column: The name of its column, which holds times and durations in milliseconds.
    """
    if kind == TEXT:
        return f"if({column} IS NULL, NULL, {sql_value(kind, text=column)})"
    number = f"CAST({column} AS DECIMAL(20,0)) * 1000" if kind in _ORDERED else column
    return f"if({column} IS NULL, NULL, {sql_value(kind, number=number)})"


def user_properties(raw: str, kinds: str, foreign: str) -> str:
    """Return SQL for the application properties, as ``USER`` holds them.

    If a name is repeated, the last value counts, at the place of the first one.

    Args:
        raw: A map of the properties' values as JSON has them, texts without quotes.
        kinds: A map of their types, as ``schema_of_variant`` returns them.
        foreign: An array of foreign headers, which are application properties: texts if they are UTF-8, else bytes.
    """
    entry = f"array<struct<key:string,value:{VALUE}>>"
    # Spark 4.0 breaks base64 into lines.
    octets = sql_value(BYTES, text=r"translate(base64(h.value), '\r\n', '')")
    text = "try_validate_utf8(CAST(h.value AS STRING))"
    octets = (
        f"CASE WHEN h.value IS NULL THEN {sql_value(NULL)} WHEN {text} IS NULL THEN {octets} "
        f"ELSE {sql_value(TEXT, text=text)} END"
    )
    foreign_entries = f"transform({foreign}, h -> named_struct('key', h.key, 'value', {octets}))"
    own = f"map_entries(map_zip_with({raw}, {kinds}, (k, json, kind) -> {_read_property()}))"
    entries = " || ".join(
        f"coalesce(CAST({source} AS {entry}), CAST(array() AS {entry}))" for source in (foreign_entries, own)
    )
    last = "element_at(filter(entries, one -> one.key = name), -1).value"
    by_name = (
        "transform(array_distinct(transform(entries, one -> one.key)), "
        f"name -> named_struct('name', lower(name), 'value', {last}))"
    )
    return f"get(transform(array({entries}), entries -> {by_name}), 0)"


def _read_property() -> str:
    boolean = sql_value(BOOLEAN, number="CAST(json = 'true' AS INT)")
    tagged = "get(transform(array(from_json(json, 'map<string,string>')), tagged -> {}), 0)"
    return (
        f"CASE WHEN json IS NULL THEN {sql_value(NULL)} WHEN kind = 'STRING' THEN {sql_value(TEXT, text='json')} "
        f"WHEN kind = 'BOOLEAN' THEN {boolean} "
        f"WHEN startswith(kind, 'OBJECT') THEN {tagged.format(_read_tagged())} "
        f"WHEN json RLIKE '^-?[0-9]+$' THEN {_read_integer('json')} "
        f"ELSE {sql_value(REAL, real='TRY_CAST(json AS DOUBLE)')} END"
    )


def _read_tagged() -> str:
    content = "map_values(tagged)[0]"
    return (
        f"CASE map_keys(tagged)[0] WHEN 'int' THEN {_read_integer(content)} "
        f"WHEN 'float' THEN {sql_value(REAL, real=f'TRY_CAST({content} AS DOUBLE)')} "
        f"WHEN 'bytes' THEN {sql_value(BYTES, text=content)} WHEN 'uuid' THEN {sql_value(UUID, text=f'lower({content})')} "
        f"WHEN 'datetime' THEN {sql_value(TIME, number=f'unix_micros(TRY_CAST({content} AS TIMESTAMP))')} "
        f"WHEN 'decimal' THEN {_read_decimal(content)} "
        f"ELSE {sql_value(DURATION, number=f'TRY_CAST({content} AS DECIMAL(38,0))')} END"
    )


def _read_integer(text: str) -> str:
    number = f"TRY_CAST({text} AS DECIMAL(38,0))"
    return f"if(coalesce({_within_range(number, INTEGERS)}, FALSE), {sql_value(INTEGER, number=number)}, {sql_value(OTHER)})"


def _within_range(number: str, numbers: range) -> str:
    return f"{number} BETWEEN CAST('{numbers.start}' AS DECIMAL(38,0)) AND CAST('{numbers.stop - 1}' AS DECIMAL(38,0))"


def _digits(text: str) -> str:
    """Return SQL for the digits of a number's text, with its sign; null if they are too many, or it is no number's."""
    return f"TRY_CAST(replace(regexp_extract({text}, '^[^eE]*', 0), '.', '') AS DECIMAL(38,0))"


def _places(text: str) -> str:
    """Return SQL for how many of the digits of a number's text are behind the point; negative if there are zeros more."""
    exponent = f"coalesce(TRY_CAST(regexp_extract({text}, '[eE](.*)', 1) AS INT), 0)"
    return f"length(regexp_extract({text}, '[.]([0-9]*)', 1)) - {exponent}"


def _read_decimal(text: str) -> str:
    digits = _digits(text)
    return f"if({digits} IS NULL, {sql_value(OTHER)}, {sql_value(DECIMAL, number=digits, scale=_places(text))})"


class _Compiler:
    """Translates trees into SQL."""

    def __init__(self, parameters: Mapping[str, Value]) -> None:
        self._parameters = parameters
        self._names = (f"v{number}" for number in count())

    def let(self, value: str, body: Callable[[str], str]) -> str:
        """Return the SQL that ``body`` builds from the name of a value; Spark computes the value once."""
        name = next(self._names)
        return f"get(transform(array({value}), {name} -> {body(name)}), 0)"

    def let_each(self, values: Sequence[str], body: Callable[..., str]) -> str:
        """Return the SQL that ``body`` builds from the names of values; Spark computes each value once.

        The values share one bound name: Spark's analyzer passes over the whole plan once for each level of nested names, and
        does at most 100 passes.
        """
        if len(values) == 1:
            return self.let(values[0], body)
        members = [f"m{number}" for number in range(len(values))]
        together = ", ".join(f"'{member}', {value}" for member, value in zip(members, values, strict=True))
        return self.let(f"named_struct({together})", lambda name: body(*(f"{name}.{member}" for member in members)))

    def condition(self, node: Condition) -> str:  # noqa: PLR0911 - a case each
        match node:
            case Comparison():
                kinds = self._kind(node.left), self._kind(node.right)
                return self._let_operands([node.left, node.right], partial(_compare, node.operator, kinds=kinds))
            case Every():
                return self._join([self.condition(operand) for operand in node.operands], FALSE)
            case Some():
                return self._join([self.condition(operand) for operand in node.operands], TRUE)
            case Not():
                return self.let(self.condition(node.operand), _negate)
            case In():
                return self._let_operands([node.left], partial(self._is_in, node.options))
            case Like():
                escape = [] if node.escape is None else [node.escape]
                return self._let_operands([node.left, node.pattern, *escape], _like)
            case IsNull():
                return self._let_operands([node.of], _is_null)
            case Exists():
                return self._test_existence(node.of)

    def expression(self, node: Expression) -> str:  # noqa: PLR0911 - a case each
        match node:
            case Constant():
                return _constant(node.value)
            case Parameter():
                return _constant(given_value(self._parameters, node.name))
            case Property():
                return _present(self._property(node))
            case Lookup():
                return self._look_up(node, sql_value(NULL), _present)
            case NewId():
                # A constant is enough, since no other UUID equals a new one.
                return sql_value(UUID, text=quote_text(f"newid {uuid.uuid4()}"))
            case Sign():
                return self._let_operands([node.operand], partial(_apply_sign, node.negative))
            case Arithmetic():
                return self._let_operands([node.left, node.right], partial(_compute, node.operator))

    def _kind(self, node: Expression) -> int | None:
        """Return the kind of an expression's value; None if it depends on the message."""
        match node:
            case Constant():
                return _kind_of(node.value)
            case Parameter():
                return _kind_of(given_value(self._parameters, node.name))
            case _:
                return None

    def _let_operands(self, nodes: Sequence[Expression], body: Callable[..., str]) -> str:
        return self.let_each([self.expression(node) for node in nodes], body)

    def _join(self, codes: Sequence[str], until: int) -> str:
        """Join conditions by OR, or by AND: the first one that decides or is an error counts, else the largest code."""

        def first(codes_array: str) -> str:
            return f"coalesce(get(filter({codes_array}, c -> c IN ({until}, {ERROR})), 0), array_max({codes_array}))"

        return self.let(f"array({', '.join(codes)})", first)

    def _is_in(self, options: Sequence[Expression], left: str) -> str:
        equal = [
            self._let_operands([option], partial(_compare, "=", left, kinds=[self._kind(option)])) for option in options
        ]
        return _unless_undecided([left], self._join(equal, TRUE))

    def _property(self, named: Property) -> str:
        """Return SQL for the value of a property, or null if it is missing."""
        return system_column(named.name) if named.system else application_property(quote_text(named.name))

    def _test_existence(self, of: Property | Lookup) -> str:
        if isinstance(of, Property):
            return f"CAST({self._property(of)} IS NOT NULL AS INT)"
        return self._look_up(of, str(UNKNOWN), lambda value: self.let(value, _exists))

    def _look_up(self, node: Lookup, absent: str, body: Callable[[str], str]) -> str:
        """Return the SQL that ``body`` builds from the property that ``property(name)`` refers to.

        Args:
            node: The call of ``property``.
            absent: SQL of the result if the name is NULL.
            body: Builds SQL from the property's value, which may be null; for an invalid name the value is of kind ``BROKEN``.
        """

        def look_up(name: str) -> str:
            return (
                f"CASE WHEN {name}.kind = {NULL} THEN {absent} WHEN {name}.kind <> {TEXT} THEN {body(sql_value(BROKEN))} "
                f"ELSE {self.let(f'lower({name}.text)', read_named)} END"
            )

        def read_named(lower: str) -> str:
            known = " ".join(f"WHEN 'sys.{key}' THEN {system_column(name)}" for key, name in SYSTEM_PROPERTIES.items())
            return body(
                f"CASE WHEN startswith({lower}, 'user.') THEN {application_property(f'substring({lower}, 6)')} "
                f"WHEN startswith({lower}, 'sys.') THEN CASE {lower} {known} ELSE {sql_value(BROKEN)} END "
                f"ELSE {application_property(lower)} END"
            )

        return self.let(self.expression(node.name), look_up)


def _integer(value: str) -> str:
    """Return SQL for an integer; null, which is a result of more than 64 bits, becomes ``BROKEN``."""
    return f"if({value} IS NULL, {sql_value(BROKEN)}, {sql_value(INTEGER, number=value)})"


def _whole(number: str) -> str:
    return f"TRY_CAST({number}.number AS BIGINT)"


def _apply_sign(negative: bool, operand: str) -> str:
    if not negative:
        return f"CASE WHEN {operand}.kind IN ({INTEGER}, {REAL}, {DECIMAL}, {NULL}) THEN {operand} ELSE {sql_value(BROKEN)} END"
    opposite = f"(CAST(0 AS DECIMAL(38,0)) - {operand}.number)"
    number = (
        f"if({_within_range(f'{operand}.number', INT64)}, CAST(try_subtract(0L, {_whole(operand)}) AS DECIMAL(38,0)), "
        f"if({_within_range(opposite, INTEGERS)}, CAST({opposite} AS DECIMAL(38,0)), NULL))"
    )
    return (
        f"CASE {operand}.kind WHEN {INTEGER} THEN {_integer(number)} "
        f"WHEN {REAL} THEN {sql_value(REAL, real=f'-{operand}.real')} "
        f"WHEN {DECIMAL} THEN {sql_value(DECIMAL, number=opposite, scale=f'{operand}.scale')} "
        f"WHEN {NULL} THEN {sql_value(NULL)} ELSE {sql_value(BROKEN)} END"
    )


def _compute(sign: str, left: str, right: str) -> str:
    reals = _COMPUTE[sign][1]
    times = f"{left}.kind = {TIME} AND {right}.kind = {TIME}" if sign == "-" else "FALSE"
    texts = (
        f"{left}.kind = {TEXT} AND {right}.kind = {TEXT} "
        f"AND length({left}.text) + length({right}.text) <= {LONGEST_TEXT}"
        if sign == "+"
        else "FALSE"
    )
    return (
        f"CASE WHEN {_any_is(BROKEN, [left, right])} THEN {sql_value(BROKEN)} "
        f"WHEN {_any_is(NULL, [left, right])} THEN {sql_value(NULL)} "
        f"WHEN {_are_integers(left, right)} THEN {_integer(_computed_integers(sign, left, right))} "
        f"WHEN {_are_numbers(left, right)} THEN {sql_value(REAL, real=reals(_real(left), _real(right)))} "
        f"WHEN {_are_decimals(left, right)} THEN {_computed_decimals(sign, left, right)} "
        f"WHEN {times} THEN {sql_value(DURATION, number=f'{left}.number - {right}.number')} "
        f"WHEN {texts} THEN {sql_value(TEXT, text=f'{left}.text || {right}.text')} "
        f"ELSE {sql_value(BROKEN)} END"
    )


def _computed_integers(sign: str, left: str, right: str) -> str:
    """Return SQL for the result of an operator for integers; null if it has more than 64 bits."""
    first, second = f"{left}.number", f"{right}.number"
    wide = f"CAST({_WIDE[sign].format(first, second)} AS DECIMAL(38,0))"
    small = f"{_within_range(first, INT64)} AND {_within_range(second, INT64)}"
    return (
        f"if({small}, CAST({_COMPUTE[sign][0](_whole(left), _whole(right))} AS DECIMAL(38,0)), "
        f"if({_within_range(wide, INTEGERS)}, {wide}, NULL))"
    )


def _let(name: str, value: str, body: str) -> str:
    """Return SQL that uses a value by its name, which may hide another one."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def _pair(left: str, right: str, body: str) -> str:
    """Return SQL that uses two numbers as decimals: ``p[0]`` and ``p[1]``, each with its digits ``n`` and its scale ``s``."""
    text = "CAST(v.real AS STRING)"
    digits = f"WHEN abs(v.real) = double('inf') THEN if(v.real < 0, -1, 1) ELSE {_digits(text)}"
    scale = f"WHEN abs(v.real) = double('inf') THEN {-_BEYOND} ELSE {_places(text)}"
    kept = f"CASE WHEN v.kind <> {REAL} THEN"
    decimal = f"named_struct('n', {kept} v.number {digits} END, 's', {kept} v.scale {scale} END)"
    return _let("p", f"transform(array({left}, {right}), v -> {decimal})", body)


def _append_zeros(digits: str, places: str) -> str:
    """Return SQL for a decimal's digits with so many more zeros; null if they are too many."""
    return f"try_multiply({digits}, TRY_CAST(rpad('1', least({places}, {WIDEST}) + 1, '0') AS DECIMAL(38,0)))"


def _compared_decimals(sign: str, left: str, right: str) -> str:
    """Return SQL for a comparison of two numbers, of which one is a decimal.

    If digits do not suffice to write the one that has fewer behind the point like the other, it is the larger one.
    """
    first, second = _append_zeros("p[0].n", "p[1].s - p[0].s"), _append_zeros("p[1].n", "p[0].s - p[1].s")
    order = (
        "CASE WHEN sign(p[0].n) <> sign(p[1].n) OR p[0].n = 0 THEN sign(p[0].n) - sign(p[1].n) "
        f"WHEN p[0].s < p[1].s THEN coalesce(sign({first} - p[1].n), sign(p[0].n)) "
        f"ELSE coalesce(sign(p[0].n - {second}), -sign(p[1].n)) END"
    )
    return f"if(isnan({left}.real) OR isnan({right}.real), {sign == '<>'}, {_pair(left, right, f'{order} {sign} 0')})"


def _computed_decimals(sign: str, left: str, right: str) -> str:
    """Return SQL for the result of an operator for numbers of which one is a decimal; see ``compute_decimals``."""
    if sign == "/":
        return _finite(left, right, _pair(left, right, _quotient()))
    if sign == "*":
        digits, scale = "try_multiply(p[0].n, p[1].n)", "p[0].s + p[1].s"
    else:
        scale = "greatest(p[0].s, p[1].s)"
        # Zero stays zero, however far the other one is.
        first, second = (f"if({d} = 0, {d}, {_append_zeros(d, f'{scale} - {d[:-1]}s')})" for d in ("p[0].n", "p[1].n"))
        digits = {
            "+": f"try_add({first}, {second})",
            "-": f"try_subtract({first}, {second})",
            "%": f"if(p[1].n = 0, NULL, {first} % {second})",
        }[sign]
    return _finite(left, right, _pair(left, right, _decimal(digits, scale, MOST_DIGITS)))


def _finite(left: str, right: str, result: str) -> str:
    """Return SQL for a result of numbers that are finite."""
    odd = " OR ".join(f"isnan({value}.real) OR abs({value}.real) = double('inf')" for value in (left, right))
    return f"if(coalesce({odd}, FALSE), {sql_value(BROKEN)}, {result})"


def _quotient() -> str:
    """Return SQL for the quotient of ``p[0]`` and ``p[1]``, with as few digits behind the point as it can be exact with."""
    dividend = "abs(p[0].n)"
    exact = f"{_append_zeros(dividend, 'k')} % abs(p[1].n) = 0"
    places = f"get(filter(sequence(0, {WIDEST} - length(CAST({dividend} AS STRING))), k -> {exact}), 0)"
    digits = f"sign(p[0].n) * sign(p[1].n) * try_divide({_append_zeros(dividend, 'q')}, abs(p[1].n))"
    body = _decimal(f"TRY_CAST({digits} AS DECIMAL(38,0))", "p[0].s + q - p[1].s", MOST_QUOTIENT_DIGITS)
    return f"if(p[1].n = 0, {sql_value(BROKEN)}, {_let('q', places, body)})"


def _decimal(number: str, scale: str, digits: int) -> str:
    """Return SQL for a decimal; ``BROKEN`` if it has more digits."""
    limit = f"CAST('{10**digits}' AS DECIMAL(38,0))"
    made = sql_value(DECIMAL, number="n", scale=scale)
    return _let("n", number, f"if(n IS NULL OR abs(n) >= {limit}, {sql_value(BROKEN)}, {made})")


def _constant(value: Value) -> str:  # noqa: C901, PLR0911 - a case each
    match value:
        case None:
            return sql_value(NULL)
        case bool():
            return sql_value(BOOLEAN, number=str(int(value)))
        case int():
            return sql_value(INTEGER, number=f"'{value}'") if value in INTEGERS else sql_value(OTHER)
        case float():
            return sql_value(REAL, real=f"'{value!r}'")
        case str():
            return sql_value(TEXT, text=quote_text(value))
        case uuid.UUID():
            return sql_value(UUID, text=quote_text(str(value)))
        case datetime():
            return sql_value(TIME, number=f"'{(value - EPOCH) // _MICROSECOND}'")
        case timedelta():
            return sql_value(DURATION, number=f"'{value // _MICROSECOND}'")
        case bytes():
            return sql_value(BYTES, text=quote_text(base64.b64encode(value).decode()))
        case Decimal():
            number, scale = parts_of(value)
            return sql_value(DECIMAL, number=f"'{number}'", scale=str(scale))


def _kind_of(value: Value) -> int:
    """Return the kind of a constant, as if no integer had more than 64 bits."""
    return _KINDS[type(value)]


def _present(value: str) -> str:
    return f"coalesce({value}, {sql_value(NULL)})"


def _real(number: str) -> str:
    return f"coalesce({number}.real, CAST({number}.number AS DOUBLE))"


def _any_is(kind: int, operands: Sequence[str]) -> str:
    return " OR ".join(f"{operand}.kind = {kind}" for operand in operands)


def _are_integers(left: str, right: str) -> str:
    return f"{left}.kind = {INTEGER} AND {right}.kind = {INTEGER}"


def _are_numbers(left: str, right: str) -> str:
    return f"{left}.kind IN ({INTEGER}, {REAL}) AND {right}.kind IN ({INTEGER}, {REAL})"


def _are_decimals(left: str, right: str) -> str:
    """Return SQL for whether two values are numbers; integers and floats alone were looked at before."""
    numbers = f"({INTEGER}, {REAL}, {DECIMAL})"
    return f"{left}.kind IN {numbers} AND {right}.kind IN {numbers}"


def _list_kinds(kinds: Sequence[int]) -> str:
    return ", ".join(map(str, kinds))


def _unless_undecided(operands: Sequence[str], code: str) -> str:
    """Return SQL for the code of a test, or ERROR or UNKNOWN if an operand could not be evaluated or is NULL."""
    return (
        f"CASE WHEN {_any_is(BROKEN, operands)} THEN {ERROR} WHEN {_any_is(NULL, operands)} THEN {UNKNOWN} "
        f"ELSE {code} END"
    )


def _is_null(value: str) -> str:
    return f"CASE {value}.kind WHEN {BROKEN} THEN {ERROR} WHEN {NULL} THEN {TRUE} ELSE {FALSE} END"


def _exists(value: str) -> str:
    return f"CASE WHEN {value} IS NULL THEN {FALSE} WHEN {value}.kind = {BROKEN} THEN {ERROR} ELSE {TRUE} END"


def _negate(code: str) -> str:
    return f"if({code} <= {TRUE}, {TRUE} - {code}, {code})"


def _compare(sign: str, left: str, right: str, *, kinds: Collection[int | None] = ()) -> str:
    """Return SQL for the code of a comparison.

    Args:
        sign: The operator.
        left: SQL of the value before it.
        right: SQL of the value behind it.
        kinds: The kinds of values that are known, which save the SQL for others.
    """
    known = set(kinds) - {None}
    comparable = _EQUATED if sign in {"=", "<>"} else _ORDERED
    branches: list[str] = []
    if known <= _NUMBERS:
        # Spark treats NaN as equal to itself and larger than all numbers; IEEE 754, and thus a filter, as unequal to all.
        reals = f"if(isnan({left}.real) OR isnan({right}.real), {sign == '<>'}, {_real(left)} {sign} {_real(right)})"
        branches += [
            f"WHEN {_are_integers(left, right)} THEN {left}.number {sign} {right}.number",
            f"WHEN {_are_numbers(left, right)} THEN {reals}",
            f"WHEN {_are_decimals(left, right)} THEN {_compared_decimals(sign, left, right)}",
        ]
    branches.append(f"WHEN {left}.kind <> {right}.kind OR {left}.kind NOT IN ({_list_kinds(comparable)}) THEN NULL")
    if not known or not known.isdisjoint(_TEXTUAL):
        branches.append(f"WHEN {left}.kind IN ({_list_kinds(_TEXTUAL)}) THEN {left}.text {sign} {right}.text")
    said = f"CASE {' '.join(branches)} ELSE {left}.number {sign} {right}.number END"
    return _unless_undecided([left, right], f"coalesce(CAST({said} AS INT), {ERROR})")


def _divided_integers(left: str, right: str) -> str:
    return f"if({right} = 0 OR ({right} = -1 AND {left} = CAST('{INT64.start}' AS BIGINT)), NULL, {left} div {right})"


def _divided_reals(left: str, right: str) -> str:
    # Only the text of a zero shows its sign.
    infinity = f"if(({left} < 0) <> startswith(CAST({right} AS STRING), '-'), double('-inf'), double('inf'))"
    by_zero = f"if({left} = 0 OR isnan({left}), double('nan'), {infinity})"
    return f"if({right} = 0, {by_zero}, {left} / {right})"


_COMPUTE: Final[Mapping[str, tuple[Callable[[str, str], str], Callable[[str, str], str]]]] = {
    "+": ("try_add({}, {})".format, "{} + {}".format),
    "-": ("try_subtract({}, {})".format, "{} - {}".format),
    "*": ("try_multiply({}, {})".format, "{} * {}".format),
    "/": (_divided_integers, _divided_reals),
    "%": (
        lambda left, right: f"if({right} = 0, NULL, {left} % {right})",
        "if({1} = 0, double('nan'), {0} % {1})".format,
    ),
}
"""SQL of the operators for integers, null if the result exceeds 64 bits, and for floats."""
_WIDE: Final[Mapping[str, str]] = {
    "+": "{} + {}",
    "-": "{} - {}",
    "*": "try_multiply({}, {})",
    "/": "if({1} = 0, NULL, try_divide({0} - {0} % {1}, {1}))",
    "%": "if({1} = 0, NULL, {0} % {1})",
}
"""SQL of the operators for integers of which one has 64 bits and no sign."""


def _like(text: str, pattern: str, escape: str | None = None) -> str:
    operands = [text, pattern] if escape is None else [text, pattern, escape]
    suit = [f"{operand}.kind = {TEXT}" for operand in operands] + [f"length({pattern}.text) <= {LONGEST}"]
    suit += [] if escape is None else [f"length({escape}.text) = 1"]
    expression = _regular_expression(f"{pattern}.text", "NULL" if escape is None else f"{escape}.text")
    said = f"if({' AND '.join(suit)}, {text}.text RLIKE {expression}, NULL)"
    return _unless_undecided(operands, f"coalesce(CAST({said} AS INT), {ERROR})")


def _regular_expression(pattern: str, escape: str) -> str:
    """Return SQL for the regular expression of a LIKE pattern; null if the pattern ends with its escape character.

    The characters between two ``%`` form an atomic group, which keeps the first place at which it was found.
    """

    def state(text: str, escaping: str = "FALSE") -> str:
        return f"named_struct('text', {text}, 'escaping', {escaping})"

    characters = (
        f"if(length({pattern}) = 0, CAST(array() AS ARRAY<STRING>), "
        f"transform(sequence(1, length({pattern})), place -> substring({pattern}, place, 1)))"
    )
    itself = state(r"s.text || r'\x{' || hex(ascii(c)) || '}'")
    begun, escaping, any_text, any_one = (
        state(r"r'(?s)\A(?>'"),
        state("s.text", "TRUE"),
        state("s.text || ')(?>.*?'"),
        state("s.text || '.'"),
    )
    step = (
        f"CASE WHEN s.escaping THEN {itself} WHEN c = {escape} THEN {escaping} "
        f"WHEN c = '%' THEN {any_text} WHEN c = '_' THEN {any_one} ELSE {itself} END"
    )
    end = r"if(s.escaping, NULL, s.text || r'\z)')"
    return f"aggregate({characters}, {begun}, (s, c) -> {step}, s -> {end})"
