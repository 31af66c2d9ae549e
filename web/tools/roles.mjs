// Writes src/api/roles.ts: which role each operation of the API needs at least, from `x-least-role` of its document. So the pages
// offer to each user what the node would do for that user, and a new operation needs nothing here.
import { readFileSync, writeFileSync } from "node:fs";

const { paths } = JSON.parse(readFileSync(new URL("../../docs/openapi.json", import.meta.url), "utf8"));
const lines = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods)
    .filter(([, operation]) => operation["x-least-role"])
    .map(([method, operation]) => `  "${method.toUpperCase()} ${path}": "${operation["x-least-role"]}",`),
);
const text = `// Made by tools/roles.mjs from docs/openapi.json.\nexport const LEAST_ROLE = {\n${lines.join("\n")}\n} as const;\n`;
writeFileSync(new URL("../src/api/roles.ts", import.meta.url), text);
