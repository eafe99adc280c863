"""The administration as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from kafkabus._core.exceptions import ServiceBusServerBusyError
from kafkabus._runtime.log_format import shown_error, shown_name
from kafkabus.aio.management import ServiceBusAdministrationClient
from kafkabus.gateway.administration.atom import (
    entry_document,
    error_document,
    feed_document,
    read_description,
)
from kafkabus.gateway.administration.descriptions import destinations_in
from kafkabus.gateway.administration.failures import RefusedError, failure_of
from kafkabus.gateway.administration.namespace import NamespaceAdministration
from kafkabus.gateway.administration.resources import (
    EntityResource,
    Queues,
    Resource,
    RuleList,
    SubscriptionResource,
    Subscriptions,
    TopicList,
    path_of,
    resource_at,
)
from kafkabus.gateway.administration.rights import rights_of
from kafkabus.gateway.health import NamespaceHealth
from kafkabus.gateway.sas_tokens import Policies, Right, UnauthorizedError, claim_of

LOGGER = logging.getLogger("kafkabus.gateway")

LARGEST = 256 * 1024
"""The size of the largest body, in bytes; a description with all that its settings may hold has a tenth of it."""
BODY_WITHIN = 30.0
"""Within how many seconds a client has to send the body."""
READ_WITHIN = 30.0
"""Within how many seconds a request that changes nothing is answered, if need be with 503; others are not cut off."""
PAGE = 100
"""How many entries a list has at most, and if the client does not say."""
LATE = 90.0
"""For how long, in seconds, a token is accepted after its end: Python's client renews its token a minute after that."""
HEALTH = "/health"

_HOST = re.compile(r"[\w.\-]+(:\d+)?|\[[\da-fA-F:.]+\](:\d+)?", re.ASCII)
_ATOM_TYPE = "application/atom+xml;type=entry;charset=utf-8"
_FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
_XML_TYPE = "application/xml; charset=utf-8"
_SUPPLEMENTS = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""The headers with tokens for destinations of messages, by the elements that name these."""


def create_app(connection: str, policies: Policies | None = None) -> Starlette:
    """Return the administration of a namespace as an application; its lifespan closes the connections.

    Args:
        connection: The connection string of the namespace.
        policies: The policies that clients' tokens are checked against; None: keys are carried, not checked.

    Raises:
        ValueError: The connection string is malformed, or does not say where Kafka or Redis is.
    """
    client = ServiceBusAdministrationClient.from_connection_string(connection)
    service = _Service(client, policies)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with client:
            yield

    return Starlette(
        routes=[Route("/{path:path}", service.answer, methods=["GET", "PUT", "DELETE"])],
        exception_handlers={HTTPException: _refuse},
        lifespan=lifespan,
    )


def is_for_health(scope: Scope) -> bool:
    """Return whether a request is for the health of the gateway.

    An entity may have this name; clients of the administration send the version of their API.
    """
    return (
        scope["path"] == HEALTH
        and scope["method"] in {"GET", "HEAD"}
        and b"api-version" not in bytes(scope["query_string"])
    )


class _Service:
    """Answers requests.

    Args:
        client: The administration client of the namespace.
        policies: See ``create_app``.
    """

    def __init__(self, client: ServiceBusAdministrationClient, policies: Policies | None) -> None:
        self._client = client
        self._policies = policies
        self._namespace_health = NamespaceHealth(client)

    async def answer(self, request: Request) -> Response:
        """Answer a request, also with an error."""
        if is_for_health(request.scope):
            return await self._health()
        try:
            response = await self._handle(request)
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception as error:  # noqa: BLE001 - a client gets an answer whatever happened
            return _answer_error(request, error)
        if request.method in {"PUT", "DELETE"}:
            LOGGER.info(
                "administration_changed method=%s path=%s status=%d",
                request.method,
                _path_for_log(request),
                response.status_code,
            )
        return response

    async def _handle(self, request: Request) -> Response:
        path = str(request.path_params["path"])
        resource = resource_at(path)
        self._authorize(request, _token(request), path, *rights_of(request.method, resource))
        if resource is None:
            raise RefusedError(404, f"SubCode=40400. Not Found. There is no resource {path!r}")
        namespace = NamespaceAdministration(self._client, lambda path: _url(request, path))
        if request.method == "PUT":
            return await self._put(request, namespace, resource)
        if request.method == "DELETE":
            await namespace.delete(resource)
            return Response(status_code=HTTPStatus.OK)
        try:
            return await asyncio.wait_for(_read(request, namespace, resource), READ_WITHIN)
        except asyncio.TimeoutError as error:
            raise ServiceBusServerBusyError(
                f"Kafka or Redis did not answer within {READ_WITHIN:.0f} seconds"
            ) from error

    async def _put(self, request: Request, namespace: NamespaceAdministration, resource: Resource) -> Response:
        described = read_description(await _body(request))
        if self._policies is not None and isinstance(resource, (EntityResource, SubscriptionResource)):
            self._authorize_destinations(request, destinations_in(described))
        if "if-match" in request.headers:
            entry, status = await namespace.update(resource, described), HTTPStatus.OK
        else:
            entry, status = await namespace.create(resource, described), HTTPStatus.CREATED
        return Response(entry_document(entry), status, media_type=_ATOM_TYPE)

    def _authorize(self, request: Request, token: str, path: str, *rights: Right) -> None:
        now = time.time()
        if self._policies is None:
            claim_of(None, token, now)
        else:
            address = "" if request.client is None else request.client.host
            self._policies.check(token, path, now, *rights, address=address, late=LATE)

    def _authorize_destinations(self, request: Request, destinations: Mapping[str, str]) -> None:
        """Check that the client may send to the entities that messages are to be forwarded to.

        The client's token may allow that, or a separate token for each of them.
        """
        for name, destination in destinations.items():
            supplement = request.headers.get(_SUPPLEMENTS[name], "")
            # Clients send one always; their own token suffices if it covers both.
            with contextlib.suppress(UnauthorizedError):
                self._authorize(request, _token(request), destination, Right.SEND)
                continue
            self._authorize(request, supplement, destination, Right.SEND)

    async def _health(self) -> Response:
        """Answer whether the namespace can be reached."""
        problem = await self._namespace_health.problem()
        if not problem:
            return JSONResponse({"status": "healthy"})
        LOGGER.warning("administration_unhealthy error=%s", shown_error(problem))
        return JSONResponse({"status": "unhealthy"}, HTTPStatus.SERVICE_UNAVAILABLE)


async def _read(request: Request, namespace: NamespaceAdministration, resource: Resource) -> Response:
    if isinstance(resource, (Queues, TopicList, Subscriptions, RuleList)):
        return await _list(request, namespace, resource)
    return Response(entry_document(await namespace.get(resource)), media_type=_ATOM_TYPE)


async def _list(
    request: Request, namespace: NamespaceAdministration, resource: Queues | TopicList | Subscriptions | RuleList
) -> Response:
    skip, top = _number(request, "$skip", 0), min(_number(request, "$top", PAGE), PAGE)
    entries, more = await namespace.list(resource, skip, top)
    path = path_of(resource)
    following = _url(request, path, {"$skip": str(skip + top), "$top": str(top)}) if more and top else None
    page = feed_document(path.rpartition("/")[2], _url(request, path), entries, following)
    return Response(page, media_type=_FEED_TYPE)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise RefusedError(400, f"SubCode=40000. Bad Request. {name}={text!r}: write a whole number, 0 or more")
    return int(text)


async def _body(request: Request) -> bytes:
    """Return the body.

    Raises:
        RefusedError: It is too large, or does not come.
    """
    body = bytearray()

    async def read() -> None:
        async for piece in request.stream():
            body.extend(piece)
            if len(body) > LARGEST:
                raise RefusedError(413, f"the body is longer than {LARGEST} bytes: shorten the description")

    try:
        await asyncio.wait_for(read(), BODY_WITHIN)
    except asyncio.TimeoutError as error:
        raise RefusedError(408, f"the body did not come within {BODY_WITHIN:.0f} seconds") from error
    return bytes(body)


def _token(request: Request) -> str:
    return request.headers.get("authorization", "").strip()


def _url(request: Request, path: str, parameters: Mapping[str, str] | None = None) -> str:
    """Return the address of a path, with the version that the client asks for, as Azure's addresses have it."""
    version = request.query_params.get("api-version")
    query = {} if version is None else {"api-version": version}
    query |= parameters or {}
    return f"{request.scope['scheme']}://{_host(request)}/{quote(path, safe='/$')}" + (
        f"?{urlencode(query, safe='$')}" if query else ""
    )


def _host(request: Request) -> str:
    """Return the host and port by which the client knows the gateway.

    Raises:
        RefusedError: They are no host and port.
    """
    host = request.headers.get("host", "")
    if not _HOST.fullmatch(host):
        raise RefusedError(400, f"SubCode=40000. Bad Request. Host={host!r}: write a name or an address, and a port")
    return host


def _path_for_log(request: Request) -> str:
    """Return the path for the log, in one line."""
    return shown_name(quote(request.scope["path"], safe="/$"))


def _answer_error(request: Request, error: Exception) -> Response:
    """Return the answer for an error; if the error is the gateway's, the log has its number, too."""
    failure, number = failure_of(error), uuid.uuid4()
    if failure.ours:
        LOGGER.error(
            "administration_failed method=%s path=%s status=%d tracking=%s error=%s",
            request.method,
            _path_for_log(request),
            failure.status,
            number,
            shown_error(error),
            exc_info=error if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR else None,
        )
    return _error_response(failure.status, f"{failure.detail}. TrackingId:{number}")


async def _refuse(_: Request, error: Exception) -> Response:
    """Answer for an error of HTTP, such as a method that there is not."""
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    return _error_response(status, HTTPStatus(status).phrase)


def _error_response(status: int, detail: str) -> Response:
    headers = {"www-authenticate": "SharedAccessSignature"} if status == HTTPStatus.UNAUTHORIZED else None
    return Response(error_document(status, detail), status, headers, media_type=_XML_TYPE)
