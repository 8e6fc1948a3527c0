// Takes out of package-lock.json what is not installed: optional packages that package.json does not name, and addresses of registries.

import { readFileSync, writeFileSync } from "node:fs";

const file = "package-lock.json";
const lock = JSON.parse(readFileSync(file, "utf8"));
const wanted = lock.packages[""].optionalDependencies;
for (const [place, entry] of Object.entries(lock.packages)) {
  if (place === "") continue;
  delete entry.resolved;
  delete entry.optionalDependencies;
  if (entry.optional && !(place.split("node_modules/").pop() in wanted)) delete lock.packages[place];
}
writeFileSync(file, JSON.stringify(lock, null, 2) + "\n");
