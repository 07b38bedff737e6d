/**
 * Writes `src/wire/asciicast/json-escape-module.ts` from the `.wat` file in the same folder.
 *
 *   npm run wasm:generate
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import wabt from 'wabt';

const folder = new URL('../src/wire/asciicast/', import.meta.url);
const source = fileURLToPath(new URL('json-escape.wat', folder));
export const MODULE_PATH = fileURLToPath(new URL('json-escape-module.ts', folder));

/** Returns the source text of a module that contains the WebAssembly program. */
export async function wasmModule(): Promise<string> {
  const { parseWat } = await wabt();
  const parsed = parseWat(source, readFileSync(source, 'utf8'), { simd: true });
  const { buffer } = parsed.toBinary({});
  parsed.destroy();
  const base64 = Buffer.from(buffer).toString('base64');
  return (
    `/** \`json-escape.wat\` in base64. Made by \`npm run wasm:generate\`. Do not edit. */\nexport const ` +
    `JSON_ESCAPE_MODULE =\n  '${base64}';\n`
  );
}

if (import.meta.main) writeFileSync(MODULE_PATH, await wasmModule());
