"""Brokers are asked about topics: the repeated questions, and for how long."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkabus._core.settings import parse_settings
from kafkabus._kafka.client_factory import open_topics
from kafkabus._kafka.topic_admin import _SILENCE

SETTINGS = parse_settings(
    "Endpoint=sb://nowhere.localhost/;KafkaBootstrapServers=127.0.0.1:1;Redis=redis://127.0.0.1:1/0"
)


@pytest.mark.parametrize(
    "code",
    [KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT],
)
def test_who_says_nothing_is_asked_again(code: int) -> None:
    """The broker is silent, cannot be reached, or was dropped by Kafka's client while it was asked."""
    asked: list[int] = []

    def ask() -> str:
        asked.append(code)
        if len(asked) < 3:
            raise KafkaException(KafkaError(code))
        return "there"

    assert open_topics(SETTINGS)._again(_SILENCE, None, 10.0)(ask) == "there"
    assert len(asked) == 3


def test_a_cluster_without_brokers_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only broker may be left out for a while. No topic is created with that many replicas."""
    topics, answers = open_topics(SETTINGS), [0, 0, 1]

    def list_topics(_topic: str, *, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        return SimpleNamespace(brokers=dict.fromkeys(range(answers.pop(0))))

    monkeypatch.setattr(topics, "_client", SimpleNamespace(list_topics=list_topics))
    topics._contact.made = True
    assert topics.brokers() == 1
    assert answers == []
