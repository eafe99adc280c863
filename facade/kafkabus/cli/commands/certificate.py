"""``kafkabus certificate``."""

from __future__ import annotations

import shlex
import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated

import typer

from kafkabus.cli.exits import CommandError
from kafkabus.cli.options import JsonOption
from kafkabus.cli.terminal import write, write_json

DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")
"""The hosts of a certificate, besides the name of the machine, if none is given."""
DAYS = 397
"""For how many days a certificate is valid, by default; some clients refuse longer ones."""

app = typer.Typer()


@app.command()
def certificate(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for the files; made if there is none.", show_default=False)
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="A host name or address by which clients know the gateway; may be repeated. "
            f"Default {', '.join(DEFAULT_HOSTS)} and the machine's name.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=1, help="Days for which the certificate is valid.")
    ] = DAYS,
    force: Annotated[bool, typer.Option("--force", help="Replace the server's certificate and key.")] = False,
    json: JsonOption = False,
) -> None:
    """Make a certificate for the gateway, signed by a private authority, which is made as well if the folder has none.

    Prints what clients of each language need to trust the authority. Azure's SDKs speak TLS with any endpoint but an emulator.
    """
    try:
        from kafkabus.gateway.certificates import make_certificate
    except ModuleNotFoundError as error:
        raise CommandError(
            f"certificates need {error.name}, which is not installed: pip install 'kafkabus[gateway]'"
        ) from error

    hosts = list(dict.fromkeys(host or [*DEFAULT_HOSTS, socket.gethostname().lower()]))
    now = datetime.now(timezone.utc)
    try:
        files = make_certificate(folder.absolute(), hosts, timedelta(days=days), now, replace=force)
    except FileExistsError as error:
        raise CommandError(
            f"there is a certificate in {folder}: choose another folder, or replace it with --force"
        ) from error
    except OverflowError as error:
        raise CommandError(f"--days {days}: there is no such date; give fewer days") from error
    if json:
        write_json(
            {
                "authority": str(files.authority),
                "authority_key": str(files.authority_key),
                "server": str(files.server),
                "server_key": str(files.server_key),
                "hosts": hosts,
            }
        )
        return
    write(f"certificate  {files.server}")
    write(f"key          {files.server_key}")
    write(f"authority    {files.authority}")
    write(f"hosts        {', '.join(hosts)}")
    write("")
    for line in trust_lines(files.authority):
        write(line)


def trust_lines(authority: Path) -> list[str]:
    """Return the lines that say how clients of each language come to trust an authority."""
    file, trusted = shlex.quote(str(authority)), shlex.quote(str(authority.with_name("trust.p12")))
    imported = f"keytool -importcert -noprompt -alias kafkabus -file {file} -keystore {trusted} -storetype PKCS12"
    return [
        "Clients have to trust the authority:",
        f"  Python      ServiceBusClient.from_connection_string(..., connection_verify={str(authority)!r})",
        f"  JavaScript  NODE_EXTRA_CA_CERTS={file}",
        f"  Go          SSL_CERT_FILE={file}",
        f"  Java        {imported} -storepass changeit",
        f"              java -Djavax.net.ssl.trustStore={trusted} -Djavax.net.ssl.trustStorePassword=changeit ...",
        f"  .NET        sudo cp {file} /usr/local/share/ca-certificates/kafkabus.crt && sudo update-ca-certificates",
    ]
