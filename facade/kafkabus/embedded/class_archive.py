"""An archive of Kafka's loaded and verified classes, which halves the time that a broker takes to start.

The first broker lists the classes that it loads; once it serves, a program in the background turns
the list into an archive in the cache folder, for all later brokers. The archive affects only loading:
the JVM compiles and runs the code as usual, and ignores an archive that does not suit it.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from typing import TYPE_CHECKING

import psutil

from kafkabus.embedded.children import spawn
from kafkabus.embedded.locks import FileLock

if TYPE_CHECKING:
    from pathlib import Path

    from kafkabus.embedded.java import Java

_LOWEST_PRIORITY = 19


class ClassArchive:
    """The archive for one Java and one version of Kafka.

    Args:
        java: The Java.
        jars: The folder of Kafka's jars.
    """

    def __init__(self, java: Java, jars: Path) -> None:
        self._java = java
        self._jars = jars
        # An archive suits only the build of Java that made it, and jars at the same path.
        build = f"{java.program.resolve()}\n{java.build}\n{jars}"
        key = hashlib.sha256(build.encode()).hexdigest()[:12]
        self._file = jars.parent / f"classes-{key}.jsa"

    @property
    def exists(self) -> bool:
        """Whether the archive exists."""
        return self._file.exists()

    def options(self, class_list: Path) -> list[str]:
        """Return the options to run a broker with.

        Args:
            class_list: The file in which the broker lists its classes as long as there is no archive.

        Returns:
            Options for Java.
        """
        if self.exists:
            return [f"-XX:SharedArchiveFile={self._file}"]
        return [f"-XX:DumpLoadedClassList={class_list}"]

    def lock(self) -> FileLock:
        """Return the lock that allows one process at a time to make the archive."""
        return FileLock(self._file.with_suffix(".lock"))

    def command(self, class_list: Path) -> list[str]:
        """Return the command that makes a draft of the archive.

        Args:
            class_list: The list of classes that a broker wrote.

        Returns:
            Program and arguments.
        """
        return [
            str(self._java.program),
            "-XX:+UseG1GC",
            "-Xmx512m",
            "-Xshare:dump",
            f"-XX:SharedClassListFile={class_list}",
            f"-XX:SharedArchiveFile={self.draft}",
            "-cp",
            f"{self._jars}/*",
        ]

    @property
    def draft(self) -> Path:
        """The file that is written while the archive is made."""
        return self._file.with_suffix(".partial")

    def accept(self) -> None:
        """Put the finished draft in place."""
        # Beside the jars, in a folder that several users may share.
        self.draft.chmod(0o644)
        self.draft.replace(self._file)


class Archiving:
    """Makes an archive in the background, at the lowest priority.

    Args:
        archive: The archive to make.
        class_list: The list of classes that a broker wrote.
        log: The file that takes the program's output.
    """

    def __init__(self, archive: ClassArchive, class_list: Path, log: Path) -> None:
        self._archive = archive
        self._lock = archive.lock()
        self._process: subprocess.Popen[bytes] | None = None
        if archive.exists or not class_list.exists() or not self._acquire():
            return
        self._process = spawn(archive.command(_whole_lines(class_list)), class_list.parent, log)
        with contextlib.suppress(psutil.Error):
            psutil.Process(self._process.pid).nice(_LOWEST_PRIORITY)

    def _acquire(self) -> bool:
        try:
            return self._lock.acquire()
        except OSError:
            # The jars are in another user's folder; brokers start without an archive.
            return False

    def tend(self) -> None:
        """Put the archive in place if it is finished."""
        if self._process is None or self._process.poll() is None:
            return
        if self._process.returncode == 0:
            with contextlib.suppress(OSError):
                self._archive.accept()
        self._finish()

    def stop(self) -> None:
        """Stop the program and discard its draft."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._finish()

    def _finish(self) -> None:
        self._process = None
        with contextlib.suppress(OSError):
            self._archive.draft.unlink(missing_ok=True)
        self._lock.release()


def _whole_lines(class_list: Path) -> Path:
    """Copy the list without the last line, which the broker may not have finished; return the copy."""
    copy = class_list.with_suffix(".whole")
    copy.write_bytes(class_list.read_bytes().rpartition(b"\n")[0] + b"\n")
    return copy
