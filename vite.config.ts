import { brotliCompressSync, constants } from 'node:zlib';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type Plugin } from 'vite';

/** Writes what is served compressed beside each file, once, and as small as it gets. */
function compressed(): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    writeBundle({ dir = '' }, bundle) {
      for (const [name, file] of Object.entries(bundle)) {
        const content = Buffer.from(file.type === 'chunk' ? file.code : file.source);
        const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
        writeFileSync(join(dir, `${name}.br`), brotliCompressSync(content, { params }));
      }
    },
  };
}

export default defineConfig({
  root: 'src/player',
  base: './',
  plugins: [compressed()],
  build: { outDir: '../../dist/player', emptyOutDir: true, target: 'es2022', assetsInlineLimit: 0 },
});
