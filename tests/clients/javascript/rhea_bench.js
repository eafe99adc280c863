// The things that a check with rhea works with: connections and links whose events are awaited.

import rhea from "rhea";

import { PATIENCE_MS, same, say, want } from "./harness.js";

export const SETTLED = 1; // of a sender's settle mode
const QUIET_MS = 1_500; // after which no more messages come
const BETWEEN_ATTACH_AND_DETACH_MS = 100;
const PAUSE_MS = 100; // between the messages of keepSending

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Return what an event brings; fail if another one comes before it, or none does in time. */
export function event(emitter, good, bad = "never") {
  return new Promise((resolve, reject) => {
    const end = (answer) => {
      clearTimeout(late);
      emitter.removeListener(good, succeed);
      emitter.removeListener(bad, fail);
      answer();
    };
    const succeed = (context) => end(() => resolve(context));
    const fail = (context) => end(() => reject(errorOf(context)));
    const late = setTimeout(() => end(() => reject(new Error(`no ${good} in ${PATIENCE_MS} ms`))), PATIENCE_MS);
    emitter.once(good, succeed);
    emitter.once(bad, fail);
  });
}

function errorOf({ connection, sender, receiver }) {
  const error = (receiver ?? sender ?? connection).error;
  return Object.assign(new Error(error?.description), { code: error?.condition });
}

function settings() {
  const pairs = process.env.CONNECTION_STRING.split(";").map((part) => [part.split("=")[0], part.replace(/^\w+=/u, "")]);
  const { Endpoint, SharedAccessKeyName: username, SharedAccessKey: password } = Object.fromEntries(pairs);
  const { hostname: host, port } = new URL(Endpoint.replace("sb://", "http://"));
  return { host, port: Number(port || 5672), username, password };
}

/** Return a connection that is opened, with the links of an application. */
export function connect(options = {}) {
  // A container for each: events that nobody awaits must not go to the others.
  return rhea.create_container().connect({ ...settings(), reconnect: false, ...options });
}

/** The things that a check works with. Whatever it opens is closed after it. */
export class RheaContext {
  constructor(entity) {
    this.entity = entity; // the name of the check's queue
    this.connections = [];
  }

  async connection() {
    const connection = connect();
    this.connections.push(connection);
    // What breaks shows as messages that do not come; an error that nobody hears would end the process.
    for (const what of ["disconnected", "connection_error", "session_error", "sender_error", "receiver_error"]) {
      connection.on(what, () => {});
    }
    await event(connection, "connection_open", "connection_close");
    return connection;
  }

  /** Return a sender that is open; fail as the link is refused. */
  async sender(address = this.entity, options = {}) {
    const sender = (await this.connection()).open_sender({ target: { address }, autosettle: true, ...options });
    // A link is refused by an answer without a target, and a detach.
    await event(sender, "sendable", "sender_close");
    return sender;
  }

  /** Return a receiver without credit; fail as the link is refused. */
  async receiver(source = {}, options = {}) {
    const connection = await this.connection();
    const receiver = connection.open_receiver({
      source: { address: this.entity, ...source },
      credit_window: 0,
      autoaccept: false,
      ...options,
    });
    receiver.got = [];
    receiver.on("message", (context) => receiver.got.push(context));
    await event(receiver, "receiver_open", "receiver_close");
    // A link that is refused is opened, and detached directly after.
    await pause(BETWEEN_ATTACH_AND_DETACH_MS);
    if (receiver.error) {
      throw errorOf({ receiver });
    }
    return receiver;
  }

  /** Send messages, and wait for the outcome of each: true if it was accepted. */
  async send(messages, sender = undefined) {
    const own = sender ?? (await this.sender());
    const outcomes = [];
    for (const message of messages) {
      const delivery = Buffer.isBuffer(message) ? own.send(message, undefined, 0) : own.send(message);
      await event(own, "settled", "sender_close");
      outcomes.push(delivery.remote_state?.constructor.composite_type === "accepted");
    }
    return outcomes;
  }

  /** Send messages with numbers as bodies and ids, with one key. */
  async sendNumbers(count) {
    const outcomes = await this.send(numbers(count).map((body) => ({ ...keyed(body), message_id: body })));
    want(outcomes.every(Boolean), "a message was not accepted");
  }

  /** Wait until no more messages come; return the bodies of those that came, sorted. */
  async quiet(receiver) {
    for (let known = -1; known < receiver.got.length;) {
      known = receiver.got.length;
      await pause(QUIET_MS);
    }
    return receiver.got.map(({ message }) => text(message)).sort();
  }

  /** Receive and complete all that is there; return the bodies, sorted. */
  async drain(address = this.entity) {
    const receiver = await this.receiver({ address }, { autoaccept: true });
    receiver.add_credit(5_000);
    const bodies = await this.quiet(receiver);
    receiver.close();
    return bodies;
  }

  /** Fail unless a link is refused with one of some conditions, by words that name what is refused. */
  async refuses(conditions, word, work) {
    let error;
    try {
      await work();
    } catch (caught) {
      error = caught;
    }
    want(error, `the link was not refused, for ${word}`);
    want(conditions.includes(error.code), `${error.code} instead of ${conditions.join(" or ")}: ${error.message}`);
    want(error.message.includes(word), `the error does not name ${word}: ${error.message}`);
  }

  async close() {
    for (const connection of this.connections) {
      connection.close();
    }
  }
}

/** Return the text of a message's body. */
export function text(message) {
  const body = message.body?.typecode === 0x75 ? message.body.content : message.body;
  return body?.toString();
}

export const numbers = (count) => Array.from({ length: count }, (_, number) => String(number).padStart(4, "0"));

export const keyed = (body) => ({ body, message_annotations: { "x-opt-partition-key": "key" } });

/** Send so many messages one by one, over one link that rhea opens again; say which are stored, and receive all. */
export async function keepSending(queue, count) {
  const connection = connect({ reconnect: 100, initial_reconnect_delay: 100, max_reconnect_delay: 500 });
  const sender = connection.open_sender({ target: { address: queue } });
  const receiver = connection.open_receiver({ source: { address: queue }, credit_window: 0 });
  const broken = ["sender_close", "receiver_close"].map(
    (what) => new Promise((_, reject) => connection.on(what, ({ sender: left }) => reject(new Error(`${what} ${left}`)))),
  );
  const received = [];
  connection.on("message", ({ message }) => received.push(text(message)));
  connection.on("connection_error", () => {}); // the gateway says that it stops
  connection.on("disconnected", () => {});
  const work = async () => {
    for (let number = 0; number < count; number++) {
      while (!(await stored(connection, sender, String(number))));
      say({ stored: number });
      await pause(PAUSE_MS);
    }
    receiver.add_credit(10 * count);
    for (let known = -1; known < received.length;) {
      known = received.length;
      await pause(QUIET_MS);
    }
    received.forEach((body) => say({ received: Number(body) }));
    connection.close();
  };
  await Promise.race([work(), ...broken]);
}

/** Send a message once the link has credit; return whether it was stored: false if the connection broke before the answer. */
async function stored(connection, sender, body) {
  if (!sender.sendable()) {
    await event(sender, "sendable");
  }
  sender.send(keyed(body));
  return Promise.race([
    event(sender, "accepted").then(() => true),
    event(connection, "disconnected").then(() => false),
  ]);
}

export { same, want };
