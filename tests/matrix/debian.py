"""Servers from Debian's packages, of any suite that the machine's mirror has, installed nowhere.

apt downloads a package and all that it depends on, the C library included, into a folder; dpkg-deb unpacks them there. The
server is run by that folder's own dynamic loader, so that it works beside an older or newer C library of the machine.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.matrix.cache import cached
from tests.matrix.errors import NotToBeHadError

_PATIENCE_S = 600.0


class DebianServer(NamedTuple):
    """A server that a suite of Debian has.

    Attributes:
        suite: The suite's name, such as ``trixie``.
        package: The package's name.
        program: The server's path in the package.
    """

    suite: str
    package: str
    program: str

    def provide(self) -> Path:
        """Return a folder with a program ``redis-server`` that runs the server; download it if it is missing.

        Raises:
            NotToBeHadError: The machine has no apt, or its mirror has no such package.
        """
        home = cached(f"{self.suite}-{self.package}", self._fill)
        return _launcher(home, self.program)

    def _fill(self, folder: Path) -> None:
        apt = folder / "apt"
        for package in _download(self.package, self.suite, apt):
            _run(["dpkg-deb", "--extract", str(package), str(folder)])
        shutil.rmtree(apt)


def _download(package: str, suite: str, folder: Path) -> list[Path]:
    """Download a package and its dependencies; return their files."""
    for one in ("lists/partial", "archives/partial"):
        (folder / one).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb {_mirror()} {suite} main\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        # Nothing counts as installed, so that all dependencies are downloaded.
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        # apt's own user could not write to the folder.
        "APT::Sandbox::User": "root",
        "APT::Get::List-Cleanup": "false",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "--quiet=2", *(f"--option={name}={value}" for name, value in settings.items())]
    _run([*apt, "update"])
    _run([*apt, "--yes", "--download-only", "install", package])
    return sorted((folder / "archives").glob("*.deb"))


def _mirror() -> str:
    """Return the address of the machine's mirror of Debian."""
    listed = _run(["apt-get", "indextargets", "--format=$(ORIGIN) $(REPO_URI)", "Created-By: Packages"])
    for origin, uri in (line.split() for line in listed.splitlines()):
        if origin == "Debian" and "security" not in uri:
            return uri
    raise NotToBeHadError("apt knows no mirror of Debian; run apt-get update on a machine with Debian")


def _launcher(home: Path, program: str) -> Path:
    """Write the program that runs the server with the libraries of its folder; return its folder."""
    # Until bookworm, the C library's package has its files in /lib.
    folders = [folder for pattern in ("lib/*-linux-*", "usr/lib/*-linux-*") for folder in home.glob(pattern)]
    loader = next((file for folder in folders for file in folder.glob("ld-linux-*.so.*")), None)
    if loader is None or not (home / program).exists():
        raise NotToBeHadError(f"{home} has no {program}, or no loader for it; remove the folder, and try again")
    folder = home / "launcher"
    folder.mkdir(exist_ok=True)
    command = [str(loader), "--library-path", ":".join(map(str, folders)), str(home / program)]
    draft = folder / f"redis-server.{os.getpid()}"
    draft.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    draft.chmod(0o755)
    # The embedded runtime looks for this name first.
    draft.replace(folder / "redis-server")
    return folder


def _run(command: list[str]) -> str:
    """Run a command of Debian's and return its output.

    Raises:
        NotToBeHadError: The machine does not have it, or it fails.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotToBeHadError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        # A mirror's address may have a password.
        raise NotToBeHadError(f"{command[0]} failed: {re.sub('//[^/ ]*@', '//', ' '.join(done.stderr.split()))}")
    return done.stdout
