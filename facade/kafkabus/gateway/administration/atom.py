"""Documents of the administration: Atom entries and feeds, errors, and what requests bring in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from xml.etree.ElementTree import Element, ParseError, SubElement, tostring

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

ATOM = "http://www.w3.org/2005/Atom"
"""The namespace of entries and feeds."""
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
"""The namespace of descriptions of entities."""
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
"""The namespace of the attribute that gives the type of an element."""

_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document holds."""


class DocumentError(ValueError):
    """The document of a request is malformed; the error names value, rule and remedy."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry: a description of an entity, and what is said about it.

    Attributes:
        url: The address of the entity, which JavaScript's client takes its name from.
        title: The name of the entity, which Python's and Go's clients take.
        author: The name of the namespace.
        published: When the entity was created.
        updated: When it was last changed.
        description: The element that describes it, with a prefix for each namespace but its own.
    """

    url: str
    title: str
    author: str
    published: datetime
    updated: datetime
    description: Element


def element(name: str, text: str | None = None, **attributes: str) -> Element:
    """Return an element.

    Args:
        name: Its name, as it is written.
        text: Its text, or None.
        **attributes: Its attributes.
    """
    made = Element(name, attributes)
    made.text = None if text is None else writable(text)
    return made


def writable(text: str) -> str:
    """Return a text with a replacement for each character that no XML document holds."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def as_read(text: str) -> str:
    """Return a text as clients have it that read it in a document, and write each end of a line as a line feed."""
    return writable(text).replace("\r\n", "\n").replace("\r", "\n")


def description(kind: str) -> Element:
    """Return an empty description.

    Args:
        kind: Its name, such as ``QueueDescription``.
    """
    # Clients look for these prefixes.
    return Element(kind, {"xmlns": SERVICE_BUS, "xmlns:i": INSTANCE})


def moment_text(moment: datetime) -> str:
    """Return a time as entries have it, in UTC."""
    return f"{moment.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def entry_document(entry: Entry) -> bytes:
    """Return an entry as a document."""
    return _document(_entry(entry, Element("entry", {"xmlns": ATOM})))


def feed_document(title: str, url: str, entries: Sequence[Entry], following: str | None) -> bytes:
    """Return a page of entries as a document.

    Args:
        title: The name of what is listed.
        url: The address of the list.
        entries: The entries.
        following: The address of the next page; None if this is the last one.
    """
    feed = Element("feed", {"xmlns": ATOM})
    feed.append(element("title", title, type="text"))
    feed.append(element("id", url))
    feed.append(element("updated", moment_text(datetime.now(timezone.utc))))
    feed.append(element("link", rel="self", href=url))
    if following is not None:
        feed.append(element("link", rel="next", href=following))
    for entry in entries:
        _entry(entry, SubElement(feed, "entry"))
    return _document(feed)


def error_document(code: int, detail: str) -> bytes:
    """Return an error as a document."""
    error = Element("Error")
    error.append(element("Code", str(code)))
    error.append(element("Detail", detail))
    return _document(error)


def read_description(body: bytes) -> Element:
    """Return the description in a request's entry.

    Raises:
        DocumentError: The body is no such entry, or declares entities of XML.
    """
    try:
        entry = fromstring(body, forbid_dtd=True)
    except DefusedXmlException as error:
        raise DocumentError("the body declares a document type or entities: leave them out") from error
    except (ParseError, ValueError, LookupError) as error:
        raise DocumentError(f"the body is no XML: {error}; send an Atom entry with a description") from error
    content = entry.find(f"{{{ATOM}}}content")
    if entry.tag != f"{{{ATOM}}}entry" or content is None or len(content) != 1:
        raise DocumentError(
            f"the body is no Atom entry with a description: write <entry xmlns={ATOM!r}> with one in <content>"
        )
    return content[0]


def local_name(node: Element) -> str:
    """Return the name of an element without its namespace."""
    return str(node.tag).rpartition("}")[2]


def children(parent: Element) -> dict[str, Element]:
    """Return the elements in an element by their names, without those that are declared to be nothing."""
    return {local_name(child): child for child in parent if child.get(f"{{{INSTANCE}}}nil") not in {"true", "1"}}


def type_of(node: Element) -> str:
    """Return the type that an element declares, without its prefix; empty if it declares none."""
    return node.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]


def _entry(entry: Entry, into: Element) -> Element:
    into.append(element("id", entry.url))
    into.append(element("title", entry.title, type="text"))
    into.append(element("published", moment_text(entry.published)))
    into.append(element("updated", moment_text(entry.updated)))
    author = SubElement(into, "author")
    author.append(element("name", entry.author))
    into.append(element("link", rel="self", href=entry.url))
    content = SubElement(into, "content", {"type": "application/xml"})
    content.append(entry.description)
    return into


def _document(root: Element) -> bytes:
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    # Readers take an unescaped carriage return for the end of a line; all that are written belong to texts.
    return document.replace(b"\r", b"&#13;")
