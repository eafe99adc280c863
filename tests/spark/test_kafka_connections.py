"""Spark against a Kafka that authenticates its clients: by a password, by certificates, by tokens; with TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from pyspark.sql import SparkSession

import kafkabus_spark
from kafkabus.embedded import RunningNamespace
from kafkabus.management import ServiceBusAdministrationClient
from kafkabus_mapping.connection import format_connection_string, parse_parts
from tests.kafka_server import PASSWORD, USER, Guarded, serving_a_user
from tests.spark.marks import SPARK

pytestmark = SPARK

KEY_PASSWORD = "open sesame"
TOKENS = {
    # Kafka's own maker of tokens without signatures, which is there for tests.
    "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    f'unsecuredLoginStringClaim_sub="{USER}";'
}


@pytest.fixture(scope="module")
def kafka(runtime: RunningNamespace) -> Iterator[Guarded]:
    """A Kafka whose user may do everything; it takes some seconds to start, once for this module."""
    assert runtime.bootstrap_servers
    with serving_a_user() as kafka:
        yield kafka


def pkcs12(kafka: Guarded, folder: Path) -> dict[str, str]:
    """Return the options for a certificate of the user whose key has a password, in a file of Java's standard format."""
    own = kafka.authority.certify(USER)
    key = load_pem_private_key(own.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(own.certificate.read_bytes())
    file = folder / "user.p12"
    locked = BestAvailableEncryption(KEY_PASSWORD.encode())
    file.write_bytes(serialize_key_and_certificates(USER.encode(), key, certificate, None, locked))
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(file),
        "ssl.keystore.password": KEY_PASSWORD,
    }


def parts_of(kafka: Guarded, door: str) -> dict[str, str]:
    """Return the parts of a connection string by which a client comes through a door of the broker."""
    tls = {"KafkaSslCaLocation": str(kafka.authority.file)}
    if door == "PKCS#12":
        return tls | {"KafkaBootstrapServers": kafka.mutual, "KafkaSecurityProtocol": "SSL"}
    if door in {"certificate", "locked key"}:
        own = kafka.authority.certify(USER, KEY_PASSWORD if door == "locked key" else None)
        return (
            tls
            | {
                "KafkaBootstrapServers": kafka.mutual,
                "KafkaSecurityProtocol": "SSL",
                "KafkaSslCertificateLocation": str(own.certificate),
                "KafkaSslKeyLocation": str(own.key),
            }
            | ({"KafkaSslKeyPassword": KEY_PASSWORD} if door == "locked key" else {})
        )
    sasl = tls | {"KafkaBootstrapServers": kafka.tls, "KafkaSecurityProtocol": "SASL_SSL"}
    if door == "tokens":
        return sasl | {"KafkaSaslMechanism": "OAUTHBEARER"}
    return sasl | {"KafkaSaslMechanism": door, "KafkaSaslUsername": USER, "KafkaSaslPassword": PASSWORD}


@pytest.mark.parametrize(
    "door", ["SCRAM-SHA-512", "certificate", pytest.param("PKCS#12", marks=pytest.mark.extended), "tokens"]
)
def test_messages_are_written_and_read(
    spark: SparkSession, untended: str, kafka: Guarded, tmp_path: Path, door: str
) -> None:
    """Also the description of the entity is read through the same door."""
    open_door = parse_parts(untended) | {"KafkaBootstrapServers": kafka.open}
    with ServiceBusAdministrationClient.from_connection_string(format_connection_string(open_door)) as administration:
        administration.create_queue("orders")
    connection = format_connection_string(open_door | parts_of(kafka, door))
    options = {"tokens": TOKENS, "PKCS#12": pkcs12(kafka, tmp_path)}.get(door)
    messages = spark.createDataFrame([("one", "1"), ("two", "2")], "body string, message_id string")
    kafkabus_spark.write(messages, connection, "orders", kafka_options=options)
    rows = kafkabus_spark.read(spark, connection, "orders", kafka_options=options).collect()
    assert sorted((bytes(row["body"]), row["message_id"]) for row in rows) == [(b"one", "1"), (b"two", "2")]


def test_a_key_that_java_cannot_read_is_told(spark: SparkSession, untended: str, kafka: Guarded) -> None:
    """Java 17 does not know how OpenSSL, and librdkafka with it, encrypts a key with a password."""
    connection = format_connection_string(parse_parts(untended) | parts_of(kafka, "locked key"))
    with pytest.raises(
        kafkabus_spark.NamespaceUnreachableError, match=r"PBES2.*give a key without a password"
    ) as caught:
        kafkabus_spark.read(spark, connection, "orders")
    assert KEY_PASSWORD not in str(caught.value)
