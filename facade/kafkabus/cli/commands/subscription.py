"""``kafkabus subscription``: creating, showing, changing and deleting subscriptions of topics."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkabus.cli.commands.queue import (
    AutoDelete,
    DeadLetterExpired,
    ForwardDeadLettersTo,
    ForwardTo,
    LockDuration,
    MaxDeliveryCount,
    RetryPolicyOption,
    StatusOption,
    TimeToLive,
    UserMetadata,
)
from kafkabus.cli.commands.topic import TopicArgument
from kafkabus.cli.connection import explain_missing_entity, open_administration
from kafkabus.cli.durations import format_duration
from kafkabus.cli.options import JsonOption, YesOption
from kafkabus.cli.retry_policies import changed_policy, given_policy
from kafkabus.cli.settings import given_changes, settings_json, settings_text, status_of
from kafkabus.cli.terminal import is_interactive, say, write, write_fields, write_json, write_table
from kafkabus_mapping.names import SUBSCRIPTIONS

app = typer.Typer(
    name="subscription", no_args_is_help=True, help="Create, list, show, change and delete subscriptions of topics."
)

NameArgument = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="Name of the subscription.", show_default=False)
]
DeadLetterFaulty = Annotated[
    bool | None,
    typer.Option(
        "--dead-letter-faulty/--drop-faulty",
        help="Whether messages on which a rule fails are dead-lettered or dropped; default dead-lettered.",
        show_default=False,
    ),
]


@app.command()
def create(
    context: typer.Context,
    topic: TopicArgument,
    subscription: NameArgument,
    *,
    sessions: Annotated[
        bool, typer.Option("--sessions", help="Messages are received in sessions; fixed from now on.")
    ] = False,
    lock_duration: LockDuration = None,
    max_delivery_count: MaxDeliveryCount = None,
    time_to_live: TimeToLive = None,
    dead_letter_expired: DeadLetterExpired = None,
    dead_letter_faulty: DeadLetterFaulty = None,
    retry_policy: RetryPolicyOption = None,
    auto_delete_on_idle: AutoDelete = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLettersTo = None,
    user_metadata: UserMetadata = None,
) -> None:
    """Create a subscription: it gets all messages sent to the topic from now on, until 'kafkabus rule' restricts them."""
    policy = given_policy(retry_policy)
    with explain_missing_entity(context, topic, may_create=True), open_administration(context) as administration:
        administration.create_subscription(
            topic,
            subscription,
            requires_session=sessions,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            default_message_time_to_live=time_to_live,
            dead_lettering_on_message_expiration=dead_letter_expired,
            dead_lettering_on_filter_evaluation_exceptions=dead_letter_faulty,
            retry_policy=policy,
            auto_delete_on_idle=auto_delete_on_idle,
            forward_to=forward_to or None,
            forward_dead_lettered_messages_to=forward_dead_letters_to or None,
            user_metadata=user_metadata,
        )
    write(f"created subscription {topic}{SUBSCRIPTIONS}{subscription}")


@app.command()
def update(
    context: typer.Context,
    topic: TopicArgument,
    subscription: NameArgument,
    *,
    lock_duration: LockDuration = None,
    max_delivery_count: MaxDeliveryCount = None,
    time_to_live: TimeToLive = None,
    dead_letter_expired: DeadLetterExpired = None,
    dead_letter_faulty: DeadLetterFaulty = None,
    retry_policy: RetryPolicyOption = None,
    auto_delete_on_idle: AutoDelete = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLettersTo = None,
    user_metadata: UserMetadata = None,
    status: StatusOption = None,
) -> None:
    """Change settings of a subscription; clients apply them within 5 seconds."""
    given: dict[str, object] = {
        "lock_duration": lock_duration,
        "max_delivery_count": max_delivery_count,
        "default_message_time_to_live": time_to_live,
        "dead_lettering_on_message_expiration": dead_letter_expired,
        "dead_lettering_on_filter_evaluation_exceptions": dead_letter_faulty,
        "retry_policy": changed_policy(retry_policy),
        "auto_delete_on_idle": auto_delete_on_idle,
        "forward_to": forward_to,
        "forward_dead_lettered_messages_to": forward_dead_letters_to,
        "user_metadata": user_metadata,
        "status": status,
    }
    changes = given_changes(given, "subscription")
    name = f"{topic}{SUBSCRIPTIONS}{subscription}"
    with explain_missing_entity(context, name), open_administration(context) as administration:
        known = administration.get_subscription(topic, subscription)
        administration.update_subscription(topic, known, **changes)
    write(f"updated subscription {name}: {', '.join(changes)}")


@app.command("list")
def list_subscriptions(context: typer.Context, topic: TopicArgument, json: JsonOption = False) -> None:
    """List the subscriptions of a topic, with the numbers of their messages."""
    with explain_missing_entity(context, topic), open_administration(context) as administration:
        subscriptions = list(administration.list_subscriptions(topic))
        counts = {
            properties.name: properties for properties in administration.list_subscriptions_runtime_properties(topic)
        }
    if json:
        write_json([settings_json(subscription) for subscription in subscriptions])
    elif subscriptions:
        write_table(
            {"NAME": False, "SESSIONS": False, "LOCK": True, "ACTIVE": True, "DEAD-LETTER": True, "STATUS": False},
            [
                [
                    subscription.name,
                    "yes" if subscription.requires_session else "no",
                    format_duration(subscription.lock_duration),
                    f"{counts[subscription.name].active_message_count:,}" if subscription.name in counts else "",
                    f"{counts[subscription.name].dead_letter_message_count:,}" if subscription.name in counts else "",
                    status_of(subscription),
                ]
                for subscription in subscriptions
            ],
        )
    else:
        say(f"Topic {topic} has no subscription yet. Create one with: kafkabus subscription create {topic} NAME")


@app.command()
def show(context: typer.Context, topic: TopicArgument, subscription: NameArgument, json: JsonOption = False) -> None:
    """Show a subscription's settings; 'kafkabus rule list' shows its rules."""
    name = f"{topic}{SUBSCRIPTIONS}{subscription}"
    with explain_missing_entity(context, name), open_administration(context) as administration:
        properties = administration.get_subscription(topic, subscription)
    if json:
        write_json(settings_json(properties))
    else:
        write_fields(settings_text(properties))


@app.command()
def delete(context: typer.Context, topic: TopicArgument, subscription: NameArgument, yes: YesOption = False) -> None:
    """Delete a subscription with its dead-letter queues; the topic's other subscriptions are unchanged."""
    name = f"{topic}{SUBSCRIPTIONS}{subscription}"
    with explain_missing_entity(context, name), open_administration(context) as administration:
        if not yes and is_interactive():
            counts = administration.get_subscription_runtime_properties(topic, subscription)
            typer.confirm(f"Delete {name} and its {counts.total_message_count} messages?", abort=True, err=True)
        administration.delete_subscription(topic, subscription)
    write(f"deleted subscription {name}")
