// Messages with every type that the JavaScript SDK can write, and messages as the SDK shows them, in canonical form.
//
// A value is a pair of its AMQP type and its content. If the SDK does not tell types apart, the first has each of them.

import Long from "long";

import { PATIENCE_MS, openClient, say, want } from "./harness.js";

const NUMBERS = "byte|double|float|int|long|short|ubyte|uint|ulong|ushort";
const BYTES = "binary|long|ulong|uuid"; // large integers and UUIDs are shown as their bytes
const INSTANT = new Date(Date.UTC(2025, 0, 2, 3, 4, 5, 678));

const VALUES = {
  null: null,
  true: true,
  false: false,
  int: 5,
  negative: -7,
  "int-largest": 2 ** 31 - 1,
  long: 2 ** 40,
  double: 1.5,
  string: "text ü",
  "string-empty": "",
  "string-long": "x".repeat(300),
  binary: Buffer.from([0, 255]),
  timestamp: INSTANT,
};

/** Return a value in canonical form. */
export function typed(value) {
  if (value === null || value === undefined) {
    return ["null", null];
  }
  if (typeof value === "boolean") {
    return ["boolean", value];
  }
  if (typeof value === "number" || Long.isLong(value)) {
    return [NUMBERS, value.toString()];
  }
  if (typeof value === "string") {
    // A UUID may be shown as its text.
    return ["char|string|symbol|uuid", value];
  }
  if (value instanceof Date) {
    return ["timestamp", String(value.getTime())];
  }
  if (value instanceof Uint8Array) {
    return [BYTES, Buffer.from(value).toString("base64")];
  }
  if (Array.isArray(value)) {
    return ["array|list", value.map(typed)];
  }
  if (value.constructor?.name === "Typed") {
    const inner = typed(value.value);
    return value.descriptor === undefined ? inner : ["described", [typed(value.descriptor), inner]];
  }
  return ["map", Object.entries(value).map(([key, item]) => [typed(key), typed(item)])];
}

/** Return a message with its AMQP sections in canonical form. */
function canonical(message, received = false) {
  const properties = message.properties ?? {};
  const annotations = Object.entries(section(message.messageAnnotations)).filter(
    ([key]) => !key.startsWith("x-opt-") || key === "x-opt-partition-key",
  );
  const value = (part) => (part === undefined || part === null ? null : typed(part));
  return {
    id: plain(properties.messageId),
    body: body(message, received),
    header: {
      durable: message.header?.durable ?? null,
      priority: message.header?.priority ?? null,
      ttl: message.header?.timeToLive ?? null,
    },
    // The SDK leaves the user id out, both ways.
    properties: {
      "message-id": value(properties.messageId),
      "correlation-id": value(properties.correlationId),
      subject: properties.subject ?? null,
      "content-type": properties.contentType ?? null,
      "content-encoding": properties.contentEncoding ?? null,
      to: properties.to ?? null,
      "reply-to": properties.replyTo ?? null,
      "group-id": properties.groupId ?? null,
      "reply-to-group-id": properties.replyToGroupId ?? null,
    },
    "application-properties": section(message.applicationProperties),
    annotations: Object.fromEntries(annotations),
    footer: section(message.footer),
  };
}

/** Return an id as text; a UUID is shown as its bytes. */
function plain(id) {
  if (!(id instanceof Uint8Array)) {
    return String(id);
  }
  return Buffer.from(id).toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

const section = (part) => Object.fromEntries(Object.entries(part ?? {}).map(([key, item]) => [key, typed(item)]));

function body(message, received) {
  const content = message.body;
  if (content?.constructor?.name === "Section") {
    // A body as it came: one section, or several of a kind.
    const sections = content.multiple ? content.content : [content.content];
    return content.typecode === 0x76 ? ["sequence", sections.map((items) => items.map(typed))] : data(sections);
  }
  if (received) {
    return ["value", typed(content)];
  }
  if (message.bodyType === "data") {
    return data([content]);
  }
  return message.bodyType === "sequence" ? ["sequence", [content.map(typed)]] : ["value", typed(content)];
}

const data = (sections) => ["data", sections.map((part) => Buffer.from(part).toString("base64"))];

/** Return messages with every kind of body, and every type of value. */
function messages() {
  const make = (messageId, parts) => ({
    bodyType: "data",
    body: Buffer.alloc(0),
    ...parts,
    properties: { messageId, ...parts.properties },
  });
  return [
    make("data", { body: Buffer.from([0, 98, 121, 116, 101, 115, 255]) }),
    make("data-empty", {}),
    // Java's receiver breaks off at a body that is null.
    ...Object.entries(VALUES).filter(([, value]) => value !== null).map(([name, value]) => make(`value-${name}`, { bodyType: "value", body: value })),
    make("value-list", { bodyType: "value", body: [1, "two", null, [3.5]] }),
    make("value-map", { bodyType: "value", body: { a: 1, b: { c: Buffer.from([1]) } } }),
    make("sequence", { bodyType: "sequence", body: [1, "two", null] }),
    make("application-properties", { applicationProperties: VALUES }),
    make("annotations", {
      messageAnnotations: { "x-opt-partition-key": "key", "test-annotation": "text", "test-number": 5 },
      footer: { "test-footer": "text" },
      header: { durable: true, priority: 7, timeToLive: 3_600_000 },
    }),
    make("properties", {
      properties: {
        correlationId: "correlation",
        subject: "subject",
        contentType: "text/plain",
        contentEncoding: "utf-8",
        to: "to",
        replyTo: "reply-to",
        groupId: "group",
        replyToGroupId: "reply-to-group",
      },
    }),
    make(17, { properties: { correlationId: 18 } }),
  ];
}

/** Send the messages, and print each in canonical form. */
export async function sendTypes(queue) {
  const client = openClient();
  const sender = client.createSender(queue);
  for (const message of messages()) {
    await sender.sendMessages(message);
    say(canonical(message));
  }
  await client.close();
}

/** Receive so many messages, and print each in canonical form. */
export async function receiveTypes(queue, count) {
  const client = openClient();
  const receiver = client.createReceiver(queue, { skipParsingBodyAsJson: true, skipConvertingDate: true });
  for (let left = count; left > 0; ) {
    const received = await receiver.receiveMessages(left, { maxWaitTimeInMs: PATIENCE_MS });
    want(received.length > 0, `${left} messages did not come in ${PATIENCE_MS} ms`);
    for (const message of received) {
      say(canonical(message._rawAmqpMessage, true));
      await receiver.completeMessage(message);
    }
    left -= received.length;
  }
  await client.close();
}
