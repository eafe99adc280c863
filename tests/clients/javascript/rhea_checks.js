// The checks with rhea, by name.

import rhea from "rhea";

import { SETTLED, event, keyed, numbers, pause, same, text, want } from "./rhea_bench.js";

const { types, filter } = rhea;
const REFUSED = ["amqp:not-implemented", "amqp:not-allowed", "amqp:invalid-field", "amqp:precondition-failed"];
const GUID_ORDER = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15]; // of a lock token's bytes in a delivery's tag

/** Fail unless lists have the same elements; both are sorted. */
function sameBodies(got, wanted, what) {
  const missing = wanted.filter((body) => !got.includes(body));
  const more = got.filter((body, index) => !wanted.includes(body) || got.indexOf(body) !== index);
  want(missing.length + more.length === 0, `${what}: missing ${missing}, too many ${more}`);
}

/** Return the bytes of a message with sections that rhea itself would not write. */
function encoded(body, sections) {
  const writer = new types.Writer();
  for (const [code, content] of sections) {
    writer.write(types.described(types.wrap_ulong(code), content));
  }
  writer.write(types.described(types.wrap_ulong(0x75), types.wrap_binary(Buffer.from(body))));
  return writer.toBuffer();
}

const HEADER = 0x70;
const ANNOTATIONS = 0x72;
const PROPERTIES = 0x73;
const FOOTER = 0x78;
const KEY = [ANNOTATIONS, types.wrap_symbolic_map({ "x-opt-partition-key": types.wrap_string("key") })];
const nulls = (count) => Array.from({ length: count }, () => null);

/** Messages whose sections have values that AMQP does not allow there. */
const ODD = {
  "content-type": [KEY, [PROPERTIES, types.wrap_list([...nulls(6), types.wrap_symbol("täxt/plain")])]],
  "content-encoding": [KEY, [PROPERTIES, types.wrap_list([...nulls(7), types.wrap_symbol("gzïp")])]],
  "group-sequence -1": [KEY, [PROPERTIES, types.wrap_list([...nulls(11), types.wrap_int(-1)])]],
  "group-sequence text": [KEY, [PROPERTIES, types.wrap_list([...nulls(11), types.wrap_string("first")])]],
  "group-sequence 2^40": [KEY, [PROPERTIES, types.wrap_list([...nulls(11), types.wrap_ulong(2 ** 40)])]],
  "priority 300": [[HEADER, types.wrap_list([null, types.wrap_uint(300)])], KEY],
  "priority text": [[HEADER, types.wrap_list([null, types.wrap_string("high")])], KEY],
  "time to live -1": [[HEADER, types.wrap_list([null, null, types.wrap_int(-1)])], KEY],
  "annotation's key": [
    [
      ANNOTATIONS,
      types.wrap_symbolic_map({ "x-opt-partition-key": types.wrap_string("key"), "x-ä": types.wrap_string("value") }),
    ],
  ],
  "footer's key": [KEY, [FOOTER, types.wrap_symbolic_map({ "x-ä": types.wrap_string("value") })]],
};

export const CHECKS = {
  async "send-via"(context) {
    await context.refuses(REFUSED, "transfer-destination-address", () =>
      context.sender(context.entity, {
        properties: { "com.microsoft:transfer-destination-address": `${context.entity}-2` },
      }),
    );
    same(await context.drain(), [], "what was stored");
  },

  async browse(context) {
    await context.sendNumbers(40);
    for (const options of [{}, { snd_settle_mode: SETTLED }]) {
      const receiver = await context.receiver({ distribution_mode: "copy" }, options);
      receiver.add_credit(100);
      sameBodies(await context.quiet(receiver), numbers(40), "what was browsed");
      same(receiver.source.distribution_mode, "copy", "the answer's distribution mode");
      receiver.close();
    }
    sameBodies(await context.drain(), numbers(40), "what is left");
  },

  async selector(context) {
    await context.sendNumbers(5);
    await context.refuses(REFUSED, "selector", () => context.receiver({ filter: filter.selector("colour = 'red'") }));
    sameBodies(await context.drain(), numbers(5), "what is left");
  },

  async "filter-unknown"(context) {
    await context.sendNumbers(5);
    const unknown = { "kafkabus:unknown": types.wrap_described("red", "kafkabus:unknown:string") };
    await context.refuses(REFUSED, "kafkabus:unknown", () => context.receiver({ filter: unknown }));
    sameBodies(await context.drain(), numbers(5), "what is left");
  },

  async "filter-answer"(context) {
    const receiver = await context.receiver();
    same(Object.keys(receiver.source.filter ?? {}), [], "the filters in force");
    await context.send([{ ...keyed("one"), group_id: "key" }], await context.sender(`${context.entity}-2`));
    const session = await context.receiver({
      address: `${context.entity}-2`,
      filter: { "com.microsoft:session-filter": "key" },
    });
    same(Object.keys(session.source.filter), ["com.microsoft:session-filter"], "the filters in force");
  },

  async "receive-and-delete-stopped"(context) {
    const all = numbers(3_000);
    const sender = await context.sender();
    for (let first = 0; first < all.length; first += 500) {
      const deliveries = all.slice(first, first + 500).map((body) => sender.send(keyed(body)));
      while (!deliveries.every(({ remote_settled: settled }) => settled)) {
        await pause(10);
      }
    }
    const connection = await context.connection();
    const received = [];
    for (let round = 0; round < 150; round++) {
      const receiver = connection.open_receiver({
        source: context.entity,
        snd_settle_mode: SETTLED,
        credit_window: 0,
        name: `stopped-${round}`,
      });
      receiver.on("message", ({ message }) => received.push(text(message)));
      await event(receiver, "receiver_open");
      receiver.add_credit(100);
      await pause(round % 15);
      // No more, please: and then the link is closed.
      receiver.credit = 0;
      receiver.issue_flow = true;
      receiver.close();
      await event(receiver, "receiver_close");
    }
    const came = received.length;
    received.push(...(await context.drain()));
    sameBodies(received.sort(), all, `what came (${came}) and what was left`);
  },

  async "credit-huge"(context) {
    for (const credit of [2 ** 31, 2 ** 32 - 1]) {
      await context.sendNumbers(10);
      const receiver = await context.receiver();
      receiver.add_credit(credit);
      sameBodies(await context.quiet(receiver), numbers(10), `what came with a credit of ${credit}`);
      // If they were released, they would come again at once, and be locked when the link is closed.
      receiver.got.forEach(({ delivery }) => delivery.accept());
      await pause(500);
      receiver.close();
    }
    same(await context.drain(), [], "what is left");
  },

  async "lock-token"(context) {
    await context.sendNumbers(2);
    const receiver = await context.receiver();
    receiver.add_credit(1);
    await context.quiet(receiver);
    const [{ message, delivery }] = receiver.got;
    const token = message.delivery_annotations?.["x-opt-lock-token"];
    want(token, "a locked message's delivery annotations have no x-opt-lock-token");
    const tag = Buffer.from(GUID_ORDER.map((at) => delivery.tag[at]));
    same(Buffer.from(token.value ?? token).toString("hex"), tag.toString("hex"), "the lock token");
    delivery.accept();
    const deleting = await context.receiver({}, { snd_settle_mode: SETTLED });
    deleting.add_credit(1);
    await context.quiet(deleting);
    same(deleting.got[0].message.delivery_annotations?.["x-opt-lock-token"], undefined, "the token of a deleted message");
  },

  async "odd-messages"(context) {
    const sender = await context.sender();
    const accepted = [];
    const forms = Object.entries(ODD);
    for (const [at, [name, sections]] of forms.entries()) {
      const good = numbers(forms.length)[at];
      want((await context.send([keyed(good)], sender))[0], "a good message was refused");
      accepted.push(good);
      if ((await context.send([encoded(name, sections)], sender))[0]) {
        accepted.push(name);
      }
    }
    const receiver = await context.receiver();
    receiver.add_credit(100);
    sameBodies(await context.quiet(receiver), accepted, "what was accepted");
    const counts = receiver.got.map(({ message }) => message.delivery_count ?? 0);
    want(counts.every((count) => count === 0), `delivery counts are ${counts}`);
    receiver.got.forEach(({ delivery }) => delivery.accept());
    await pause(500);
    receiver.close();
    same(await context.drain(), [], "what is left");
    same(await context.drain(`${context.entity}/$deadletterqueue`), [], "what was dead-lettered");
  },
};
