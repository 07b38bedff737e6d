// Builds the file tree of the image from the Dockerfile without a container engine, and tests it:
//
//   npm run image:check [-- --keep] [--compare=<another /app>]
//
// The script executes the COPY instructions of the Dockerfile itself, and fails if it does not support an instruction.
// Then the script starts demo, gateway, recorder and operator from the tree, outside of the repository and with the
// environment of the image. They must not change files below /app.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { builtinModules } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { imageSettings, readDockerfile } from './release/dockerfile.ts';
import { differences } from './release/tree.ts';
import { BUNDLED } from './shipped-packages.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const node = join(root, 'node_modules', 'node', 'bin', 'node');
const scratch = mkdtempSync(join(tmpdir(), 'tailcast-image-'));
/** Maximum compressed size of the image. */
const LIMIT_MB = 250;
/**
 * Compressed size of the base image node:26-slim, rounded up. This size cannot be measured without a container engine.
 */
const BASE_MB = 85;
const START_MS = 60_000;

const results = [];
const children = new Set();
let failed = 0;

process.once('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  if (!process.argv.includes('--keep')) rmSync(scratch, { recursive: true, force: true });
});

const stages = readDockerfile();
const settings = imageSettings(stages);
const folders = new Map();
await check('the Dockerfile is understood and its stages build', buildStages);
const image = folders.get(stages.at(-1).name);
if (failed === 0) {
  const app = join(image, 'app');
  const before = fingerprint(app);
  const other = process.argv.find((word) => word.startsWith('--compare='))?.slice('--compare='.length);
  if (other !== undefined) {
    await check('it is the same tree, file by file', () => {
      const lines = differences(app, other);
      if (lines.length > 0) throw new Error(lines.slice(0, 20).join('\n'));
    });
  }
  await check('every import is satisfied by production dependencies', () => checkImports(app));
  await check('no development dependency is in the tree', () => checkDevelopment(app));
  await check(`it is smaller than ${LIMIT_MB} MB`, () => checkSize(app));
  await check('it has an SBOM and licences', () => checkPapers(app));
  await check('entry point and health check exist', () => checkEntry(app));
  await check('every command has a help', () => checkCommands(app));
  await check('demo: cluster, gateway, recorder, player, ls, play', () => useDemo(app));
  await check('recorder: serves the player, passes the health check, ends on SIGTERM', () =>
    useRecorder(app),
  );
  await check('operator: says what it lacks', () => useOperator(app));
  await check('nothing below /app was written', () => {
    if (fingerprint(app) !== before) throw new Error('files of the image have changed');
  });
}
for (const line of results) console.log(line);
process.exitCode = failed > 0 ? 1 : 0;

async function check(title, work) {
  try {
    const note = await work();
    results.push(`ok    ${title}${note === undefined ? '' : `: ${note}`}`);
  } catch (error) {
    failed += 1;
    results.push(`FAIL  ${title}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function buildStages() {
  const ignored = readFileSync(join(root, '.dockerignore'), 'utf8').split('\n').filter(Boolean);
  for (const stage of stages) {
    if (!/^node:26[.0-9]*-slim@sha256:[0-9a-f]{64}$/.test(stage.base))
      throw new Error(`${stage.base}: this check is about node:26-slim, pinned by digest`);
    const folder = join(scratch, stage.name.replaceAll(' ', '-'));
    mkdirSync(folder);
    folders.set(stage.name, folder);
    let workdir = '/';
    for (const { verb, text } of stage.steps) {
      if (verb === 'WORKDIR') workdir = text;
      else if (verb === 'COPY') copy(text, folder, workdir, ignored);
      else if (verb === 'RUN') runStep(text, join(folder, workdir), stage);
      else if (!['ARG', 'LABEL', 'ENV', 'USER', 'ENTRYPOINT', 'CMD', 'HEALTHCHECK'].includes(verb)) {
        throw new Error(`${String(verb)} is not understood`);
      }
      mkdirSync(join(folder, workdir), { recursive: true });
    }
  }
}

function copy(text, folder, workdir, ignored) {
  const words = text.split(/\s+/);
  const [, from] = /^--from=(.+)$/.exec(words[0]) ?? [];
  const sources = words.slice(from === undefined ? 0 : 1, -1);
  const target = words.at(-1);
  for (const source of sources) {
    if (from === undefined && ignored.some((entry) => source === entry || source.startsWith(`${entry}/`))) {
      throw new Error(`COPY ${source}: .dockerignore leaves it out`);
    }
    const path = from === undefined ? join(root, source) : join(folders.get(from), source);
    if (!existsSync(path)) throw new Error(`COPY ${text}: there is no ${source}`);
    const into = join(folder, resolve(workdir, target));
    const destination = target.endsWith('/') ? join(into, basename(source)) : into;
    mkdirSync(dirname(destination), { recursive: true });
    cpSync(path, destination, { recursive: true, verbatimSymlinks: true });
  }
}

function runStep(text, cwd, stage) {
  const last = stage === stages.at(-1);
  if (last) {
    if (/\/app|node_modules/.test(text)) throw new Error(`RUN ${text}: the last stage may not change /app`);
    return;
  }
  if (/^npm ci (?!--omit=dev)/.test(text)) {
    // The packages of this checkout are linked one by one, so that the tree does not share the caches in node_modules
    // with the checkout.
    mkdirSync(join(cwd, 'node_modules'));
    for (const entry of readdirSync(join(root, 'node_modules'))) {
      if (entry !== '.cache')
        symlinkSync(join(root, 'node_modules', entry), join(cwd, 'node_modules', entry));
    }
    return;
  }
  const PATH = `${join(root, 'node_modules', '.bin')}:${process.env['PATH']}`;
  const { status, stderr, stdout } = spawnSync('sh', ['-c', text], {
    cwd,
    encoding: 'utf8',
    env: { ...process.env, PATH },
  });
  if (status !== 0) throw new Error(`RUN ${text} in stage ${stage.name}:\n${stdout}${stderr}`);
}

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

function fingerprint(folder) {
  const hash = createHash('sha256');
  for (const file of filesBelow(folder).toSorted()) {
    const { size, mtimeMs } = statSync(file);
    hash.update(`${relative(folder, file)} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

/** Checks that every package that the build imports is declared as a dependency and installed in the tree. */
function checkImports(app) {
  const { dependencies, optionalDependencies } = JSON.parse(readFileSync(join(app, 'package.json'), 'utf8'));
  const declared = new Set(Object.keys({ ...dependencies, ...optionalDependencies }));
  const own = filesBelow(join(app, 'dist')).filter(
    (file) => file.endsWith('.js') && !file.includes('/dist/player/'),
  );
  const seen = new Set();
  for (const file of own) {
    for (const [, a, b, c] of readFileSync(file, 'utf8').matchAll(
      /^(?:import|export)\s[^'"]*?from\s*['"]([^'"]+)['"]|^import\s*['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/gm,
    )) {
      const specifier = a ?? b ?? c;
      if (/^(node:|\.|\/)/.test(specifier)) continue;
      const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
      if (builtinModules.includes(name)) continue;
      if (!declared.has(name))
        throw new Error(`${relative(app, file)} imports ${name}, which is not a production dependency`);
      if (!existsSync(join(app, 'node_modules', name))) throw new Error(`${name} is not in the tree`);
      seen.add(name);
    }
  }
  if (own.length < 50 || seen.size < 5)
    throw new Error(`only ${own.length} files and ${seen.size} packages were seen`);
  return `${own.length} files, ${seen.size} packages`;
}

function checkDevelopment(app) {
  const { devDependencies, dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
  const found = Object.keys(devDependencies).filter(
    (name) =>
      dependencies[name] === undefined &&
      lock[`node_modules/${name}`]?.dev === true &&
      existsSync(join(app, 'node_modules', name)),
  );
  if (found.length > 0) throw new Error(found.join(', '));
}

function checkSize(app) {
  const bytes = filesBelow(app).reduce((sum, file) => sum + statSync(file).size, 0);
  const { stdout } = spawnSync('sh', ['-c', 'tar -C "$0" -czf - . | wc -c', app], { encoding: 'utf8' });
  const packed = Number(stdout) / 1e6;
  const total = BASE_MB + packed;
  const note =
    `${Math.ceil(total)} MB to pull (${packed.toFixed(0)} MB ours, ${BASE_MB} MB assumed for the ` +
    `base); /app has ${(bytes / 1e6).toFixed(0)} MB on disk`;
  if (total >= LIMIT_MB) throw new Error(note);
  return note;
}

function checkPapers(app) {
  const { components } = JSON.parse(readFileSync(join(app, 'dist', 'sbom.cdx.json'), 'utf8'));
  const names = new Set(
    components.map(({ group, name }) => (group === undefined ? name : `${group}/${name}`)),
  );
  const licences = readFileSync(join(app, 'dist', 'LICENSES.txt'), 'utf8');
  const installed = Object.keys(JSON.parse(readFileSync(join(app, 'package.json'), 'utf8')).dependencies);
  for (const name of [...installed, ...BUNDLED]) {
    if (!names.has(name)) throw new Error(`${name} is not in the SBOM`);
    if (!licences.includes(`\n${name}@`)) throw new Error(`${name} is not in LICENSES.txt`);
  }
  return `${components.length} packages`;
}

async function checkEntry(app) {
  const { Entrypoint, Healthcheck, User } = settings;
  for (const word of [...Entrypoint, ...Healthcheck.Test].filter((text) => text.startsWith('/app/'))) {
    if (!existsSync(join(app, word.slice('/app/'.length)))) throw new Error(`there is no ${word}`);
  }
  if (!/^\d+:\d+$/.test(User)) throw new Error('USER must be numeric');
  for (const role of ['gateway', 'recorder', 'operator', 'nameserver', 'forwarder', 'ingress']) {
    const tables = await import(join(app, 'dist', 'config', `${role}.js`));
    const { port } = tables[`${role.toUpperCase()}_SETTINGS`].opsListen.fallback;
    if (!Healthcheck.Test.includes(`http://127.0.0.1:${port}/livez`))
      throw new Error(`the health check does not ask the ${role} (port ${port})`);
  }
}

/** Runs a tailcast command with only the files and environment variables of the image. */
function tailcast(app, args, environment = {}) {
  const state = join(scratch, 'state');
  const child = spawn(node, [join(app, 'scripts', 'tailcast.mjs'), ...args], {
    cwd: scratch,
    env: {
      PATH: '/usr/bin:/bin',
      NODE_ENV: 'production',
      XDG_STATE_HOME: state,
      HOME: scratch,
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let output = '';
  const waiting = new Set();
  const onData = (chunk) => {
    output += chunk;
    for (const look of waiting) look();
  };
  child.stdout.on('data', onData);
  child.stderr.on('data', onData);
  const ended = new Promise((done) => {
    child.once('close', (code, signal) => {
      children.delete(child);
      for (const look of waiting) look();
      done({ code, signal, output });
    });
  });
  return {
    child,
    ended,
    /** Waits for the first match in the output. Fails if the process exits or takes too long. */
    until: (pattern) =>
      new Promise((done, fail) => {
        const timer = setTimeout(
          () => stop(() => fail(new Error(`no ${pattern} within ${START_MS} ms:\n${output}`))),
          START_MS,
        );
        const look = () => {
          const match = pattern.exec(output);
          if (match !== null) stop(() => done(match));
          else if (child.exitCode !== null)
            stop(() => fail(new Error(`${args.join(' ')} ended:\n${output}`)));
        };
        const stop = (then) => {
          clearTimeout(timer);
          waiting.delete(look);
          then();
        };
        waiting.add(look);
        look();
      }),
    async end() {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 15_000);
      const result = await ended;
      clearTimeout(timer);
      if (result.signal === 'SIGKILL') throw new Error(`${args.join(' ')} did not end on SIGTERM`);
      return result;
    },
  };
}

async function output(app, args, expected = 0) {
  const { code, output: text } = await tailcast(app, args).ended;
  if (code !== expected) throw new Error(`${args.join(' ')} ended with ${code}:\n${text}`);
  return text;
}

async function checkCommands(app) {
  const help = await output(app, ['--help']);
  const names = [...help.slice(help.indexOf('Commands:')).matchAll(/^ {2}([a-z]+)\b/gm)].map(
    (match) => match[1],
  );
  for (const name of names.filter((word) => word !== 'help')) await output(app, [name, '--help']);
  for (const role of ['gateway', 'recorder', 'operator', 'nameserver', 'forwarder', 'ingress', 'demo']) {
    if (!names.includes(role)) throw new Error(`there is no command ${role}`);
  }
  return names.join(', ');
}

async function useDemo(app) {
  const directory = join(scratch, 'demo');
  const demo = tailcast(app, ['demo', '--directory', directory]);
  const [, player] = await demo.until(/player: (http\S+)/);
  const page = await (await fetch(player)).text();
  if (!page.includes('<script')) throw new Error('the player is not served');
  const listed = await output(app, ['ls', '--recorder', player]);
  if (!/shell/.test(listed)) throw new Error(`ls shows no recording:\n${listed}`);
  const played = await output(app, ['play', 'latest', '--recorder', player, '--speed', '1000']);
  if (played.length === 0) throw new Error('play shows nothing');
  const note = await useGateway(app, directory);
  const { code } = await demo.end();
  if (code !== 0) throw new Error(`demo ended with ${code}`);
  return note;
}

/** Starts another gateway in front of the demo's cluster, and runs the command-line tools. */
async function useGateway(app, directory) {
  const identity = join(scratch, 'identity.json');
  writeFileSync(
    identity,
    JSON.stringify({ nodeId: 'nCHECK', nodeName: 'check.test', login: 'check@example.com' }),
  );
  const ops = `127.0.0.1:${await freePort()}`;
  const settings = [
    '--kubeconfig',
    join(directory, 'upstream.kubeconfig'),
    '--identity',
    'static',
    '--static-identity',
    identity,
  ];
  const gateway = tailcast(app, ['gateway', ...settings, '--listen', '127.0.0.1:0', '--ops-listen', ops]);
  await gateway.until(/gateway is ready/);
  await probe(app, `http://${ops}/livez`);
  const report = JSON.parse((await tailcast(app, ['doctor', 'gateway', ...settings, '--json']).ended).output);
  const api = report.checks.find(({ id }) => id === 'api-server');
  if (api?.status !== 'ok') throw new Error(`doctor: ${JSON.stringify(api)}`);
  if (
    !(await output(app, ['kubeconfig', 'gateway.example.com', '--print'])).includes(
      'https://gateway.example.com',
    )
  ) {
    throw new Error('kubeconfig --print shows no server');
  }
  const { code } = await gateway.end();
  if (code !== 0) throw new Error(`gateway ended with ${code}`);
  return 'and a gateway, doctor, kubeconfig';
}

async function useRecorder(app) {
  const ops = `127.0.0.1:${await freePort()}`;
  const listen = `127.0.0.1:${await freePort()}`;
  const recorder = tailcast(app, ['recorder'], {
    TAILCAST_IDENTITY: 'loopback',
    TAILCAST_LISTEN: listen,
    TAILCAST_STORE: join(scratch, 'recordings'),
    TAILCAST_OPS_LISTEN: ops,
  });
  await recorder.until(/recorder is ready/);
  if (!(await (await fetch(`http://${listen}/`)).text()).includes('<script')) throw new Error('no player');
  await probe(app, `http://${ops}/livez`);
  const { code } = await recorder.end();
  if (code !== 0) throw new Error(`it ended with ${code}`);
}

async function useOperator(app) {
  const text = await output(app, ['operator'], 2);
  if (!/^tailcast: /m.test(text) || /\n\s+at /.test(text)) throw new Error(`not one sentence:\n${text}`);
}

async function probe(app, url) {
  const { status, stderr } = spawnSync(node, [join(app, 'dist', 'observe', 'health-probe.js'), url], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`the health check of ${url} fails: ${stderr}`);
}

function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}
