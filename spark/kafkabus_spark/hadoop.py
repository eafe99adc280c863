"""Files as Hadoop sees them: on this machine, or wherever Spark's jobs read and write."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Hadoop:
    """Files below a folder, as Hadoop sees them."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        java: Any = spark._jvm
        context: Any = spark._jsc
        self._java = java
        self.folder = folder
        self._path = java.org.apache.hadoop.fs.Path
        self._system = self._path(folder).getFileSystem(context.hadoopConfiguration())

    def path(self, name: str) -> Any:
        """Return Hadoop's path of a name below the folder; of the folder itself if the name is empty."""
        return self._path(self.folder, name) if name else self._path(self.folder)

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder of a name."""
        return bool(self._system.exists(self.path(name)))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream = self._system.open(self.path(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file, whole or not at all; folders on the way are made."""
        aside = f".{name}.{uuid.uuid4().hex}"
        stream = self._system.create(self.path(aside), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._system.rename(self.path(aside), self.path(name)):
            # Some file systems do not replace a file.
            self._system.delete(self.path(name), False)
            self._system.rename(self.path(aside), self.path(name))

    def sizes(self, name: str) -> dict[str, int]:
        """Return the names of files and folders in a folder, and their sizes; nothing if there is no such folder."""
        if not self.exists(name):
            return {}
        return {status.getPath().getName(): int(status.getLen()) for status in self._system.listStatus(self.path(name))}

    def names(self, name: str) -> list[str]:
        """Return the names of files and folders in a folder, in order."""
        return sorted(self.sizes(name))

    def delete(self, name: str) -> None:
        """Delete a file or folder."""
        self._system.delete(self.path(name), True)

    def move(self, name: str, to: str) -> None:
        """Move a folder to a place where there is none.

        Raises:
            OSError: The file system refuses.
        """
        if not self._system.rename(self.path(name), self.path(to)):
            raise OSError(f"{self.folder}/{name} could not be moved to {self.folder}/{to}")
