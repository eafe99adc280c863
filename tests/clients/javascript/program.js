// Check a gateway with the JavaScript SDK, or send and receive messages of every type.
//
// CONNECTION_STRING=… PREFIX=javascript- node program.js [CHECK ...]
// … send-types QUEUE
// … receive-types QUEUE COUNT

import { CHECKS } from "./checks.js";
import { run } from "./harness.js";
import { receiveTypes, sendTypes } from "./message_types.js";

const [mode, queue, count] = process.argv.slice(2);
let passed = true;
if (mode === "send-types") {
  await sendTypes(queue);
} else if (mode === "receive-types") {
  await receiveTypes(queue, Number(count));
} else {
  const names = process.argv.slice(2);
  const chosen = Object.entries(CHECKS).filter(([name]) => names.length === 0 || names.includes(name));
  passed = await run(Object.fromEntries(chosen), process.env.PREFIX ?? "javascript-");
}
// Whatever a check left open must not keep the process.
process.stdout.write("", () => process.exit(passed ? 0 : 1));
