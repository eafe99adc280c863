"""``kafkabus stats``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import counts_of, explain_missing_entity, open_administration
from kafkabus.cli.options import JsonOption
from kafkabus.cli.terminal import say, write_json, write_table
from kafkabus.exceptions import MessagingEntityNotFoundError
from kafkabus_mapping.names import split_subscription

if TYPE_CHECKING:
    from kafkabus.management import (
        LogUsage,
        PartitionRuntimeProperties,
        QueueRuntimeProperties,
        ServiceBusAdministrationClient,
        SubscriptionRuntimeProperties,
    )

app = typer.Typer()

COUNTED = {
    "active": "active_message_count",
    "postponed": "postponed_message_count",
    "scheduled": "scheduled_message_count",
    "dead_letter": "dead_letter_message_count",
    "transfer_dead_letter": "transfer_dead_letter_message_count",
}
"""The counts that are shown for each partition."""
RARE = ("postponed", "transfer_dead_letter")
"""The counts that have a column only if they are not zero."""


@app.command()
def stats(
    context: typer.Context,
    entity: Annotated[
        str,
        typer.Argument(
            metavar="ENTITY",
            help="Name of the queue or topic, or TOPIC/Subscriptions/SUBSCRIPTION.",
            show_default=False,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Count messages: those of a queue or a subscription by partition, those of a topic by subscription.

    Active messages wait or are locked by a receiver; postponed ones of them wait for a delay after they were given back;
    scheduled ones wait for their time; transfer dead letters could not be forwarded. For a topic, the command also shows how
    many records of the log each subscription may still need, and in how many partitions that subscription alone keeps the log
    from being deleted.
    """
    with explain_missing_entity(context, entity), open_administration(context) as administration:
        try:
            counts = counts_of(administration, entity)
        except MessagingEntityNotFoundError:
            if split_subscription(entity) is not None:
                raise
            _show_topic(administration, entity, json)
        else:
            _show(counts, "queue" if split_subscription(entity) is None else "subscription", json)


def _show(counts: QueueRuntimeProperties | SubscriptionRuntimeProperties, kind: str, json: bool) -> None:
    if json:
        write_json(
            {
                kind: counts.name,
                **_numbers(counts),
                "transfer": counts.transfer_message_count,
                **_sessions(counts),
                "partitions": [
                    {"partition": partition.partition, **_numbers(partition)} for partition in counts.partitions
                ],
            }
        )
        return
    shown = [name for name, number in _numbers(counts).items() if name not in RARE or number]
    write_table(
        {"PARTITION": True, **{_title(name): True for name in shown}},
        [[str(partition.partition), *_cells(_numbers(partition), shown)] for partition in counts.partitions],
        total=["all", *_cells(_numbers(counts), shown)],
    )
    if sessions := _sessions(counts):
        say(f"sessions: {sessions['available_sessions']:,} available, {sessions['locked_sessions']:,} locked")


def _sessions(counts: QueueRuntimeProperties | SubscriptionRuntimeProperties) -> dict[str, int]:
    """Return the numbers of an entity's sessions, by name; empty if it has none."""
    available, locked = counts.available_session_count, counts.locked_session_count
    if available is None or locked is None:
        return {}
    return {"available_sessions": available, "locked_sessions": locked}


def _show_topic(administration: ServiceBusAdministrationClient, topic: str, json: bool) -> None:
    scheduled = administration.get_topic_runtime_properties(topic).scheduled_message_count
    usage = {log.subscription_name: log for log in administration.get_topic_log_usage(topic)}
    counts = {
        subscription.name: {**_numbers(subscription), "needed": sum(usage[subscription.name].records)}
        for subscription in administration.list_subscriptions_runtime_properties(topic)
        if subscription.name in usage
    }
    if json:
        subscriptions = [
            {"subscription": name, **numbers, "keeps_log_of": list(usage[name].keeps)}
            for name, numbers in counts.items()
        ]
        write_json({"topic": topic, "scheduled": scheduled, "subscriptions": subscriptions})
        return
    if scheduled:
        say(f"{scheduled:,} scheduled")
    if not counts:
        say(f"Topic {topic} has no subscription, so messages sent to it are not received")
        return
    shown = ["active", "dead_letter", "needed"]
    write_table(
        {"SUBSCRIPTION": False, **{_title(name): True for name in shown}, "KEEPS LOG OF": False},
        [[name, *_cells(numbers, shown), _kept_partitions(usage[name])] for name, numbers in counts.items()],
    )


def _numbers(
    counts: QueueRuntimeProperties | SubscriptionRuntimeProperties | PartitionRuntimeProperties,
) -> dict[str, int]:
    return {name: getattr(counts, attribute) for name, attribute in COUNTED.items() if hasattr(counts, attribute)}


def _title(name: str) -> str:
    return name.replace("transfer_", "transfer ").replace("_", "-").upper()


def _cells(numbers: Mapping[str, int], shown: Sequence[str]) -> list[str]:
    return [f"{numbers[name]:,}" for name in shown]


def _kept_partitions(usage: LogUsage) -> str:
    count, partitions = len(usage.keeps), len(usage.records)
    return f"{count} of {partitions} partition{'' if partitions == 1 else 's'}" if count else ""
