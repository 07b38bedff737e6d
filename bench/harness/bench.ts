/** One run of the benchmarks: the processes that every case needs, started when the first case asks. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
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
  /** A kubeconfig for the benchmark's own API server. */
  readonly kubeconfig: string;
  readonly upstream: Target;
  /** `host:port` of the recorder. */
  recorder(): Promise<RunningRecorder>;
  /** Starts a compiled program of `bench/programs`. */
  launch(program: string, name: string, args: readonly string[]): Promise<LaunchedProgram>;
  say(line: string): void;
}

export interface RunningRecorder {
  readonly address: string;
  readonly pid: number;
  /** Where it keeps recordings. */
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
/** The compiled programs: types are stripped once, not by each process as it starts (which costs memory as well). */
const programs = join(root, 'node_modules', '.cache', 'tailcast', 'bench');
const DAY_MS = 86_400_000;

/**
 * Compiles, and starts upstream and load generator. Stop the rig in the end.
 * @param profiles a folder for CPU profiles of gateways and recorder; they cost some speed
 * @throws Error with the compiler's messages
 */
export async function openBench(say: (line: string) => void, profiles?: string): Promise<Bench> {
  compile();
  const rig = createRig();
  const files = await writeCertificates(join(rig.folder, 'tls'));
  const launch = async (program: string, name: string, args: readonly string[]): Promise<LaunchedProgram> => {
    const launched = rig.launch({
      name,
      path: process.execPath,
      args: [
        ...(profiles !== undefined && program !== 'upstream'
          ? ['--cpu-prof', `--cpu-prof-dir=${join(profiles, name)}`]
          : []),
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
  const load = new LoadGenerator(join(programs, 'bench', 'programs', 'load.js'));
  rig.onStop(() => load.stop());
  let recorder: Promise<RunningRecorder> | undefined;
  const startRecorder = async (): Promise<RunningRecorder> => {
    const folder = join(rig.folder, 'recordings');
    mkdirSync(folder);
    const launched = await launch('recorder', 'recorder', [folder]);
    return { address: `127.0.0.1:${launched.port}`, pid: launched.program.pid, folder };
  };
  return {
    rig,
    files,
    load,
    kubeconfig,
    upstream: { port, ca: files.ca },
    recorder: () => (recorder ??= startRecorder()),
    launch,
    say,
  };
}

function compile(): void {
  const tsc = join(root, 'node_modules', '.bin', 'tsc');
  const built = spawnSync(tsc, ['-p', join(root, 'bench', 'tsconfig.json'), '--outDir', programs], {
    encoding: 'utf8',
  });
  if (built.status !== 0) throw new Error(`${built.stdout}${built.stderr}`);
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
