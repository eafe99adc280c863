"""Build a release, and check it: its metadata, its files, and that its wheel works in an empty environment.

Usage:
    python -m tools.release [FOLDER]    build the sdist and the wheel into a folder, dist by default, and check them

The version comes from the latest tag; see CONTRIBUTING.md. Nothing is uploaded.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packaging.metadata import ExceptionGroup, Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ROOT / "tests" / "smoke.py"

IN_WHEEL = (
    "kafkabus/__init__.py",
    "kafkabus/_ledger/lua/claim.lua",
    "kafkabus/embedded/kafka_jars.json",
    "kafkabus/py.typed",
    "kafkabus_mapping/filters/sql.lark",
    "kafkabus_mapping/py.typed",
    "kafkabus_spark/py.typed",
)
"""Some files without which the wheel does not work, one of each kind."""
IN_SDIST = (
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "constraints.txt",
    "docs/how-to/upgrade.md",
    "facade/kafkabus/_ledger/lua/claim.lua",
    "mapping/kafkabus_mapping/filters/sql.lark",
    "pyproject.toml",
    "spark/kafkabus_spark/reader.py",
    "tests/golden/format-1/namespace.json",
    "tests/smoke.py",
)
"""Some files that the sdist must have, of each folder."""
_UNWANTED = re.compile(
    r"(^|/)(\.git|\.venv|\.env|\.kafkabus|\.hypothesis|__pycache__|\.[a-z]+_cache|node_modules|appendonlydir)(/|$)"
    r"|\.(py[co]|so|log|rdb|aof|key|pem|p12|jks|whl|jar)$"
    r"|(^|/)(state|cluster)\.json$"
    r"|(^|/)\.?(netrc|pypirc|npmrc|pip\.conf)$"
)
"""Caches, data of servers, and files that may hold passwords."""
_PRIVATE = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


class ReleaseError(Exception):
    """The release must not go out; the message says why."""


def main(arguments: list[str]) -> int:
    """Build and check a release; return 1 if it must not go out."""
    folder = Path(arguments[0] if arguments else "dist").absolute()
    try:
        sdist, wheel = build(folder)
        version = check(sdist, wheel)
        try_wheel(wheel, version)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for file in (sdist, wheel):
        print(f"{file.relative_to(folder.parent)}: {file.stat().st_size:,} bytes")
    if Version(version).is_devrelease:
        print(f"{version} is a development version: for a release, tag the commit, and build without changes")
    print(f"kafkabus {version} is ready; nothing was uploaded")
    return 0


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """Build the sdist and, from that, the wheel, into an empty folder.

    Args:
        folder: The folder, created if it does not exist.
        source: The sources.

    Raises:
        ReleaseError: The folder holds other files, or the build failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    present = sorted(path.name for path in folder.iterdir())
    if present:
        raise ReleaseError(f"{folder} holds {present}: remove what is there, or name another folder")
    _run([sys.executable, "-m", "build", "--outdir", str(folder), str(source)])
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check(sdist: Path, wheel: Path) -> str:
    """Check the metadata and the files of a release; return its version.

    Raises:
        ReleaseError: The metadata is not valid, a file is missing, or a file is there that does not belong there.
    """
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in members}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    with zipfile.ZipFile(wheel) as packed:
        installed = {name: packed.read(name) for name in packed.namelist()}
    check_files(sdist.name, contents, IN_SDIST)
    check_files(wheel.name, installed, IN_WHEEL)
    (described,) = (name for name in installed if name.endswith(".dist-info/METADATA"))
    versions = {
        str(parse_sdist_filename(sdist.name)[1]),
        str(parse_wheel_filename(wheel.name)[1]),
        *(_version(one) for one in (contents["PKG-INFO"], installed[described])),
    }
    if len(versions) > 1:
        raise ReleaseError(f"{sdist.name} and {wheel.name} name several versions: {sorted(versions)}")
    return versions.pop()


def check_files(name: str, contents: dict[str, bytes], needed: Iterable[str]) -> None:
    """Check the files of an archive.

    Raises:
        ReleaseError: A file is missing, or one is there that does not belong there.
    """
    missing = [file for file in needed if file not in contents]
    if missing:
        raise ReleaseError(f"{name} lacks {missing}: see [tool.hatch.build] in pyproject.toml")
    unwanted = [file for file, content in contents.items() if _UNWANTED.search(file) or _PRIVATE.search(content)]
    if unwanted:
        raise ReleaseError(
            f"{name} contains {unwanted}, which must not go out: remove them, or leave them out of the build"
        )


def try_wheel(wheel: Path, version: str) -> None:
    """Install a wheel into an empty environment, and run the smoke test there, away from the sources.

    Raises:
        ReleaseError: It cannot be installed, or does not work.
    """
    with tempfile.TemporaryDirectory(prefix="kafkabus-release-") as folder:
        environment = Path(folder) / "environment"
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        constraints = str(ROOT / "constraints.txt")
        _run([python, "-m", "pip", "install", "--quiet", "--constraint", constraints, f"{wheel}[embedded]"])
        # Isolated, Python neither sees PYTHONPATH nor the folder of the script.
        _run([python, "-I", str(SMOKE), version], cwd=folder)


def _version(metadata: bytes) -> str:
    """Return the version of valid metadata.

    Raises:
        ReleaseError: The metadata is not valid.
    """
    try:
        valid = Metadata.from_email(metadata, validate=True)
    except ExceptionGroup as error:
        raise ReleaseError(f"the metadata is not valid: {error.exceptions}") from error
    if not email.message_from_bytes(metadata).get_payload():
        raise ReleaseError("the metadata has no description: README.md is missing")
    return str(valid.version)


def _run(command: list[str], cwd: str | Path | None = None) -> None:
    """Run a command, which prints to the terminal.

    Raises:
        ReleaseError: It failed.
    """
    done = subprocess.run(command, cwd=cwd, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed with exit status {done.returncode}; see above")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
