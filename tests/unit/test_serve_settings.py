"""The settings of ``kafkabus serve``: their sources, their order, and errors in them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from kafkabus.cli.exits import CommandError
from kafkabus.cli.gateway_settings import GatewayOptions
from kafkabus.cli.serve_settings import MOST_ENTITIES, ServeSettings
from kafkabus.cli.setting_sources import HttpAddress, read_settings, settings_of


def test_an_option_overrides_a_variable_and_a_variable_the_file(tmp_path: Path) -> None:
    """A setting that none of them gives has its default."""
    file = tmp_path / "serve.toml"
    file.write_text('log-format = "json"\nlog-level = "error"\nhttp = "127.0.0.1:1"\n')
    settings = read_settings(
        ServeSettings,
        {"http": "[::1]:9464", "log_level": None},
        {"KAFKABUS_LOG_LEVEL": "DEBUG", "KAFKABUS_HTTP": ":2"},
        file,
    )
    assert (settings.log_format, settings.log_level, settings.http) == ("json", "debug", HttpAddress("::1", 9464))
    assert (settings.metrics_entities.most, settings.metrics_entities.pattern) == (MOST_ENTITIES, None)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    """An empty variable counts as not set."""
    file = tmp_path / "serve.toml"
    file.write_text('metrics-entities = 5\nconnection-string-file = "/run/secrets/kafkabus"\n')
    settings = read_settings(ServeSettings, {}, {"KAFKABUS_CONFIG": str(file), "KAFKABUS_METRICS_ENTITIES": ""})
    assert settings.metrics_entities.most == 5
    assert settings.connection["connection-string-file"] == (f"{file}: connection-string-file", "/run/secrets/kafkabus")


@pytest.mark.parametrize(
    ("options", "environment", "text", "told"),
    [
        ({"log_format": "xml"}, {}, "", "--log-format='xml': choose from text, json"),
        ({}, {"KAFKABUS_LOG_LEVEL": "loud"}, "", "KAFKABUS_LOG_LEVEL='loud': choose from debug, info, warning, error"),
        ({}, {}, 'http = "9464"', "serve.toml: http='9464': write HOST:PORT, for example 0.0.0.0:9464"),
        ({"http": "here:70000"}, {}, "", "--http='here:70000': write HOST:PORT"),
        ({"metrics_entities": "orders["}, {}, "", "--metrics-entities='orders[': write a number of entities, none, or"),
        ({}, {}, 'log-fromat = "json"', "log-fromat: there is no such setting; did you mean log-format?"),
        ({}, {}, "http = true", "http: a setting is a text in quotes or a number"),
        ({}, {}, "log-format: json", "no TOML"),
        ({}, {"KAFKABUS_LOG_FROMAT": "json"}, "", "KAFKABUS_LOG_FROMAT: there is no such variable; did you mean"),
    ],
)
def test_an_error_names_value_rule_and_remedy(
    tmp_path: Path, options: dict[str, str | None], environment: dict[str, str], text: str, told: str
) -> None:
    """It also names the option, the variable or the file that gives the value."""
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(CommandError) as caught:
        read_settings(ServeSettings, options, environment, file)
    assert told in str(caught.value)


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes sets such ones for a service named kafkabus."""
    settings = read_settings(
        ServeSettings, {}, {"KAFKABUS_PORT": "tcp://10.0.0.1:9464", "KAFKABUS_SERVICE_HOST": "10.0.0.1"}
    )
    assert settings.http is None


def test_settings_do_not_show_the_connection_string(tmp_path: Path) -> None:
    """Logs and tracebacks show settings."""
    file = tmp_path / "serve.toml"
    file.write_text('connection-string = "Endpoint=sb://n;SharedAccessKey=hidden"\n')
    settings = read_settings(ServeSettings, {}, {}, file)
    assert settings.connection["connection-string"][1].endswith("hidden")
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize("kind", [ServeSettings, GatewayOptions])
def test_each_setting_has_an_option_and_a_variable_of_its_own(kind: type) -> None:
    """Two fields with one variable would get the same value."""
    settings = settings_of(kind)
    assert [*settings] == [field.name for field in fields(kind) if field.name != "connection"]
    assert len({setting.variable for setting in settings.values()}) == len(settings)
    assert all(setting.variable.startswith("KAFKABUS_") for setting in settings.values())
