"""The look at a namespace that ``kafkabus doctor`` takes: facts that are gathered, and checks that judge them."""

from kafkabus.doctor.check import Check as Check
from kafkabus.doctor.check import judge as judge
from kafkabus.doctor.facts import Facts as Facts
from kafkabus.doctor.findings import Finding as Finding
from kafkabus.doctor.findings import State as State
from kafkabus.doctor.gathering import gather as gather
from kafkabus.doctor.kafka_checks import KAFKA_CHECKS
from kafkabus.doctor.namespace_checks import NAMESPACE_CHECKS
from kafkabus.doctor.redis_checks import REDIS_CHECKS
from kafkabus.doctor.steps import LookLimits as LookLimits

CHECKS = (*KAFKA_CHECKS, *REDIS_CHECKS, *NAMESPACE_CHECKS)
"""All checks, in the order of the report."""
