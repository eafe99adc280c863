// Check a gateway with rhea, or send while the gateway is restarted.
//
// CONNECTION_STRING=… PREFIX=rhea- node rhea_program.js [CHECK ...]
// … keep-sending QUEUE COUNT

import { run } from "./harness.js";
import { RheaContext, keepSending } from "./rhea_bench.js";
import { CHECKS } from "./rhea_checks.js";

const [mode, queue, count] = process.argv.slice(2);
// rhea complains of messages that were under way when the credit for them was given up.
console.error = () => undefined;
let passed = true;
if (mode === "keep-sending") {
  await keepSending(queue, Number(count));
} else {
  const names = process.argv.slice(2);
  const chosen = Object.entries(CHECKS).filter(([name]) => names.length === 0 || names.includes(name));
  passed = await run(
    Object.fromEntries(chosen),
    process.env.PREFIX ?? "rhea-",
    (entity) => new RheaContext(entity),
  );
}
// Whatever a check left open must not keep the process.
process.stdout.write("", () => process.exit(passed ? 0 : 1));
