/**
 * Runs credential plugins: commands that a kubeconfig names, and that print an `ExecCredential`. Source:
 * `client.authentication.k8s.io` v1 and v1beta1, `k8s.io/client-go/plugin/pkg/client/auth/exec`.
 */
import { execFile } from 'node:child_process';
import { sep } from 'node:path';
import { z } from 'zod';
import { TailcastError, errorText } from '../errors.ts';
import {
  cacheCredential,
  type CredentialSource,
  type TimedCredential,
  type UserCredentialOptions,
} from './credential-cache.ts';
import { pathInKubeconfig, type KubeconfigCluster, type KubeconfigExec } from './kubeconfig.ts';

export interface ExecCredentialOptions extends UserCredentialOptions {
  readonly spec: KubeconfigExec;
  /** Returns the cluster information for plugins with `provideClusterInfo`; called before each run. */
  readonly cluster: () => Promise<ClusterInfo>;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

type ClusterInfo = Pick<
  KubeconfigCluster,
  'server' | 'tls-server-name' | 'insecure-skip-tls-verify' | 'certificate-authority-data'
>;

const VERSIONS: ReadonlySet<string> = new Set([
  'client.authentication.k8s.io/v1',
  'client.authentication.k8s.io/v1beta1',
]);
const TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;
/** Minimum time between two runs, also after a failed run. */
const MIN_INTERVAL_MS = 1_000;

/** @throws TailcastError `CONFIG_INVALID` immediately for an unsupported spec */
export function createExecCredentialSource(options: ExecCredentialOptions): CredentialSource {
  const { spec } = options;
  if (!VERSIONS.has(spec.apiVersion)) {
    fail(options, `apiVersion is "${spec.apiVersion}"; use client.authentication.k8s.io/v1`);
  }
  if (spec.interactiveMode === 'Always') {
    fail(options, 'interactiveMode is Always, but there is no terminal here; use a plugin that does not ask');
  }
  return cacheCredential(() => runPlugin(options), options.wallClock, MIN_INTERVAL_MS);
}

async function runPlugin(options: ExecCredentialOptions): Promise<TimedCredential> {
  const { spec, file, environment } = options;
  const cluster = spec.provideClusterInfo === true ? { cluster: await options.cluster() } : {};
  const info = {
    apiVersion: spec.apiVersion,
    kind: 'ExecCredential',
    spec: { ...cluster, interactive: false },
  };
  const env = { ...environment, KUBERNETES_EXEC_INFO: JSON.stringify(info) };
  for (const { name, value } of spec.env ?? []) Object.assign(env, { [name]: value });
  const command = spec.command.includes(sep) ? pathInKubeconfig(spec.command, file) : spec.command;
  const output = await new Promise<string>((resolve, reject) => {
    const child = execFile(
      command,
      spec.args ?? [],
      { env, timeout: options.timeoutMs ?? TIMEOUT_MS, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT_BYTES },
      (error, stdout, stderr) => {
        if (error === null) resolve(stdout);
        else reject(pluginError(options, command, error, stderr));
      },
    );
    // The standard input is closed, so that a plugin that reads it does not wait.
    child.stdin?.on('error', () => {});
    child.stdin?.end();
  });
  return parseOutput(options, output);
}

function pluginError(
  options: ExecCredentialOptions,
  command: string,
  error: Error & { readonly code?: unknown; readonly killed?: boolean },
  stderr: string,
): TailcastError {
  const hint = options.spec.installHint?.trim();
  if (error.code === 'ENOENT') {
    return problem(
      options,
      `the command ${command} was not found; ${hint ?? 'install it or fix its path'}`,
      error,
    );
  }
  if (error.killed === true) return problem(options, `${command} did not finish in time`, error);
  const said = stderr.trim().split('\n').at(-1)?.slice(0, 300) ?? '';
  return problem(options, `${command} failed: ${said === '' ? errorText(error).slice(0, 300) : said}`, error);
}

const outputSchema = z.object({
  apiVersion: z.string(),
  kind: z.literal('ExecCredential'),
  status: z.object({
    token: z.string().optional(),
    clientCertificateData: z.string().optional(),
    clientKeyData: z.string().optional(),
    expirationTimestamp: z.iso.datetime({ offset: true }).nullish(),
  }),
});

function parseOutput(options: ExecCredentialOptions, output: string): TimedCredential {
  const { apiVersion } = options.spec;
  let document: unknown;
  try {
    document = JSON.parse(output);
  } catch (cause) {
    throw problem(options, 'the command printed something that is not JSON', cause);
  }
  const result = outputSchema.safeParse(document);
  if (!result.success) throw problem(options, 'the command printed no usable ExecCredential', result.error);
  if (result.data.apiVersion !== apiVersion) {
    throw problem(options, `the command answered with ${result.data.apiVersion}, not ${apiVersion}`);
  }
  const { token, clientCertificateData, clientKeyData, expirationTimestamp } = result.data.status;
  if ((clientCertificateData === undefined) !== (clientKeyData === undefined)) {
    throw problem(options, 'the command printed only one of clientCertificateData and clientKeyData');
  }
  const certificate =
    clientCertificateData === undefined || clientKeyData === undefined
      ? undefined
      : { cert: clientCertificateData, key: clientKeyData };
  if ((token === undefined || token === '') && certificate === undefined) {
    throw problem(options, 'the command printed neither a token nor a client certificate');
  }
  return {
    token: token === '' ? undefined : token,
    certificate,
    expiresAtMs:
      typeof expirationTimestamp === 'string' ? Date.parse(expirationTimestamp) : Number.POSITIVE_INFINITY,
  };
}

function fail(options: ExecCredentialOptions, text: string): never {
  throw problem(options, text);
}

function problem({ file, userName }: ExecCredentialOptions, text: string, cause?: unknown): TailcastError {
  return new TailcastError('CONFIG_INVALID', `kubeconfig ${file}: users[${userName}].user.exec: ${text}`, {
    cause,
  });
}
