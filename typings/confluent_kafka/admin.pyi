# confluent_kafka types its futures' results as unknown and exports imported names implicitly.
# This is the part of its admin module that kafkabus calls, and tests and benchmarks with it.
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Node,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin._acl import AclBinding as AclBinding
from confluent_kafka.admin._acl import AclBindingFilter as AclBindingFilter
from confluent_kafka.admin._acl import AclOperation as AclOperation
from confluent_kafka.admin._acl import AclPermissionType as AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType as AlterConfigOpType
from confluent_kafka.admin._config import ConfigEntry as ConfigEntry
from confluent_kafka.admin._config import ConfigResource as ConfigResource
from confluent_kafka.admin._metadata import BrokerMetadata as BrokerMetadata
from confluent_kafka.admin._metadata import ClusterMetadata as ClusterMetadata
from confluent_kafka.admin._metadata import PartitionMetadata as PartitionMetadata
from confluent_kafka.admin._metadata import TopicMetadata as TopicMetadata
from confluent_kafka.admin._resource import ResourcePatternType as ResourcePatternType
from confluent_kafka.admin._resource import ResourceType as ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo as ScramCredentialInfo
from confluent_kafka.admin._scram import ScramMechanism as ScramMechanism
from confluent_kafka.admin._scram import UserScramCredentialUpsertion as UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions as NewPartitions
from confluent_kafka.cimpl import NewTopic as NewTopic

__all__ = ["AdminClient", "KafkaError", "KafkaException"]

class OffsetSpec:
    @classmethod
    def earliest(cls) -> OffsetSpec: ...
    @classmethod
    def latest(cls) -> OffsetSpec: ...
    @classmethod
    def max_timestamp(cls) -> OffsetSpec: ...
    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec: ...

class ListOffsetsResultInfo:
    offset: int
    timestamp: int
    leader_epoch: int | None

class DeletedRecords:
    low_watermark: int

class TopicPartitionInfo:
    id: int
    leader: Node | None
    replicas: list[Node]
    isr: list[Node]

class TopicDescription:
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    authorized_operations: list[AclOperation] | None

class DescribeClusterResult:
    cluster_id: str | None
    controller: Node | None
    nodes: list[Node]

class AdminClient:
    def __init__(
        self,
        conf: Mapping[str, str | int | float | bool | Callable[..., object]],
        *,
        logger: object = ...,
    ) -> None: ...
    def poll(self, timeout: float = ...) -> int: ...
    def list_topics(self, topic: str | None = None, timeout: float = ...) -> ClusterMetadata: ...
    def create_topics(
        self,
        new_topics: Sequence[NewTopic],
        *,
        operation_timeout: float = ...,
        request_timeout: float = ...,
        validate_only: bool = ...,
    ) -> dict[str, Future[None]]: ...
    def create_acls(self, acls: Sequence[AclBinding]) -> dict[AclBinding, Future[None]]: ...
    def alter_user_scram_credentials(
        self, alterations: Sequence[UserScramCredentialUpsertion]
    ) -> dict[str, Future[None]]: ...
    def describe_acls(self, acl_binding_filter: AclBindingFilter) -> Future[list[AclBinding]]: ...
    def delete_topics(
        self, topics: Sequence[str], *, operation_timeout: float = ..., request_timeout: float = ...
    ) -> dict[str, Future[None]]: ...
    def create_partitions(
        self,
        new_partitions: Sequence[NewPartitions],
        *,
        operation_timeout: float = ...,
        request_timeout: float = ...,
    ) -> dict[str, Future[None]]: ...
    def describe_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float = ...
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]: ...
    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, request_timeout: float = ..., validate_only: bool = ...
    ) -> dict[ConfigResource, Future[None]]: ...
    def describe_topics(
        self, topics: TopicCollection, *, include_authorized_operations: bool = ..., request_timeout: float = ...
    ) -> dict[str, Future[TopicDescription]]: ...
    def describe_cluster(self, *, request_timeout: float = ...) -> Future[DescribeClusterResult]: ...
    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = ...,
        request_timeout: float = ...,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]: ...
    def delete_records(
        self,
        topic_partition_offsets: Sequence[TopicPartition],
        *,
        operation_timeout: float = ...,
        request_timeout: float = ...,
    ) -> dict[TopicPartition, Future[DeletedRecords]]: ...
