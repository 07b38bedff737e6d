// Builds `demo/` into `<dist>/demo`, next to the build of `src/`. Usage: `node scripts/build-demo.mjs <dist>`. This
// script is necessary because imports of `../src/` must become imports of `../` in the result, which tsc cannot do.
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformWithOxc } from 'vite';

const demo = fileURLToPath(new URL('../demo', import.meta.url));
const output = join(process.argv[2] ?? 'dist', 'demo');

rmSync(output, { recursive: true, force: true });
mkdirSync(output, { recursive: true });
for (const file of readdirSync(demo).filter((name) => name.endsWith('.ts'))) {
  const path = join(demo, file);
  const { code } = await transformWithOxc(readFileSync(path, 'utf8'), path, {
    sourcemap: false,
    target: 'es2024',
    typescript: { onlyRemoveTypeImports: true, rewriteImportExtensions: true },
  });
  if (code.includes('@oxc-project/runtime'))
    throw new Error(`demo/${file} uses syntax that Node 22 does not have, such as \`using\``);
  writeFileSync(
    join(output, file.replace(/\.ts$/, '.js')),
    code.replaceAll(/((?:from|import\()\s*["']\.\.\/)src\//g, '$1'),
  );
}
