// The things that a check works with, and the run of the checks, each with a time limit of its own.

import { ServiceBusClient, isServiceBusError } from "@azure/service-bus";

export const PATIENCE_MS = 20_000; // for messages that have to come
const TIME_LIMIT_MS = 60_000; // of a check
const SILENCE_MS = 2_000; // for messages that must not come
const AT_ONCE = 4;

/** Fail with a message unless a condition holds. */
export function want(condition, message) {
  if (!condition) {
    throw new CheckError(message);
  }
}

/** Fail unless two things are equal. */
export function same(got, wanted, what) {
  const [left, right] = [JSON.stringify(got), JSON.stringify(wanted)];
  want(left === right, `${what} is ${left} instead of ${right}`);
}

/** Something is not as the check wants it. */
class CheckError extends Error {
  name = "CheckError";
}

/** Print a line of JSON. */
export function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Return a client that gives up early. */
export function openClient(timeoutInMs = 15_000) {
  return new ServiceBusClient(process.env.CONNECTION_STRING, {
    retryOptions: { maxRetries: 1, retryDelayInMs: 100, timeoutInMs },
  });
}

/** Return the text of a message's body. */
export function text(message) {
  return message.body.toString();
}

/** Return the bodies of messages, sorted. */
export function texts(messages) {
  return messages.map(text).sort();
}

/** The things that a check works with. Whatever it opens is closed after it. */
export class Context {
  constructor(entity) {
    this.entity = entity; // the name of the check's queue or topic
    this.client = openClient();
    this.clients = [this.client];
  }

  /** Return another client, with another time limit of operations. */
  other(timeoutInMs) {
    this.clients.push(openClient(timeoutInMs));
    return this.clients.at(-1);
  }

  sender() {
    return this.client.createSender(this.entity);
  }

  receiver(options = {}) {
    return this.client.createReceiver(this.entity, { maxAutoLockRenewalDurationInMs: 0, ...options });
  }

  /** Return a receiver of a session; of the next available one if no id is given. */
  session(id, options = {}) {
    const all = { maxAutoLockRenewalDurationInMs: 0, ...options };
    return id === undefined
      ? this.client.acceptNextSession(this.entity, all)
      : this.client.acceptSession(this.entity, id, all);
  }

  subscription(name, options = {}) {
    return this.client.createReceiver(this.entity, name, { maxAutoLockRenewalDurationInMs: 0, ...options });
  }

  /** Send messages to the check's entity, each by itself. */
  async send(...messages) {
    const sender = this.sender();
    for (const message of messages) {
      await sender.sendMessages(message);
    }
    await sender.close();
  }

  /** Return so many messages, or fail. */
  async receive(receiver, count) {
    const messages = [];
    const end = Date.now() + PATIENCE_MS;
    while (messages.length < count) {
      const maxWaitTimeInMs = end - Date.now();
      want(maxWaitTimeInMs > 0, `${messages.length} of ${count} messages came in ${PATIENCE_MS} ms`);
      messages.push(...(await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs })));
    }
    return messages;
  }

  /** Return one message, or fail. */
  async receiveOne(receiver) {
    return (await this.receive(receiver, 1))[0];
  }

  /** Fail if a message comes. */
  async receiveNothing(receiver) {
    const messages = await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE_MS });
    want(messages.length === 0, `${messages.length} messages came, and none should have`);
  }

  /** Complete messages. */
  async complete(receiver, messages) {
    for (const message of messages) {
      await receiver.completeMessage(message);
    }
  }

  /** Fail if the check's queue has a message, in whatever state. */
  async empty() {
    const messages = await this.receiver().peekMessages(10);
    want(messages.length === 0, `${messages.length} messages are left`);
  }

  /** Fail unless work fails with one of the SDK's codes. */
  async fails(codes, work) {
    try {
      await work();
    } catch (error) {
      if (error instanceof CheckError) {
        throw error;
      }
      const code = codeOf(error);
      want(codes.includes(code), `${error.name} ${code} instead of ${codes.join(" or ")}: ${error.message}`);
      return;
    }
    want(false, `no error instead of ${codes.join(" or ")}`);
  }

  async close() {
    for (const client of this.clients) {
      await client.close();
    }
  }
}

/** Return the code of an error. The SDK puts codes that it does not list before the text of a general error. */
function codeOf(error) {
  if (isServiceBusError(error) && error.code === "GeneralError") {
    return error.message.split(":")[0];
  }
  return error.code ?? error.name;
}

/**
 * Run checks, some at the same time, and print a line for each; return whether all passed.
 *
 * Each gets what `open` makes of the name of its entity.
 */
export async function run(checks, prefix, open = (entity) => new Context(entity)) {
  const waiting = Object.entries(checks);
  let passed = true;
  const worker = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [name, check] = next;
      const began = performance.now();
      const error = await errorOf(check, open, `${prefix}${name}`);
      passed &&= error === "";
      const seconds = Math.round((performance.now() - began) / 10) / 100;
      say({ check: name, ok: error === "", error, seconds });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return passed;
}

async function errorOf(check, open, entity) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new CheckError(`took longer than ${TIME_LIMIT_MS} ms`)), TIME_LIMIT_MS);
  });
  try {
    await Promise.race([alone(check, open(entity)), limit]);
    return "";
  } catch (error) {
    const all = (error.errors ?? []).map((one) => `; ${one.name} ${one.code ?? ""}: ${one.message}`);
    return `${error.name} ${error.code ?? ""}: ${error.message}${all.join("")}`;
  } finally {
    clearTimeout(timer);
  }
}

async function alone(check, context) {
  try {
    await check(context);
  } finally {
    await context.close();
  }
}
