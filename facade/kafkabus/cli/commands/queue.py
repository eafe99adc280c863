"""``kafkabus queue``: creating, showing, changing and deleting queues."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kafkabus.cli.connection import explain_missing_entity, open_administration
from kafkabus.cli.durations import format_duration
from kafkabus.cli.options import JsonOption, YesOption, duration_option
from kafkabus.cli.retry_policies import changed_policy, given_policy
from kafkabus.cli.settings import given_changes, settings_json, settings_text, status_of
from kafkabus.cli.terminal import is_interactive, say, write, write_fields, write_json, write_table

if TYPE_CHECKING:
    from kafkabus.management import QueueProperties, QueueRuntimeProperties

app = typer.Typer(name="queue", no_args_is_help=True, help="Create, list, show, change and delete queues.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.", show_default=False)]


DuplicateWindow = Annotated[
    timedelta | None,
    duration_option("How long message ids are remembered to detect duplicates: 20s to 7d, default 10m."),
]
LockDuration = Annotated[
    timedelta | None, duration_option("How long a received message is locked: up to 5m, default 1m.")
]
MaxDeliveryCount = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Deliveries before a message is dead-lettered: 1 to 2000, default 10.", show_default=False
    ),
]
MaxSize = Annotated[
    int | None,
    typer.Option(metavar="MB", help="Size of one partition: 1024 (the default) to 5120.", show_default=False),
]
TimeToLive = Annotated[
    timedelta | None,
    duration_option("Default time to live of messages; without it, for ever."),
]
DeadLetterExpired = Annotated[
    bool | None,
    typer.Option(
        "--dead-letter-expired/--drop-expired",
        help="Whether expired messages are dead-lettered or dropped; default dropped.",
        show_default=False,
    ),
]
SettledRetention = Annotated[
    timedelta | None, duration_option("How long settled messages stay readable in Kafka, default 1d.")
]
ForwardTo = Annotated[
    str | None,
    typer.Option(metavar="ENTITY", help="Forward messages to this queue or topic; '' for none.", show_default=False),
]
ForwardDeadLettersTo = Annotated[
    str | None,
    typer.Option(
        metavar="ENTITY", help="Forward dead letters to this queue or topic; '' for none.", show_default=False
    ),
]
AutoDelete = Annotated[
    timedelta | None, duration_option("Delete it after this time without use: 5m or more, default never.")
]
RetryPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--retry-policy",
        metavar="POLICY",
        help="When messages come again that were abandoned or whose locks expired: fixed:10s, exponential:1s:5m or "
        "list:10s,1m,10m; default at once. For 'update', also none.",
        show_default=False,
    ),
]
UserMetadata = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Free text, up to 1024 characters.", show_default=False)
]
StatusOption = Annotated[
    str | None,
    typer.Option(metavar="STATUS", help="Active, Disabled, SendDisabled or ReceiveDisabled.", show_default=False),
]


@app.command()
def create(
    context: typer.Context,
    name: NameArgument,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="One partition instead of 16; fixed from now on.")] = False,
    sessions: Annotated[
        bool, typer.Option("--sessions", help="Messages are received in sessions; fixed from now on.")
    ] = False,
    detect_duplicates: Annotated[
        bool,
        typer.Option(
            "--detect-duplicates", help="Deliver only the first of messages with the same id; fixed from now on."
        ),
    ] = False,
    duplicate_window: DuplicateWindow = None,
    lock_duration: LockDuration = None,
    max_delivery_count: MaxDeliveryCount = None,
    max_size_in_megabytes: MaxSize = None,
    time_to_live: TimeToLive = None,
    dead_letter_expired: DeadLetterExpired = None,
    settled_retention: SettledRetention = None,
    retry_policy: RetryPolicyOption = None,
    auto_delete_on_idle: AutoDelete = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLettersTo = None,
    user_metadata: UserMetadata = None,
) -> None:
    """Create a queue, by default with 16 partitions; a Premium namespace sets the number for all its queues.

    Durations are written 30s, 5m, 1h30m or PT30S.
    """
    policy = given_policy(retry_policy)
    with open_administration(context) as administration:
        premium = administration.get_namespace_properties().partitions is not None
        queue = administration.create_queue(
            name,
            enable_partitioning=None if premium and not plain else not plain,
            requires_session=sessions,
            requires_duplicate_detection=detect_duplicates,
            duplicate_detection_history_time_window=duplicate_window,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            max_size_in_megabytes=max_size_in_megabytes,
            default_message_time_to_live=time_to_live,
            dead_lettering_on_message_expiration=dead_letter_expired,
            settled_retention=settled_retention,
            retry_policy=policy,
            auto_delete_on_idle=auto_delete_on_idle,
            forward_to=forward_to or None,
            forward_dead_lettered_messages_to=forward_dead_letters_to or None,
            user_metadata=user_metadata,
        )
    kind = f"{'partitioned' if queue.enable_partitioning else 'plain'} queue{' with sessions' if sessions else ''}"
    write(f"created {kind} {name}")


@app.command()
def update(
    context: typer.Context,
    name: NameArgument,
    *,
    duplicate_window: DuplicateWindow = None,
    lock_duration: LockDuration = None,
    max_delivery_count: MaxDeliveryCount = None,
    max_size_in_megabytes: MaxSize = None,
    time_to_live: TimeToLive = None,
    dead_letter_expired: DeadLetterExpired = None,
    settled_retention: SettledRetention = None,
    retry_policy: RetryPolicyOption = None,
    auto_delete_on_idle: AutoDelete = None,
    forward_to: ForwardTo = None,
    forward_dead_letters_to: ForwardDeadLettersTo = None,
    user_metadata: UserMetadata = None,
    status: StatusOption = None,
) -> None:
    """Change settings of a queue; clients apply them within 5 seconds."""
    given: dict[str, object] = {
        "duplicate_detection_history_time_window": duplicate_window,
        "lock_duration": lock_duration,
        "max_delivery_count": max_delivery_count,
        "max_size_in_megabytes": max_size_in_megabytes,
        "default_message_time_to_live": time_to_live,
        "dead_lettering_on_message_expiration": dead_letter_expired,
        "settled_retention": settled_retention,
        "retry_policy": changed_policy(retry_policy),
        "auto_delete_on_idle": auto_delete_on_idle,
        "forward_to": forward_to,
        "forward_dead_lettered_messages_to": forward_dead_letters_to,
        "user_metadata": user_metadata,
        "status": status,
    }
    changes = given_changes(given, "queue")
    with explain_missing_entity(context, name), open_administration(context) as administration:
        administration.update_queue(administration.get_queue(name), **changes)
    write(f"updated queue {name}: {', '.join(changes)}")


@app.command("list")
def list_queues(
    context: typer.Context,
    *,
    counts: Annotated[bool, typer.Option("--counts", help="List how many messages there are.")] = False,
    json: JsonOption = False,
) -> None:
    """List the queues of the namespace, with their settings, or with how many messages they have."""
    if counts:
        _list_counts(context, json)
        return
    with open_administration(context) as administration:
        queues = list(administration.list_queues())
    if json:
        write_json([settings_json(queue) for queue in queues])
    elif queues:
        write_table(
            {"NAME": False, "KIND": False, "LOCK": True, "DELIVERIES": True, "STATUS": False}, [_row(q) for q in queues]
        )
    else:
        say("There is no queue yet. Create one with: kafkabus queue create NAME")


def _list_counts(context: typer.Context, json: bool) -> None:
    with open_administration(context) as administration:
        found = list(administration.list_queues_runtime_properties())
    if json:
        write_json([{"name": queue.name, **_counts(queue)} for queue in found])
    elif found:
        titles = {title.replace("_", "-").upper(): True for title in _counts(found[0])}
        write_table(
            {"NAME": False, **titles},
            [[queue.name, *(f"{number:,}" for number in _counts(queue).values())] for queue in found],
        )
    else:
        say("There is no queue yet. Create one with: kafkabus queue create NAME")


def _counts(queue: QueueRuntimeProperties) -> dict[str, int]:
    return {
        "active": queue.active_message_count,
        "scheduled": queue.scheduled_message_count,
        "dead_letter": queue.dead_letter_message_count + queue.transfer_dead_letter_message_count,
    }


@app.command()
def show(context: typer.Context, name: NameArgument, json: JsonOption = False) -> None:
    """Show a queue's settings; 'kafkabus stats' shows its messages."""
    with explain_missing_entity(context, name), open_administration(context) as administration:
        queue = administration.get_queue(name)
    if json:
        write_json(settings_json(queue))
    else:
        write_fields(settings_text(queue))


@app.command()
def delete(
    context: typer.Context,
    name: NameArgument,
    yes: YesOption = False,
) -> None:
    """Delete a queue, its dead-letter queues and all their messages."""
    with explain_missing_entity(context, name), open_administration(context) as administration:
        if not yes and is_interactive():
            counts = administration.get_queue_runtime_properties(name)
            typer.confirm(f"Delete {counts.name} and its {counts.total_message_count} messages?", abort=True, err=True)
        administration.delete_queue(name)
    write(f"deleted queue {name}")


def _row(queue: QueueProperties) -> list[str]:
    kind = "partitioned" if queue.enable_partitioning else "plain"
    return [queue.name, kind, format_duration(queue.lock_duration), str(queue.max_delivery_count), status_of(queue)]
