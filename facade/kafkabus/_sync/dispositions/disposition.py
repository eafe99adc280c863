# Generated from facade/kafkabus/_async/dispositions/disposition.py by tools/generate_blocking.py. Do not edit.
"""What becomes of messages that nobody gets: those delivered too often, and those whose time to live is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkabus._core.entity import Entity
from kafkabus._core.exceptions import MessageLockLostError, ServiceBusError
from kafkabus._core.fetch_plan import runs_of
from kafkabus._core.record import Delivery, Record, any_lives, is_over, part_scheduled
from kafkabus._ledger.operations import Schedule, Settlement
from kafkabus_mapping.codec import Envelope

if TYPE_CHECKING:
    from kafkabus._sync.context import Services
    from kafkabus._sync.receiving.reader import Grant

LOGGER = logging.getLogger("kafkabus")

FAULTY = "FilterEvaluationException"
"""Why messages are dead-lettered of which a subscription's rules make nothing that can be received."""
EXPIRED = ("TTLExpiredException", "its time to live was over before it was received")
"""Reason and description of a message whose time to live was over."""


def delivered_too_often(entity: Entity, count: int) -> tuple[str, str]:
    """Reason and description of a message that was delivered ``count`` times, which is as often as its queue allows."""
    return "MaxDeliveryCountExceeded", f"delivered {count} times, and max_delivery_count is {entity.max_deliveries}"


def over(services: Services, entity: Entity, partition: int, records: Sequence[Record]) -> list[Record]:
    """Those of some records whose time to live is over.

    Args:
        services: The client's connections.
        entity: Theirs.
        partition: Theirs.
        records: They.
    """
    if not entity.expires or not records:
        return []
    now = services.clocks.now_ms(entity, partition)
    return [] if now is None else [record for record in records if is_over(record, entity.life_ms, now)]


def outlives(services: Services, entity: Entity, grant: Grant) -> bool:
    """Whether anything of a grant is left once what is over, or was delivered too often, went where it belongs."""
    delivery = grant.delivery
    brings_lives = entity.expires and any_lives(grant.records)
    if brings_lives:
        services.mark_later(entity, delivery.partition, "mortal")
    if brings_lives or (entity.expires and entity.life_ms is not None):
        expired = over(services, entity, delivery.partition, grant.records)
        if expired:
            expire(services, entity, delivery, expired)
            gone = set(map(id, expired))
            grant.records = [record for record in grant.records if id(record) not in gone]
    if grant.records and delivery.count >= entity.max_deliveries:
        give_up(services, entity, delivery, grant.records, *delivered_too_often(entity, delivery.count))
        return False
    return bool(grant.records)


def expire(services: Services, entity: Entity, delivery: Delivery, records: Sequence[Record]) -> None:
    """Messages whose time to live is over leave their lease: into the dead-letter queue where the entity says so."""
    if entity.keeps_expired:
        give_up(services, entity, delivery, records, *EXPIRED)
    elif delivery.lease:
        settlement = Settlement(entity.ledgers[delivery.partition], "complete", delivery.lease, runs_of(records))
        services.courier.ask(settlement)


def give_up(
    services: Services, entity: Entity, delivery: Delivery, records: Sequence[Record], reason: str, description: str
) -> None:
    """Dead-letter messages unseen; where that fails, it is tried again once their locks have expired."""
    try:
        services.transfers.dead_letter(
            entity, delivery.partition, {delivery.lease: records}, reason=reason, description=description
        )
    except ServiceBusError as error:
        LOGGER.warning("give_up_failed entity=%s partition=%d error=%s", entity.path, delivery.partition, error)


def put_off(services: Services, entity: Entity, partition: int, records: Sequence[Record]) -> list[Record]:
    """Scheduled messages that nobody was granted yet wait for their time, also those of plain producers. Returns the others.

    Args:
        services: The client's connections.
        entity: Theirs.
        partition: Theirs.
        records: What is stored there.
    """
    items, others = part_scheduled(records)
    if items:
        services.mark_later(entity, partition, "schedules")
        services.courier.ask(Schedule(entity.ledgers[partition], items))
    return others


def activate(services: Services, entity: Entity, partition: int) -> None:
    """Scheduled messages whose time has come are enqueued; where that fails, it is tried again by whoever comes next."""
    try:
        end = (services.pool.run(services.topics.ends, entity.topic, [partition]))[partition]
        while services.transfers.activate(entity, partition, end):
            pass
    except ServiceBusError as error:
        LOGGER.warning("activate_failed entity=%s partition=%d error=%s", entity.path, partition, error)


def move(services: Services, entity: Entity, delivery: Delivery, there: int, records: Sequence[Record]) -> None:
    """Messages go into the partition of their entity where they belong; where that fails, it is tried again likewise."""
    LOGGER.info(
        "moved entity=%s from=%d to=%d count=%d: a plain producer stored them elsewhere than in the partition of their key",
        entity.path,
        delivery.partition,
        there,
        len(records),
    )
    try:
        services.transfers.to_partition(entity, delivery.partition, there, {delivery.lease: records})
    except ServiceBusError as error:
        LOGGER.warning("move_failed entity=%s partition=%d error=%s", entity.path, delivery.partition, error)


def as_received(services: Services, entity: Entity, delivery: Delivery, records: Sequence[Record]) -> list[Record]:
    """Records that were granted, as they are received.

    What a subscription's rule could not be said of is dead-lettered; of what several copies are made, these come later.
    """
    chooser = entity.chooser
    if chooser is None or not chooser.may_fail:
        return list(records)
    left: list[Record] = []
    for record in records:
        complaint, copies = chooser.complaint(record), chooser.several(record)
        if complaint is not None:
            give_up(services, entity, delivery, [record], FAULTY, complaint)
        elif copies:
            _replace(services, entity, delivery, record, copies)
        else:
            left.append(record)
    return chooser.granted(left)


def _replace(
    services: Services, entity: Entity, delivery: Delivery, record: Record, copies: Sequence[Envelope]
) -> None:
    """A message goes, and its copies come; where that fails, it is tried again once its lock has expired."""
    from kafkabus._sync.handles.transaction import replace_by_copies

    try:
        replace_by_copies(services, entity, delivery, record, copies)
    except (ServiceBusError, MessageLockLostError) as error:
        LOGGER.warning("copies_failed entity=%s partition=%d error=%s", entity.path, delivery.partition, error)
