import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync } from 'node:zlib';
import { build, defineConfig, type Plugin } from 'vite';

const START = 'start';
const OFFLINE_MODULE = 'virtual:offline-page';

/** Writes a compressed copy of each file that the page loads at its start. The offline page is loaded only by exports. */
function compressed(): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    writeBundle({ dir = '' }, bundle) {
      for (const [name, file] of Object.entries(bundle)) {
        if (name.includes('offline')) continue;
        // brotli's default quality is its maximum
        const content = brotliCompressSync(file.type === 'chunk' ? file.code : file.source);
        writeFileSync(join(dir, `${name}.br`), content);
      }
    },
  };
}

/**
 * The page of an exported recording: one file that contains its script and its style. Its policy allows only these two.
 * The player imports the page as a module, and the command line imports the same module as `offline.js`.
 */
function offlinePage(): Plugin {
  return {
    name: 'offline-page',
    resolveId: (id) => (id === OFFLINE_MODULE ? `\0${OFFLINE_MODULE}` : undefined),
    load: async (id) =>
      id === `\0${OFFLINE_MODULE}`
        ? `export default ${JSON.stringify(await buildOfflinePage())};`
        : undefined,
    generateBundle(_, bundle) {
      const chunk = Object.values(bundle).find(
        (file) => file.type === 'chunk' && file.moduleIds.includes(`\0${OFFLINE_MODULE}`),
      );
      if (chunk === undefined) throw new Error('the player does not contain the offline page');
      const source = `export { default } from './${chunk.fileName}';\n`;
      this.emitFile({ type: 'asset', fileName: 'offline.js', source });
    },
  };
}

async function buildOfflinePage(): Promise<string> {
  const built = await build({
    configFile: false,
    root: 'src/player',
    logLevel: 'warn',
    build: {
      write: false,
      target: 'es2022',
      cssCodeSplit: false,
      modulePreload: false,
      rollupOptions: {
        input: 'src/player/offline.tsx',
        output: { format: 'iife' },
        checks: { pluginTimings: false },
      },
    },
  });
  const [result] = [built].flat();
  if (result === undefined || !('output' in result)) throw new Error('the offline page was not built');
  let script = '';
  let style = '';
  for (const file of result.output) {
    if (file.type === 'chunk') script += file.code;
    else if (file.fileName.endsWith('.css')) style += Buffer.from(file.source).toString();
    else throw new Error(`the offline page wants another file: ${file.fileName}`);
  }
  // a script ends where this stands, whatever it is in
  if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style)) throw new Error('it cannot stand in a page');
  const digest = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  const policy = [
    "default-src 'none'",
    `script-src ${digest(script)}`,
    `style-src ${digest(style)}`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  return [
    '<!doctype html>',
    '<html lang="en">',
    '<head>',
    '<meta charset="utf-8" />',
    `<meta http-equiv="Content-Security-Policy" content="${policy}" />`,
    '<meta name="viewport" content="width=device-width, initial-scale=1" />',
    '<meta name="color-scheme" content="light dark" />',
    '<title>tailcast recording</title>',
    `<style>${style}</style>`,
    '</head>',
    '<body>',
    '<div id="app"><p class="notice">Loading…</p></div>',
    '<noscript>The player needs JavaScript.</noscript>',
    // first, so that a file that was cut off can say so
    `<script>${script}</script>`,
    '<!--bundle-->',
    '</body>',
    '</html>',
    '',
  ].join('\n');
}

/** Adds the script with the first requests to the page. It runs as soon as it is loaded, before the style sheet is. */
function startScript(): Plugin {
  return {
    name: 'start-script',
    transformIndexHtml: {
      order: 'post',
      handler(_html, { filename, bundle }) {
        const start = Object.values(bundle ?? {}).find(
          (file) => file.type === 'chunk' && file.name === START,
        );
        if (start === undefined || !filename.endsWith('index.html')) return [];
        const attrs = { type: 'module', async: true, crossorigin: true, src: `./${start.fileName}` };
        return [{ tag: 'script', attrs, injectTo: 'head-prepend' }];
      },
    },
  };
}

export default defineConfig({
  root: 'src/player',
  base: './',
  plugins: [offlinePage(), startScript(), compressed()],
  build: {
    outDir: '../../dist/player',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: {
        index: 'src/player/index.html',
        access: 'src/player/access.html',
        [START]: 'src/player/start.ts',
      },
      checks: { pluginTimings: false },
    },
  },
});
