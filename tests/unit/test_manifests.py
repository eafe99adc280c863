"""The manifests in ``docker``: Kubernetes understands them, and what one names is in another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import kubernetes_validate
import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from kafkabus._core.settings import parse_settings
from kafkabus.upkeep.metrics import ENTITY_METRICS
from kafkabus_mapping.connection import BOOTSTRAP_SERVERS_VARIABLE

DOCKER = Path(__file__).resolve().parents[2] / "docker"
FOLDER = DOCKER / "kubernetes"
KUBERNETES = ("1.30", "1.37")
"""The oldest version of Kubernetes that the manifests are for, and the newest one whose schemas there are."""
OF_KUBERNETES = (
    "configmap.yaml",
    "deployment.yaml",
    "poddisruptionbudget.yaml",
    "secret.example.yaml",
    "service.yaml",
)
APPLIED_BY_HAND = {"kustomization.yaml", "scaledobject.example.yaml", "secret.example.yaml", "servicemonitor.yaml"}
"""Files that are no resources of the kustomization."""


def read(path: Path) -> Any:
    """Return the only document of a file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


DEPLOYMENT = read(FOLDER / "deployment.yaml")
SERVICE = read(FOLDER / "service.yaml")
BUDGET = read(FOLDER / "poddisruptionbudget.yaml")
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class LabelSelector(_Part):
    """Labels that a Service must have."""

    match_labels: dict[str, str] = Field(min_length=1)


class Endpoint(_Part):
    """Metrics that Prometheus fetches: the name of a Service's port, the path, and how often."""

    port: str
    path: str
    interval: str = Field(pattern=r"^\d+(ms|s|m|h)$")


class MonitorSpec(_Part):
    """The fields of a ServiceMonitor's specification that are used here."""

    selector: LabelSelector
    endpoints: list[Endpoint] = Field(min_length=1)


class Metadata(_Part):
    """The fields of an object's metadata that are used here."""

    name: str
    labels: dict[str, str]


class ServiceMonitor(_Part):
    """The fields of the Prometheus Operator's ServiceMonitor that are used here. Others are errors.

    Source: https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.ServiceMonitor.
    """

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["ServiceMonitor"]
    metadata: Metadata
    spec: MonitorSpec


class PrometheusQuery(_Part):
    """The fields of KEDA's Prometheus scaler that are used here; values are texts."""

    server_address: str
    query: str
    threshold: str = Field(pattern=r"^\d+$")
    activation_threshold: str = Field(pattern=r"^\d+$")


class Trigger(_Part):
    """A scaler of KEDA's, with its settings."""

    type: Literal["prometheus"]
    metadata: PrometheusQuery


class ScaleTarget(_Part):
    """The Deployment that is scaled."""

    name: str


class ScaledObjectSpec(_Part):
    """The fields of a ScaledObject's specification that are used here."""

    scale_target_ref: ScaleTarget
    polling_interval: int
    cooldown_period: int
    min_replica_count: int
    max_replica_count: int
    triggers: list[Trigger] = Field(min_length=1)


class NamedObject(_Part):
    """Metadata that are a name alone."""

    name: str


class ScaledObject(_Part):
    """The fields of KEDA's ScaledObject that are used here. Others are errors.

    Source: https://keda.sh/docs/latest/reference/scaledobject-spec/ and https://keda.sh/docs/latest/scalers/prometheus/.
    """

    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    metadata: NamedObject
    spec: ScaledObjectSpec


MONITOR = ServiceMonitor.model_validate(read(FOLDER / "servicemonitor.yaml"))


def chooses(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Return whether a selector chooses what has these labels; one without labels would choose everything."""
    return bool(selector) and selector.items() <= labels.items()


def secret_files() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each mounted Secret, the key, and the path of the file that has its value."""
    mounts = {mount["name"]: PurePosixPath(mount["mountPath"]) for mount in CONTAINER["volumeMounts"]}
    for volume in POD["spec"]["volumes"]:
        for item in volume["secret"]["items"]:
            yield volume["secret"]["secretName"], item["key"], str(mounts[volume["name"]] / item["path"])


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", OF_KUBERNETES)
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    """A misspelt field is an error, too."""
    document = read(FOLDER / name)
    kubernetes_validate.validate(document, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError, match="metadatas"):
        kubernetes_validate.validate({**document, "metadatas": {}}, version, strict=True)


def test_every_manifest_is_a_resource_or_is_applied_by_hand() -> None:
    """The example of a Secret must not replace the Secret."""
    resources = read(FOLDER / "kustomization.yaml")["resources"]
    assert {path.name for path in FOLDER.iterdir()} == {*resources, *APPLIED_BY_HAND}
    assert not APPLIED_BY_HAND & {*resources}
    assert {path.name for path in FOLDER.iterdir()} == {*OF_KUBERNETES, *APPLIED_BY_HAND}


def test_selectors_choose_the_pods_and_the_service() -> None:
    """A label that one of the manifests lacks would leave the pods without an address, a budget or metrics."""
    labels = POD["metadata"]["labels"]
    assert chooses(DEPLOYMENT["spec"]["selector"]["matchLabels"], labels)
    assert chooses(SERVICE["spec"]["selector"], labels)
    assert chooses(BUDGET["spec"]["selector"]["matchLabels"], labels)
    spread = POD["spec"]["topologySpreadConstraints"]
    assert spread
    assert all(chooses(one["labelSelector"]["matchLabels"], labels) for one in spread)
    assert chooses(MONITOR.spec.selector.match_labels, SERVICE["metadata"]["labels"])


def test_ports_are_the_one_that_is_served() -> None:
    """The option's port is the container's, which probes and the Service name, whose port Prometheus names."""
    host, port = CONTAINER["args"][CONTAINER["args"].index("--http") + 1].split(":")
    assert host == "0.0.0.0"  # noqa: S104 - kubelet and Prometheus are elsewhere
    assert {"http": int(port)} == PORTS
    probes = {name: one["httpGet"] for name, one in CONTAINER.items() if name.endswith("Probe")}
    assert {name: one["path"] for name, one in probes.items()} == {
        "startupProbe": "/livez",
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    assert all(one["port"] in PORTS for one in probes.values())
    assert all(one["targetPort"] in PORTS for one in SERVICE["spec"]["ports"])
    served = {one["name"] for one in SERVICE["spec"]["ports"]}
    assert [(one.port in served, one.path) for one in MONITOR.spec.endpoints] == [(True, "/metrics")]


def test_the_budget_leaves_an_instance_and_lets_nodes_be_drained() -> None:
    replicas, left = DEPLOYMENT["spec"]["replicas"], BUDGET["spec"]["minAvailable"]
    assert 1 <= left < replicas


def test_keys_that_are_referred_to_exist() -> None:
    """Each key is in the ConfigMap or in the example of the Secret, and each variable that names a file names a mounted one."""
    config, secret = read(FOLDER / "configmap.yaml"), read(FOLDER / "secret.example.yaml")
    for variable in CONTAINER["env"]:
        reference = variable.get("valueFrom", {}).get("configMapKeyRef")
        if reference is not None:
            assert reference["name"] == config["metadata"]["name"]
            assert reference["key"] in config["data"]
    mounted = list(secret_files())
    assert [(name, key in secret["stringData"]) for name, key, _ in mounted] == [(secret["metadata"]["name"], True)]
    named = [one["value"] for one in CONTAINER["env"] if one["name"].endswith("_FILE")]
    assert named == [path for _, _, path in mounted]


def test_the_example_of_a_connection_string_is_one() -> None:
    """With the variables that the ConfigMap sets, it names all servers."""
    config, secret = read(FOLDER / "configmap.yaml"), read(FOLDER / "secret.example.yaml")
    variables = {
        one["name"]: config["data"][one["valueFrom"]["configMapKeyRef"]["key"]]
        for one in CONTAINER["env"]
        if "valueFrom" in one
    }
    settings = parse_settings(secret["stringData"]["connection-string"], variables)
    assert settings.bootstrap_servers == variables[BOOTSTRAP_SERVERS_VARIABLE]


def test_the_container_has_no_rights_and_bounded_memory() -> None:
    """A namespace that enforces the standard "restricted" admits the pod. The user is that of the image."""
    pod, rights = POD["spec"]["securityContext"], CONTAINER["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert f"useradd --uid {pod['runAsUser']} " in (DOCKER / "Dockerfile").read_text()
    assert {"cpu", "memory"} <= CONTAINER["resources"]["requests"].keys()
    assert "memory" in CONTAINER["resources"]["limits"]
    assert POD["spec"]["automountServiceAccountToken"] is False


def test_the_image_is_of_the_last_release() -> None:
    """The tag ``latest`` would be another image after each push."""
    name, _, tag = CONTAINER["image"].partition(":")
    releases = re.findall(r"^## \[(\d.*?)\]", (DOCKER.parent / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert tag == releases[0]
    assert [(one["name"], one["newTag"]) for one in read(FOLDER / "kustomization.yaml")["images"]] == [(name, tag)]


def test_compose_files_name_services_and_images_that_exist() -> None:
    """A service is built or has an image with a tag, and depends on services of its file."""
    for path in DOCKER.glob("*compose*.yaml"):
        services = read(path)["services"]
        for name, service in services.items():
            assert "build" in service or re.search(r":(?!latest$)[\w.${}:-]+$", service["image"]), (path, name)
            assert {*service.get("depends_on", ())} <= services.keys(), (path, name)


def test_sessions_are_scaled_by_metrics_that_there_are() -> None:
    """A query for a metric that is not there would keep all receivers stopped."""
    scaled = ScaledObject.model_validate(read(FOLDER / "scaledobject.example.yaml"))
    (trigger,) = scaled.spec.triggers
    named = set(re.findall(r"kafkabus_\w+", trigger.metadata.query))
    assert named == {"kafkabus_available_sessions", "kafkabus_locked_sessions"}
    assert named <= {metric.name for metric in ENTITY_METRICS}
    with pytest.raises(ValidationError, match="pollInterval"):
        ScaledObjectSpec.model_validate({**read(FOLDER / "scaledobject.example.yaml")["spec"], "pollInterval": 1})
