"""``kafkabus rule``: creating, listing and deleting rules of subscriptions."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkabus.cli.commands.subscription import NameArgument
from kafkabus.cli.commands.topic import TopicArgument
from kafkabus.cli.connection import explain_missing_entity, open_administration
from kafkabus.cli.options import JsonOption, given_values
from kafkabus.cli.settings import settings_json
from kafkabus.cli.terminal import say, write, write_json, write_table
from kafkabus_mapping.names import SUBSCRIPTIONS

if TYPE_CHECKING:
    from kafkabus.management import RuleProperties

app = typer.Typer(
    name="rule", no_args_is_help=True, help="Create, list and delete rules, which select a subscription's messages."
)

RuleArgument = Annotated[str, typer.Argument(metavar="RULE", help="Name of the rule.", show_default=False)]
CORRELATED = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "label",
    "session_id",
    "reply_to_session_id",
    "content_type",
)
"""System properties that a correlation filter may test; all other names are application properties."""


@app.command()
def create(
    context: typer.Context,
    topic: TopicArgument,
    subscription: NameArgument,
    rule: RuleArgument,
    *,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION", help="Select messages by a SQL filter, such as \"color = 'red' AND n > 5\"."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TEXT",
            help="Select messages with this property (NAME:=5 for a number, true or false): an application property, or "
            "label, correlation_id, to, reply_to, "
            "message_id, session_id, reply_to_session_id or content_type. May be repeated; all must hold.",
        ),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="Select no messages.")] = False,
    action: Annotated[
        str | None,
        typer.Option(metavar="STATEMENTS", help='Change a copy of the message, such as "SET a = 1; REMOVE b".'),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="@NAME=TEXT",
            help="Value of a parameter of the expressions; @NAME:=5 for a number, true or false. May be repeated.",
        ),
    ] = None,
    replace_default: Annotated[
        bool,
        typer.Option("--replace-default", help="Delete the rule $Default, which all messages match, if there is one."),
    ] = False,
) -> None:
    """Create a rule; it applies to messages that are sent from now on. Without a filter it matches all messages."""
    from kafkabus.exceptions import MessagingEntityNotFoundError
    from kafkabus.management import FalseRuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter

    if sum([sql is not None, bool(where), nothing]) > 1:
        raise typer.BadParameter("--sql, --where and --nothing are different filters: choose one")
    if parameter and sql is None and action is None:
        raise typer.BadParameter(
            "--parameter sets a value in the expressions of --sql and --action: give one of these too"
        )
    values = given_values(parameter or (), "--parameter")
    parameters: Any = {f"@{name.removeprefix('@')}": value for name, value in values.items()} or None
    if sql is not None:
        chosen: Any = SqlRuleFilter(sql, parameters)
    elif where:
        chosen = _correlation(given_values(where, "--where"))
    else:
        chosen = FalseRuleFilter() if nothing else TrueRuleFilter()
    with (
        explain_missing_entity(context, f"{topic}{SUBSCRIPTIONS}{subscription}"),
        open_administration(context) as administration,
    ):
        administration.create_rule(
            topic,
            subscription,
            rule,
            filter=chosen,
            action=None if action is None else SqlRuleAction(action, parameters),
        )
        if replace_default:
            # $Default may have been deleted before.
            with suppress(MessagingEntityNotFoundError):
                administration.delete_rule(topic, subscription, "$Default")
    write(f"created rule {rule} of {topic}{SUBSCRIPTIONS}{subscription}")


@app.command("list")
def list_rules(
    context: typer.Context, topic: TopicArgument, subscription: NameArgument, json: JsonOption = False
) -> None:
    """List the rules of a subscription."""
    name = f"{topic}{SUBSCRIPTIONS}{subscription}"
    with explain_missing_entity(context, name), open_administration(context) as administration:
        rules = list(administration.list_rules(topic, subscription))
    if json:
        write_json([settings_json(rule) for rule in rules])
    elif rules:
        write_table({"NAME": False, "FILTER": False, "ACTION": False}, [_row(rule) for rule in rules])
    else:
        say(
            f"{name} has no rule, so it gets nothing. Create one with: kafkabus rule create {topic} {subscription} NAME"
        )


@app.command()
def delete(context: typer.Context, topic: TopicArgument, subscription: NameArgument, rule: RuleArgument) -> None:
    """Delete a rule; a subscription without rules gets no messages that are sent from then on."""
    name = f"{topic}{SUBSCRIPTIONS}{subscription}"
    with explain_missing_entity(context, name), open_administration(context) as administration:
        administration.delete_rule(topic, subscription, rule)
    write(f"deleted rule {rule} of {name}")


def _correlation(pairs: dict[str, Any]) -> Any:
    from kafkabus.management import CorrelationRuleFilter

    for name, value in pairs.items():
        if name in CORRELATED and not isinstance(value, str):
            raise typer.BadParameter(f"--where {name}:={value}: {name} is a text: write {name}={value}")
    own = {name: value for name, value in pairs.items() if name in CORRELATED}
    properties = {name: value for name, value in pairs.items() if name not in CORRELATED}
    return CorrelationRuleFilter(**own, properties=properties or None)


def _row(rule: RuleProperties) -> list[str]:
    asked = dict(vars(rule.filter))
    asked |= asked.pop("properties", None) or {}
    shown = getattr(rule.filter, "sql_expression", None) or ", ".join(
        f"{name}={value}" for name, value in settings_json(asked).items() if value is not None
    )
    return [rule.name, shown, (rule.action and rule.action.sql_expression) or ""]
