// The checks of the JavaScript SDK, by name.

import Long from "long";

import { PATIENCE_MS, same, text, texts, want } from "./harness.js";

const inSeconds = (seconds) => new Date(Date.now() + 1000 * seconds);
const message = (body, properties = {}) => ({ body: Buffer.from(body), ...properties });
const numbers = (count) => Array.from({ length: count }, (_, number) => String(number).padStart(2, "0"));

export const CHECKS = {
  async "send-one"(context) {
    await context.send(message("one", { messageId: "id-1", applicationProperties: { colour: "red" } }));
    const receiver = context.receiver();
    const got = await context.receiveOne(receiver);
    same(text(got), "one", "body");
    same(got.messageId, "id-1", "message id");
    same(got.deliveryCount, 0, "delivery count");
    want(got.sequenceNumber?.toString() !== undefined, "no sequence number");
    want(got.enqueuedTimeUtc instanceof Date, "no enqueued time");
    want(got.lockedUntilUtc instanceof Date, "no end of the lock");
    want(got.lockToken, "no lock token");
    same(got.applicationProperties, { colour: "red" }, "application properties");
    await receiver.completeMessage(got);
  },

  async "send-list"(context) {
    await context.send(numbers(10).map((body) => message(body)));
    const receiver = context.receiver();
    const messages = await context.receive(receiver, 10);
    same(texts(messages), numbers(10), "bodies");
    want(messages.every((got) => got.messageId), "a message has no id");
    await context.complete(receiver, messages);
  },

  async "send-batch"(context) {
    const sender = context.sender();
    const batch = await sender.createMessageBatch();
    for (const body of numbers(50)) {
      want(batch.tryAddMessage(message(body, { partitionKey: "key" })), "the batch is full");
    }
    await sender.sendMessages(batch);
    const receiver = context.receiver();
    const messages = await context.receive(receiver, 50);
    same(texts(messages), numbers(50), "bodies");
    await context.complete(receiver, messages);
  },

  async "send-1mb"(context) {
    const body = Buffer.alloc(1_000_000, Buffer.from(Uint8Array.from({ length: 250 }, (_, index) => index)));
    await context.send({ body });
    const receiver = context.receiver({ skipParsingBodyAsJson: true });
    const got = await context.receiveOne(receiver);
    want(body.equals(got.body), "the body is another");
    await receiver.completeMessage(got);
  },

  async "send-too-large"(context) {
    const sender = context.sender();
    await context.fails(["MessageSizeExceeded"], () => sender.sendMessages({ body: Buffer.alloc(1_100_000) }));
    const batch = await sender.createMessageBatch();
    want(!batch.tryAddMessage({ body: Buffer.alloc(1_100_000) }), "the batch took it");
    await sender.sendMessages(message("small"));
    const receiver = context.receiver();
    const got = await context.receiveOne(receiver);
    same(text(got), "small", "body");
    await receiver.completeMessage(got);
  },

  async "send-scheduled"(context) {
    const due = inSeconds(4);
    await context.send(message("later", { scheduledEnqueueTimeUtc: due }));
    same(text(await context.receiveOne(context.receiver())), "later", "body");
    want(Date.now() >= due.getTime() - 500, "the message came too early");
  },

  async "receive-complete"(context) {
    await context.send(message("1"), message("2"), message("3"));
    const receiver = context.receiver();
    const messages = await context.receive(receiver, 3);
    same(texts(messages), ["1", "2", "3"], "bodies");
    await context.complete(receiver, messages);
    await context.receiveNothing(receiver);
    await context.empty();
  },

  async "receive-empty"(context) {
    const receiver = context.receiver();
    await context.receiveNothing(receiver);
    await context.send(message("one"));
    await receiver.completeMessage(await context.receiveOne(receiver));
  },

  async "receive-and-delete"(context) {
    await context.send(message("1"), message("2"));
    const receiver = context.receiver({ receiveMode: "receiveAndDelete" });
    same(texts(await context.receive(receiver, 2)), ["1", "2"], "bodies");
    await context.empty();
  },

  async abandon(context) {
    await context.send(message("one"));
    const receiver = context.receiver();
    let got = await context.receiveOne(receiver);
    same(got.deliveryCount, 0, "first delivery count");
    await receiver.abandonMessage(got);
    got = await context.receiveOne(receiver);
    same(got.deliveryCount, 1, "second delivery count");
    await receiver.completeMessage(got);
  },

  async "abandon-properties"(context) {
    await context.send(message("one", { applicationProperties: { colour: "red", size: 5 } }));
    const receiver = context.receiver();
    await receiver.abandonMessage(await context.receiveOne(receiver), { colour: "blue", more: "text" });
    const got = await context.receiveOne(receiver);
    const sorted = Object.fromEntries(Object.entries(got.applicationProperties).sort());
    same(sorted, { colour: "blue", more: "text", size: 5 }, "application properties");
    await receiver.completeMessage(got);
  },

  async "abandon-delay"(context) {
    await context.send(message("one"));
    const receiver = context.receiver();
    let got = await context.receiveOne(receiver);
    const begun = Date.now();
    await receiver.abandonMessage(got, { "x-opt-kafkabus-delay": 1500, colour: "blue" });
    got = await context.receiveOne(receiver);
    want(Date.now() - begun >= 1500, "the message came too early");
    same(got.deliveryCount, 1, "delivery count");
    same(got.applicationProperties, { colour: "blue" }, "application properties");
    await receiver.completeMessage(got);
  },

  async "defer-properties"(context) {
    await context.send(message("one", { applicationProperties: { colour: "red", size: 5 } }));
    const receiver = context.receiver();
    const got = await context.receiveOne(receiver);
    await receiver.deferMessage(got, { colour: "blue" });
    let [deferred] = await receiver.receiveDeferredMessages(got.sequenceNumber);
    await receiver.abandonMessage(deferred, { more: "text" });
    [deferred] = await receiver.receiveDeferredMessages(got.sequenceNumber);
    const sorted = Object.fromEntries(Object.entries(deferred.applicationProperties).sort());
    same(sorted, { colour: "blue", more: "text", size: 5 }, "application properties");
    await receiver.completeMessage(deferred);
  },

  async "max-delivery-count"(context) {
    await context.send(message("one"));
    const receiver = context.receiver();
    await receiver.abandonMessage(await context.receiveOne(receiver));
    await receiver.abandonMessage(await context.receiveOne(receiver));
    const dead = context.receiver({ subQueueType: "deadLetter" });
    const got = await context.receiveOne(dead);
    same(got.deadLetterReason, "MaxDeliveryCountExceeded", "reason");
    await dead.completeMessage(got);
  },

  async defer(context) {
    await context.send(message("one"));
    const receiver = context.receiver();
    const got = await context.receiveOne(receiver);
    await receiver.deferMessage(got);
    await context.receiveNothing(receiver);
    const [deferred] = await receiver.receiveDeferredMessages(got.sequenceNumber);
    same(text(deferred), "one", "body");
    await receiver.completeMessage(deferred);
    await context.fails(["MessageNotFound"], () => receiver.receiveDeferredMessages(got.sequenceNumber));
    await context.empty();
  },

  async "dead-letter"(context) {
    await context.send(message("one"));
    const receiver = context.receiver();
    await receiver.deadLetterMessage(await context.receiveOne(receiver), {
      deadLetterReason: "a reason",
      deadLetterErrorDescription: "a description",
    });
    const dead = context.receiver({ subQueueType: "deadLetter" });
    const got = await context.receiveOne(dead);
    same(text(got), "one", "body");
    same(got.deadLetterReason, "a reason", "reason");
    same(got.deadLetterErrorDescription, "a description", "description");
    await dead.completeMessage(got);
    await context.receiveNothing(dead);
  },

  async peek(context) {
    await context.send(...["1", "2", "3"].map((body) => message(body, { partitionKey: "key" })));
    const receiver = context.receiver();
    const peeked = await receiver.peekMessages(10);
    same(peeked.map(text), ["1", "2", "3"], "bodies");
    // A receiver's later peeks go on behind the last message, unless they say where to begin.
    const rest = await receiver.peekMessages(10, { fromSequenceNumber: peeked[1].sequenceNumber });
    same(rest.map(text), ["2", "3"], "bodies from the second on");
    await context.complete(receiver, await context.receive(receiver, 3));
    await context.empty();
  },

  async schedule(context) {
    const [sender, receiver] = [context.sender(), context.receiver()];
    const due = inSeconds(6);
    const [number] = await sender.scheduleMessages(message("later"), due);
    const [peeked] = await receiver.peekMessages(1);
    same(peeked.sequenceNumber.toString(), number.toString(), "sequence number");
    same(peeked.state, "scheduled", "state");
    const got = await context.receiveOne(receiver);
    same(text(got), "later", "body");
    want(Date.now() >= due.getTime() - 500, "the message came too early");
    await receiver.completeMessage(got);
  },

  async "schedule-cancel"(context) {
    const sender = context.sender();
    const messages = ["a", "b"].map((body) => message(body, { partitionKey: "key" }));
    const scheduled = await sender.scheduleMessages(messages, inSeconds(3600));
    same(scheduled.length, 2, "number of sequence numbers");
    want(scheduled.every((number) => Long.isLong(number)), "a sequence number is no Long");
    await sender.cancelScheduledMessages(scheduled);
    await context.empty();
    await context.fails(["MessageNotFound"], () => sender.cancelScheduledMessages(scheduled));
  },

  async "renew-lock"(context) {
    await context.send(message("one"));
    const [receiver, other] = [context.receiver(), context.receiver()];
    const got = await context.receiveOne(receiver);
    const before = got.lockedUntilUtc;
    while (Date.now() < before.getTime()) {
      const renewed = await receiver.renewMessageLock(got);
      await context.receiveNothing(other);
      want(renewed > before, "the renewed lock does not end later");
    }
    await receiver.completeMessage(got);
    await context.empty();
  },

  async "lock-lost"(context) {
    await context.send(message("one"));
    const [receiver, other] = [context.receiver(), context.receiver()];
    const got = await context.receiveOne(receiver);
    const again = await context.receiveOne(other);
    same(again.deliveryCount, 1, "second delivery count");
    await context.fails(["MessageLockLost"], () => receiver.completeMessage(got));
    await context.fails(["MessageLockLost"], () => receiver.renewMessageLock(got));
    await other.completeMessage(again);
  },

  async processor(context) {
    await context.send(...numbers(10).map((body) => message(body)));
    const [bodies, errors] = [[], []];
    let allCame;
    const all = new Promise((resolve) => (allCame = resolve));
    const subscription = context.receiver().subscribe(
      {
        async processMessage(got) {
          bodies.push(text(got));
          if (bodies.length === 10) {
            allCame();
          }
        },
        async processError(args) {
          errors.push(`${args.errorSource}: ${args.error.message}`);
        },
      },
      { maxConcurrentCalls: 3 }, // completes each message by itself
    );
    let timer;
    const patience = new Promise((resolve) => (timer = setTimeout(resolve, PATIENCE_MS)));
    await Promise.race([all, patience]);
    clearTimeout(timer);
    await subscription.close();
    same(errors, [], "errors");
    same(bodies.sort(), numbers(10), "bodies");
    await context.empty();
  },

  async "unknown-queue"(context) {
    await context.fails(["MessagingEntityNotFound"], () => context.send(message("one")));
    const receiver = context.receiver();
    await context.fails(["MessagingEntityNotFound"], () => receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 }));
  },

  async "unknown-subscription"(context) {
    const receiver = context.subscription("missing");
    await context.fails(["MessagingEntityNotFound"], () => receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 }));
  },

  async "session-state"(context) {
    const receiver = await context.session("a");
    want(!(await receiver.getSessionState())?.length, "a new session has a state");
    await receiver.setSessionState(Buffer.from("\0state"));
    same((await receiver.getSessionState()).toString(), "\0state", "state");
    await receiver.close();
    const next = await context.session("a");
    same((await next.getSessionState()).toString(), "\0state", "state of the next receiver");
    await next.setSessionState(null);
    want(!(await next.getSessionState())?.length, "the state was not cleared");
  },

  async "session-next"(context) {
    await context.send(...["1", "2", "3"].map((body) => message(body, { sessionId: "a" })));
    const receiver = await context.session();
    same(receiver.sessionId, "a", "session id");
    want(receiver.sessionLockedUntilUtc > new Date(), "the session's lock has no end");
    const messages = await context.receive(receiver, 3);
    same(messages.map(text), ["1", "2", "3"], "bodies");
    want(messages.every((got) => got.sessionId === "a"), "a message is of another session");
    await context.complete(receiver, messages);
    await context.receiveNothing(receiver);
  },

  async "session-none"(context) {
    const hasty = context.other(3000);
    await context.fails(["ServiceTimeout", "SessionCannotBeLocked"], () => hasty.acceptNextSession(context.entity));
  },

  async "session-two"(context) {
    for (const sessionId of ["a", "b"]) {
      await context.send(message(`${sessionId}1`, { sessionId }), message(`${sessionId}2`, { sessionId }));
    }
    const receivers = [await context.session(), await context.session()];
    same(receivers.map((receiver) => receiver.sessionId).sort(), ["a", "b"], "session ids");
    for (const receiver of receivers) {
      const messages = await context.receive(receiver, 2);
      same(messages.map(text), [`${receiver.sessionId}1`, `${receiver.sessionId}2`], "bodies");
      await context.complete(receiver, messages);
    }
  },

  async "session-held"(context) {
    await context.send(message("one", { sessionId: "a" }));
    const receiver = await context.session("a");
    const got = await context.receiveOne(receiver);
    await context.fails(["SessionCannotBeLocked"], () => context.session("a"));
    await receiver.abandonMessage(got);
    await receiver.close();
    const next = await context.session("a");
    await next.completeMessage(await context.receiveOne(next));
  },

  async "session-defer"(context) {
    await context.send(message("one", { sessionId: "a" }));
    const receiver = await context.session("a");
    const got = await context.receiveOne(receiver);
    await receiver.deferMessage(got);
    const [deferred] = await receiver.receiveDeferredMessages(got.sequenceNumber);
    same(text(deferred), "one", "body");
    await receiver.completeMessage(deferred);
  },

  async "session-peek"(context) {
    await context.send(message("a1", { sessionId: "a" }), message("b1", { sessionId: "b" }));
    const receiver = await context.session("b");
    same((await receiver.peekMessages(10)).map(text), ["b1"], "bodies");
  },

  async "session-renew-lock"(context) {
    await context.send(message("one", { sessionId: "a" }));
    const receiver = await context.session("a");
    const got = await context.receiveOne(receiver);
    const before = receiver.sessionLockedUntilUtc;
    while (Date.now() < before.getTime()) {
      const renewed = await receiver.renewSessionLock();
      want(renewed > before, "the renewed lock does not end later");
      await context.receiveNothing(receiver);
    }
    await receiver.completeMessage(got);
  },

  async "session-lock-lost"(context) {
    await context.send(message("one", { sessionId: "a" }));
    const receiver = await context.session("a");
    const got = await context.receiveOne(receiver);
    const other = await context.session();
    same(other.sessionId, "a", "session id");
    const again = await context.receiveOne(other);
    await context.fails(["SessionLockLost"], () => receiver.completeMessage(got));
    await context.fails(["SessionLockLost"], () => receiver.renewSessionLock());
    await other.completeMessage(again);
  },

  async "session-required"(context) {
    const receiver = context.receiver();
    await context.fails(["InvalidOperationError"], () => receiver.receiveMessages(1, { maxWaitTimeInMs: 5000 }));
  },

  async "session-unsupported"(context) {
    // The SDK tells this of every session by id that it does not get.
    await context.fails(["InvalidOperationError", "SessionCannotBeLocked"], () => context.session("a"));
  },

  async "session-missing"(context) {
    const codes = ["InvalidOperationError", "ArgumentError"];
    await context.fails(codes, () => context.send(message("one")));
    const raw = {
      bodyType: "data",
      body: Buffer.from("one"),
      properties: { groupId: "a" },
      messageAnnotations: { "x-opt-partition-key": "b" },
    };
    await context.fails(codes, () => context.send(raw));
  },

  async "topic-all"(context) {
    await context.send(message("one"));
    for (const name of ["first", "second"]) {
      const receiver = context.subscription(name);
      const got = await context.receiveOne(receiver);
      same(text(got), "one", "body");
      await receiver.completeMessage(got);
    }
  },

  async "topic-rules"(context) {
    await context.send(
      message("red", { applicationProperties: { colour: "red" } }),
      message("blue", { subject: "blue" }),
    );
    for (const [name, bodies] of [["all", ["blue", "red"]], ["sql", ["red"]], ["correlation", ["blue"]]]) {
      const receiver = context.subscription(name);
      const messages = await context.receive(receiver, bodies.length);
      same(texts(messages), bodies, `bodies of ${name}`);
      await context.complete(receiver, messages);
      await context.receiveNothing(receiver);
      const mixed = messages[0].applicationProperties?.mixed;
      want(name !== "sql" || mixed === "purple", "the rule's action was not applied");
    }
  },

  async "topic-dead-letter"(context) {
    await context.send(message("one"));
    const receiver = context.subscription("all");
    await receiver.deadLetterMessage(await context.receiveOne(receiver), { deadLetterReason: "a reason" });
    const dead = context.subscription("all", { subQueueType: "deadLetter" });
    const got = await context.receiveOne(dead);
    same(got.deadLetterReason, "a reason", "reason");
    await dead.completeMessage(got);
  },

  async "topic-session"(context) {
    await context.send(message("one", { sessionId: "a" }));
    const receiver = await context.client.acceptNextSession(context.entity, "all");
    same(receiver.sessionId, "a", "session id");
    await receiver.completeMessage(await context.receiveOne(receiver));
  },

  async "rule-manager"(context) {
    const manager = context.client.createRuleManager(context.entity, "all");
    const names = async () => {
      const found = [];
      for await (const rule of manager.listRules()) {
        found.push(rule.name);
      }
      return found.sort();
    };
    same(await names(), ["$Default"], "rules");
    await manager.createRule("sql", { sqlExpression: "colour = 'red'" }, { sqlExpression: "SET mixed = 'purple'" });
    await manager.createRule("correlation", { subject: "blue", applicationProperties: { size: 5 } });
    await context.fails(["MessagingEntityAlreadyExists"], () => manager.createRule("sql", { sqlExpression: "1 = 1" }));
    await manager.deleteRule("$Default");
    await context.fails(["MessagingEntityNotFound"], () => manager.deleteRule("$Default"));
    const rules = {};
    for await (const rule of manager.listRules()) {
      rules[rule.name] = rule;
    }
    same(Object.keys(rules).sort(), ["correlation", "sql"], "rules");
    same(rules.sql.filter.sqlExpression, "colour = 'red'", "filter of sql");
    same(rules.sql.action.sqlExpression, "SET mixed = 'purple'", "action of sql");
    same(rules.correlation.filter.subject, "blue", "subject of correlation");
    same(rules.correlation.filter.applicationProperties, { size: 5 }, "properties of correlation");
    await context.send(
      message("red", { applicationProperties: { colour: "red" } }),
      message("blue", { subject: "blue", applicationProperties: { size: 5 } }),
      message("green", { subject: "green" }),
    );
    const receiver = context.subscription("all");
    const messages = await context.receive(receiver, 2);
    same(texts(messages), ["blue", "red"], "bodies");
    await context.complete(receiver, messages);
    await context.receiveNothing(receiver);
  },
};
