/** One run of the benchmarks, with the processes that all cases share. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { issueAuthority, issueServer } from '../../src/tailnet/issue-certificate.ts';
import { createRig, type Program, type Rig } from '../../test/real/rig/rig.ts';
import type { Target } from '../programs/plan.ts';
import { LoadGenerator } from './load-generator.ts';

export interface Bench {
  readonly rig: Rig;
  readonly files: CertificateFiles;
  readonly load: LoadGenerator;
  /** Second load generator, for background load during a measurement. */
  readonly beside: LoadGenerator;
  /** Path of a kubeconfig for the benchmark's own API server. */
  readonly kubeconfig: string;
  readonly upstream: Target;
  /** Returns the recorder, which starts at its first use. */
  recorder(version?: Version): Promise<RunningRecorder>;
  /** Starts a compiled program of `bench/programs`. */
  launch(program: string, name: string, args: readonly string[], version?: Version): Promise<LaunchedProgram>;
  say(line: string): void;
}

/** `here`: the compiled programs of this checkout; `before`: those of the checkout for comparison. */
export type Version = 'here' | 'before';

export interface BenchOptions {
  /** A folder for CPU profiles of gateways and recorders. Profiling makes these processes slightly slower. */
  readonly profiles?: string | undefined;
  /** Another checkout, to compare with this one. Its packages must be installed. */
  readonly before?: string | undefined;
  /** Flags for Node.js in the processes of gateways. */
  readonly flags?: readonly string[] | undefined;
}

export interface RunningRecorder {
  readonly address: string;
  readonly pid: number;
  /** Folder of the recorder's recordings. */
  readonly folder: string;
}

export interface LaunchedProgram {
  readonly program: Program;
  readonly port: number;
}

export interface CertificateFiles {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** Certificate and key in one file. */
  readonly both: string;
}

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const DAY_MS = 86_400_000;

/**
 * Compiles the programs, and starts the upstream server and the load generator. The caller must stop the returned
 * object.
 * @throws Error with the compiler's messages
 */
export async function openBench(
  say: (line: string) => void,
  { profiles, before, flags = [] }: BenchOptions = {},
): Promise<Bench> {
  const programsOf = { here: compile(root), before: before === undefined ? undefined : compile(before) };
  const rig = createRig();
  const files = await writeCertificates(join(rig.folder, 'tls'));
  const launch = async (
    program: string,
    name: string,
    args: readonly string[],
    version: Version = 'here',
  ): Promise<LaunchedProgram> => {
    const programs = programsOf[version];
    if (programs === undefined) throw new Error('there is no other checkout to compare with');
    const launched = rig.launch({
      name,
      path: process.execPath,
      args: [
        ...(profiles !== undefined && program !== 'upstream'
          ? ['--cpu-prof', `--cpu-prof-dir=${join(profiles, name)}`]
          : []),
        ...(program === 'gateway' ? flags : []),
        join(programs, 'bench', 'programs', `${program}.js`),
        ...args,
      ],
      stopSignal: 'SIGTERM',
    });
    const ready = await rig.until(name, () => launched.firstLine, { watch: [launched] });
    return { program: launched, port: Number(ready['port']) };
  };
  const { port } = await launch('upstream', 'upstream', [files.cert, files.key]);
  const kubeconfig = join(rig.folder, 'kubeconfig');
  writeFileSync(kubeconfig, kubeconfigFor(port, files.ca));
  const load = new LoadGenerator(join(programsOf.here, 'bench', 'programs', 'load.js'));
  const beside = new LoadGenerator(join(programsOf.here, 'bench', 'programs', 'load.js'));
  rig.onStop(() => load.stop());
  rig.onStop(() => beside.stop());
  const recorders = new Map<Version, Promise<RunningRecorder>>();
  const startRecorder = async (version: Version): Promise<RunningRecorder> => {
    const name = version === 'here' ? 'recorder' : 'before-recorder';
    const folder = join(rig.folder, `${name}-files`);
    mkdirSync(folder);
    const launched = await launch('recorder', name, [folder], version);
    return { address: `127.0.0.1:${launched.port}`, pid: launched.program.pid, folder };
  };
  return {
    rig,
    files,
    load,
    beside,
    kubeconfig,
    upstream: { port, ca: files.ca },
    recorder(version = 'here') {
      const started = recorders.get(version) ?? startRecorder(version);
      recorders.set(version, started);
      return started;
    },
    launch,
    say,
  };
}

/** Compiles the programs of a checkout, so that processes need not strip types at their start. @returns their folder */
function compile(checkout: string): string {
  const modules = join(checkout, 'node_modules');
  const programs = join(modules, '.cache', 'tailcast', 'bench');
  const tsc = join(modules, '.bin', 'tsc');
  const built = spawnSync(tsc, ['-p', join(checkout, 'bench', 'tsconfig.json'), '--outDir', programs], {
    encoding: 'utf8',
  });
  if (built.error !== undefined) throw new Error(`${checkout}: ${built.error.message}`);
  if (built.status !== 0) throw new Error(`${built.stdout}${built.stderr}`);
  // the programs read their version from `package.json` in the parent directory
  copyFileSync(join(checkout, 'package.json'), join(programs, 'package.json'));
  return programs;
}

async function writeCertificates(folder: string): Promise<CertificateFiles> {
  mkdirSync(folder);
  const nowMs = Date.now();
  const authority = await issueAuthority({ nowMs, validMs: DAY_MS });
  const pair = await issueServer(authority, { names: ['localhost', '127.0.0.1'], nowMs, validMs: DAY_MS });
  const files = {
    ca: join(folder, 'ca.pem'),
    cert: join(folder, 'cert.pem'),
    key: join(folder, 'key.pem'),
    both: join(folder, 'both.pem'),
  };
  writeFileSync(files.ca, authority.certificatePem);
  writeFileSync(files.cert, pair.certificatePem);
  writeFileSync(files.key, pair.keyPem, { mode: 0o600 });
  writeFileSync(files.both, `${pair.certificatePem}\n${pair.keyPem}`, { mode: 0o600 });
  return files;
}

function kubeconfigFor(port: number, ca: string): string {
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      { name: 'bench', cluster: { server: `https://localhost:${port}`, 'certificate-authority': ca } },
    ],
    users: [{ name: 'bench', user: { token: 'bench' } }],
    contexts: [{ name: 'bench', context: { cluster: 'bench', user: 'bench' } }],
    'current-context': 'bench',
  });
}
