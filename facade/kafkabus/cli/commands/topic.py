"""``kafkabus topic``: creating, showing, changing and deleting topics."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkabus.cli.commands.queue import (
    AutoDelete,
    DuplicateWindow,
    MaxSize,
    SettledRetention,
    StatusOption,
    TimeToLive,
    UserMetadata,
)
from kafkabus.cli.connection import explain_missing_entity, open_administration
from kafkabus.cli.options import JsonOption, YesOption
from kafkabus.cli.settings import given_changes, settings_json, settings_text, status_of
from kafkabus.cli.terminal import is_interactive, say, write, write_fields, write_json, write_table

app = typer.Typer(name="topic", no_args_is_help=True, help="Create, list, show, change and delete topics.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
UnmatchedTo = Annotated[
    str | None,
    typer.Option(
        metavar="ENTITY",
        help="Forward messages that no subscription wants to this queue or topic; '' for none.",
        show_default=False,
    ),
]


@app.command()
def create(
    context: typer.Context,
    topic: TopicArgument,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="One partition instead of 16; fixed from now on.")] = False,
    detect_duplicates: Annotated[
        bool,
        typer.Option(
            "--detect-duplicates", help="Deliver only the first of messages with the same id; fixed from now on."
        ),
    ] = False,
    duplicate_window: DuplicateWindow = None,
    max_size_in_megabytes: MaxSize = None,
    time_to_live: TimeToLive = None,
    settled_retention: SettledRetention = None,
    auto_delete_on_idle: AutoDelete = None,
    unmatched_to: UnmatchedTo = None,
    user_metadata: UserMetadata = None,
) -> None:
    """Create a topic, by default with 16 partitions; messages sent before it has a subscription are not delivered."""
    with open_administration(context) as administration:
        premium = administration.get_namespace_properties().partitions is not None
        made = administration.create_topic(
            topic,
            enable_partitioning=None if premium and not plain else not plain,
            requires_duplicate_detection=detect_duplicates,
            duplicate_detection_history_time_window=duplicate_window,
            max_size_in_megabytes=max_size_in_megabytes,
            default_message_time_to_live=time_to_live,
            settled_retention=settled_retention,
            auto_delete_on_idle=auto_delete_on_idle,
            unmatched_to=unmatched_to or None,
            user_metadata=user_metadata,
        )
    write(f"created {'partitioned' if made.enable_partitioning else 'plain'} topic {topic}")


@app.command()
def update(
    context: typer.Context,
    topic: TopicArgument,
    *,
    duplicate_window: DuplicateWindow = None,
    max_size_in_megabytes: MaxSize = None,
    time_to_live: TimeToLive = None,
    settled_retention: SettledRetention = None,
    auto_delete_on_idle: AutoDelete = None,
    unmatched_to: UnmatchedTo = None,
    user_metadata: UserMetadata = None,
    status: StatusOption = None,
) -> None:
    """Change settings of a topic; clients apply them within 5 seconds."""
    given: dict[str, object] = {
        "duplicate_detection_history_time_window": duplicate_window,
        "max_size_in_megabytes": max_size_in_megabytes,
        "default_message_time_to_live": time_to_live,
        "settled_retention": settled_retention,
        "auto_delete_on_idle": auto_delete_on_idle,
        "unmatched_to": unmatched_to,
        "user_metadata": user_metadata,
        "status": status,
    }
    changes = given_changes(given, "topic")
    with explain_missing_entity(context, topic), open_administration(context) as administration:
        administration.update_topic(administration.get_topic(topic), **changes)
    write(f"updated topic {topic}: {', '.join(changes)}")


@app.command("list")
def list_topics(context: typer.Context, json: JsonOption = False) -> None:
    """List the topics of the namespace."""
    with open_administration(context) as administration:
        topics = list(administration.list_topics())
        counts = {topic.name: topic.subscription_count for topic in administration.list_topics_runtime_properties()}
    if json:
        write_json([settings_json(topic) for topic in topics])
    elif topics:
        write_table(
            {"NAME": False, "KIND": False, "SUBSCRIPTIONS": True, "STATUS": False},
            [
                [
                    topic.name,
                    "partitioned" if topic.enable_partitioning else "plain",
                    str(counts.get(topic.name, 0)),
                    status_of(topic),
                ]
                for topic in topics
            ],
        )
    else:
        say("There is no topic yet. Create one with: kafkabus topic create NAME")


@app.command()
def show(context: typer.Context, topic: TopicArgument, json: JsonOption = False) -> None:
    """Show a topic's settings; 'kafkabus stats' shows the messages of its subscriptions."""
    with explain_missing_entity(context, topic), open_administration(context) as administration:
        properties = administration.get_topic(topic)
    if json:
        write_json(settings_json(properties))
    else:
        write_fields(settings_text(properties))


@app.command()
def delete(context: typer.Context, topic: TopicArgument, yes: YesOption = False) -> None:
    """Delete a topic, its subscriptions and all their messages."""
    with explain_missing_entity(context, topic), open_administration(context) as administration:
        if not yes and is_interactive():
            count = administration.get_topic_runtime_properties(topic).subscription_count
            typer.confirm(f"Delete {topic} and its {count} subscriptions?", abort=True, err=True)
        administration.delete_topic(topic)
    write(f"deleted topic {topic}")
