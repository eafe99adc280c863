"""``kafkabus up``, ``down`` and ``status``: a namespace on this machine."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from kafkabus.cli.exits import CommandError, ExitCode
from kafkabus.cli.terminal import activity, flush, say, write, write_json
from kafkabus.cli.terms import describe_error
from kafkabus_mapping.connection import CONNECTION_STRING_VARIABLE

if TYPE_CHECKING:
    from kafkabus.embedded import Exposure, RunningNamespace
    from kafkabus.embedded.gateway import GatewayPorts
    from kafkabus.management.namespace_file import NamespaceFile

app = typer.Typer()

_LOOK_EVERY_S = 0.5
_READY_FILE = "ready"
"""File in the data folder that is there while a namespace in the foreground has all that its start was to create."""

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Folder of the namespace's data; default a folder of the user.", file_okay=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write one JSON object.")]


class _Wish(NamedTuple):
    """The namespace as it is to be.

    Attributes:
        brokers: The number of brokers.
        name: Its name.
        exposure: The listeners for clients elsewhere.
        gateway: The ports of the gateway; None: there is none.
        tier: The tier; None: as it is.
        partitions: The number of partitions of a Premium namespace's queues; None: as it is.
        entities: Its entities; None: as they are.
    """

    brokers: int
    name: str
    exposure: Exposure
    gateway: GatewayPorts | None
    tier: str | None
    partitions: int | None
    entities: NamespaceFile | None


@app.command()
def up(
    data: DataOption = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", "-d", help="Run in the background until 'kafkabus down', and return once it is ready."
        ),
    ] = False,
    brokers: Annotated[int, typer.Option(min=1, help="Number of Kafka brokers; fixed at the first start.")] = 1,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Name of the namespace.")] = "kafkabus",
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="TIER",
            help="Basic, Standard (the default) or Premium; fixed at the first start.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Partitions of every queue of a Premium namespace; fixed at the first start.",
            show_default=False,
        ),
    ] = None,
    listener: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PORT=HOST[:PORT]",
            help="Let clients elsewhere use Kafka: the port to listen on, and the address that they connect to. The "
            "connection string is that of the first one; --json shows all. May be repeated.",
            envvar="KAFKABUS_LISTENER",
            show_default=False,
        ),
    ] = None,
    redis_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Port of Redis for clients elsewhere; see --listener.",
            envvar="KAFKABUS_REDIS_PORT",
            show_default=False,
        ),
    ] = None,
    amqp_port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="Port of the gateway for Azure's SDKs; default 5672, or any free one; 'off': no gateway.",
            envvar="KAFKABUS_AMQP_PORT",
            show_default=False,
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_535,
            help="Port of the gateway's administration; default 5300, or any free one.",
            envvar="KAFKABUS_HTTP_PORT",
            show_default=False,
        ),
    ] = None,
    policies: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Have the gateway check clients' keys against the policies in this file; by default, any key will do.",
            envvar="KAFKABUS_POLICIES",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Create the entities in this file; see 'kafkabus namespace apply'.",
            envvar="KAFKABUS_ENTITIES",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a namespace on this machine: a Kafka and a Redis, with nothing to install.

    Prints its connection string. Its messages survive a restart.
    """
    with _convert_runtime_errors():
        from kafkabus.embedded import Exposure
        from kafkabus.embedded import up as start

        folder, exposure = _folder(data), Exposure.parse(listener or (), redis_port)
        gateway = _gateway(amqp_port, http_port, policies)
        wish = _Wish(brokers, namespace, exposure, gateway, tier, partitions, _read_entities(entities))
        if not detach:
            _run_attached(folder, wish, json)
        with activity() as tell:
            running = start(
                folder, brokers=brokers, namespace=namespace, exposure=exposure, gateway=gateway, on_progress=tell
            )
    _create_wished(running.connection_string, wish)
    steps = _next_steps(folder, running, f"kafkabus down{_data_words(data)}")
    _announce(running, json)
    _say_steps(running, steps)


@app.command()
def down(data: DataOption = None) -> None:
    """Stop the namespace that 'kafkabus up' runs; its data stays."""
    with _convert_runtime_errors():
        from kafkabus.embedded import down as stop

        folder = _folder(data)
        with activity() as tell:
            if _is_running(folder):
                tell("stopping Kafka and Redis ...")
            stopped = stop(folder)
    say(f"Stopped. The data stays in {folder}." if stopped else f"Nothing ran on {folder}.")


@app.command()
def status(data: DataOption = None, json: JsonOption = False) -> None:
    """Show the connection string of the namespace that 'kafkabus up' runs. If none runs, the exit status is 3."""
    with _convert_runtime_errors():
        from kafkabus.embedded import status as find

        folder = _folder(data)
        running = find(folder)
    if running is None:
        say(f"Nothing runs on {folder}. Start it with: kafkabus up --detach{_data_words(data)}")
        raise typer.Exit(ExitCode.NOTHING)
    _announce(running, json)
    _say_failing(running, set())


def _gateway(amqp_port: str | None, http_port: int | None, policies: Path | None) -> GatewayPorts | None:
    """Return the ports of the gateway; None if it is off, or not installed and not asked for.

    Raises:
        CommandError: The port is none, the policies are malformed, or the gateway is asked for and off, or not installed.
    """
    from kafkabus.embedded.gateway import GatewayPorts, is_installed

    if amqp_port == "off":
        if policies is not None:
            raise CommandError(
                f"--policies={policies} with --amqp-port=off: there is no gateway to check keys; leave one of them out",
                ExitCode.USAGE,
            )
        return None
    if amqp_port is not None and not (amqp_port.isdigit() and 1 <= int(amqp_port) <= 65_535):
        raise CommandError(f"--amqp-port={amqp_port!r}: write a port, 1 to 65535, or off", ExitCode.USAGE)
    if not is_installed():
        if amqp_port is None and http_port is None and policies is None:
            return None
        raise CommandError("the gateway is not installed: pip install 'kafkabus[gateway]'")
    if policies is not None:
        from kafkabus.gateway.sas_tokens import Policies

        Policies.load(policies)
    # The gateway's working folder is another one.
    file = None if policies is None else policies.absolute()
    return GatewayPorts(None if amqp_port is None else int(amqp_port), http_port, file)


def _read_entities(file: Path | None) -> NamespaceFile | None:
    if file is None:
        return None
    from kafkabus.management.namespace_file import NamespaceFile

    return NamespaceFile.read(file)


def _create_wished(connection_string: str, wish: _Wish) -> None:
    """Create the namespace with the given tier and partitions, or raise if it exists with others; create its entities."""
    if wish.tier is None and wish.partitions is None and wish.entities is None:
        return
    from kafkabus.management import ServiceBusAdministrationClient

    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        if wish.tier is not None or wish.partitions is not None:
            tier = wish.tier or ("Standard" if wish.partitions is None else "Premium")
            administration.create_namespace(tier, wish.partitions)
        if wish.entities is not None:
            wish.entities.apply(administration)


def _run_attached(folder: Path, wish: _Wish, json: bool) -> NoReturn:
    """Run a namespace until Ctrl-C, a termination, or ``kafkabus down``."""
    from kafkabus.embedded import status as find

    running = find(folder)
    if running is not None:
        raise CommandError(
            f"a namespace runs on {folder} already (process {running.pid}): 'kafkabus status' shows its connection "
            "string, 'kafkabus down' stops it"
        )
    with _runtime(folder, wish):
        running = find(folder)
        if running is not None:
            _create_wished(running.connection_string, wish)
            # Determined first, because a program that reads the connection string may stop the namespace at once.
            steps = _next_steps(folder, running, "Ctrl-C")
            (folder / _READY_FILE).touch()
            _announce(running, json)
            _say_steps(running, steps)
            told: set[str] = set()
            while (now := find(folder)) is not None and now.pid == running.pid:
                _say_failing(now, told)
                time.sleep(_LOOK_EVERY_S)
    say("Stopped by another command.")
    raise typer.Exit


@contextlib.contextmanager
def _runtime(folder: Path, wish: _Wish) -> Generator[None, None, None]:
    """Run a namespace until the block ends, and report that it stopped."""
    from kafkabus.embedded import EmbeddedRuntime

    with activity() as tell:
        runtime = EmbeddedRuntime(
            folder,
            brokers=wish.brokers,
            namespace=wish.name,
            exposure=wish.exposure,
            gateway=wish.gateway,
            on_progress=tell,
        )
        runtime.start()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say("\nStopping Kafka and Redis ...")
        runtime.stop()
        say(f"Stopped. The data stays in {folder}.")
        raise
    finally:
        (folder / _READY_FILE).unlink(missing_ok=True)
        runtime.stop()


@contextlib.contextmanager
def _convert_runtime_errors() -> Generator[None, None, None]:
    """Turn errors of the embedded runtime into a CommandError."""
    try:
        from kafkabus.embedded.errors import EmbeddedRuntimeError
    except ModuleNotFoundError as error:
        raise CommandError(str(error)) from error
    try:
        yield
    except EmbeddedRuntimeError as error:
        raise CommandError(describe_error(error)) from error


def _is_running(folder: Path) -> bool:
    from kafkabus.embedded import status as find

    return find(folder) is not None


def _folder(data: Path | None) -> Path:
    from kafkabus.embedded import default_data_folder

    return default_data_folder() if data is None else data.absolute()


def _announce(running: RunningNamespace, json: bool) -> None:
    if json:
        write_json(
            {
                "connection_string": running.connection_string,
                "bootstrap_servers": running.bootstrap_servers,
                "redis_url": running.redis_url,
                "pid": running.pid,
                "brokers": running.brokers,
                "data": str(running.data),
                "elsewhere": list(running.elsewhere),
                "amqp_connection_string": running.amqp or None,
            }
        )
    else:
        # It serves on this machine as well.
        write(next(iter(running.elsewhere), running.connection_string))
    flush()


def _say_steps(running: RunningNamespace, steps: str) -> None:
    """Print what to do next, and which addresses are open to all who reach them."""
    say(steps)
    if running.unchecked:
        from kafkabus.gateway.announcement import warning

        say(warning(running.unchecked, "--policies has the gateway check keys, and Kafka needs a firewall"))


def _say_failing(running: RunningNamespace, told: set[str]) -> None:
    """Print which servers end again and again, if they were not printed before."""
    for name, words in running.failing.items():
        if name not in told:
            log = running.data / "logs" / f"{name}.out"
            say(
                f"{name} ends again and again, and is started again each time: {words or 'it says nothing'} (see {log})"
            )
    told.clear()
    told.update(running.failing)


def _next_steps(folder: Path, running: RunningNamespace, stop: str) -> str:
    """Return the commands to type next; other commands find the namespace themselves only in the default folder."""
    from kafkabus.embedded import default_data_folder

    tries = ["kafkabus queue create orders", "kafkabus send orders hello", "kafkabus receive orders"]
    if _queues(running.connection_string):
        tries = ["kafkabus queue list"]
    lines = [f"\nThe namespace runs (process {running.pid}); its data is in {folder}.", "Stop it with:   " + stop]
    label = "Try it with:    "
    if folder != default_data_folder():
        lines.append(f"Use it with:    export {CONNECTION_STRING_VARIABLE}=$(kafkabus status{_data_words(folder)})")
        label = " " * len(label)
    lines += [label + tries[0], *(" " * len(label) + attempt for attempt in tries[1:])]
    if running.amqp:
        lines += ["Applications with Azure's SDKs connect to its gateway with:", running.amqp]
    return "\n".join(lines)


def _queues(connection_string: str) -> bool:
    """Return whether the namespace already has queues."""
    from kafkabus.management import ServiceBusAdministrationClient

    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        return next(iter(administration.list_queues()), None) is not None


def _data_words(data: Path | None) -> str:
    return "" if data is None else f" --data {shlex.quote(str(data))}"
