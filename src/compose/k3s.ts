/**
 * `tailcast gateway --k3s`: prepares a gateway on a k3s server. Logs the machine in to the tailnet with the value of
 * k3s' `--vpn-auth`, creates a ServiceAccount with the rights to impersonate and to create its own tokens, and renews
 * the token of this account.
 *
 * The admin kubeconfig of k3s is read once. Afterwards the gateway uses its own account from the state directory.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { pause } from '../async/pause.ts';
import { readConfigFile } from '../config/file.ts';
import { GATEWAY_SETTINGS, type GatewayConfig } from '../config/gateway.ts';
import { makeDirectories, replaceFile } from '../directories.ts';
import { createApiClient, type ApiClient } from '../doctor/api-client.ts';
import { errorReason, errorText, TailcastError } from '../errors.ts';
import { checkFormat, GATEWAY_STATE_FORMAT, markFormat } from '../folder-format.ts';
import { createApiServer, type ApiServer } from '../kube/api-server.ts';
import { impersonationRbac } from '../kube/impersonation-rbac.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import type { TailnetNode } from '../tailnet/tailnet-status.ts';
import { joinTailnet, parseVpnAuth } from '../tailnet/vpn-auth.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import type { CleanUp } from './clean-up.ts';
import type { GatewayOptions } from './gateway-parts.ts';

const CONFIG_PATH = '/etc/rancher/k3s/config.yaml';
const ADMIN_PATH = '/etc/rancher/k3s/k3s.yaml';
const NAMESPACE = 'tailcast';
const ACCOUNT = 'tailcast-gateway';
/** Requested lifetime of a token, in seconds. */
const TOKEN_SECONDS = 30 * 86_400;
const RENEW_EVERY_MS = 3_600_000;
const REQUEST_MS = 15_000;

/** Kubeconfig of the gateway's own account, in its state directory. */
export function k3sKubeconfig(stateDirectory: string): string {
  return join(stateDirectory, 'k3s', 'kubeconfig');
}

/**
 * Returns the settings with the kubeconfig of the gateway's account and, unless `listen` is set, the address of the
 * tailnet node. Creates this account only if the state directory contains no kubeconfig for it yet.
 *
 * @throws TailcastError `CONFIG_INVALID`, `TAILNET_UNAVAILABLE`
 */
export async function prepareK3s(
  { config, environment, log }: GatewayOptions,
  stateDirectory: string,
  stack: CleanUp,
): Promise<{ readonly config: GatewayConfig; readonly nodeName: string | undefined }> {
  const abort = new AbortController();
  stack.defer(() => abort.abort());
  const { signal } = abort;
  const k3s = await readK3sSettings(environment);
  const node = await joinedNode(config, k3s, signal);
  await checkFormat(stateDirectory, GATEWAY_STATE_FORMAT);
  await makeDirectories(join(stateDirectory, 'k3s'));
  await markFormat(stateDirectory, GATEWAY_STATE_FORMAT);
  const kubeconfig = k3sKubeconfig(stateDirectory);
  if (!(await isFile(kubeconfig))) {
    const admin = config.kubeconfig ?? textOf(k3s, 'write-kubeconfig') ?? ADMIN_PATH;
    await createAccount(admin, config, stateDirectory, signal);
    log.info(
      { account: `${NAMESPACE}/${ACCOUNT}`, from: admin },
      'created the account of the gateway in k3s',
    );
  }
  const account = await openTokens(stateDirectory, signal);
  void account.follow((error) =>
    log.error({ error: errorText(error) }, 'the token of the k3s account was not renewed'),
  );
  const isDefault = config.listen === GATEWAY_SETTINGS.listen.fallback && config.proxyProtocol === 'off';
  const host = isDefault ? node?.addresses.find((address) => address.includes('.')) : undefined;
  const listen = host === undefined ? config.listen : { ...config.listen, host };
  return { config: { ...config, kubeconfig, context: undefined, listen }, nodeName: node?.name };
}

/**
 * Returns the settings of k3s. The environment takes precedence over `config.yaml.d`, and this directory over
 * `config.yaml`.
 */
async function readK3sSettings(
  environment: ReadonlyMap<string, string>,
): Promise<ReadonlyMap<string, unknown>> {
  const path = environment.get('K3S_CONFIG_FILE') ?? CONFIG_PATH;
  const more = await readdir(`${path}.d`).catch(() => []);
  const files = [
    path,
    ...more
      .filter((name) => /\.ya?ml$/.test(name))
      .toSorted()
      .map((name) => join(`${path}.d`, name)),
  ];
  const settings = new Map<string, unknown>();
  for (const file of files) {
    if (!(await isFile(file))) continue;
    for (const [key, value] of readConfigFile(file).entries) settings.set(key, value);
  }
  for (const [variable, key] of VARIABLES) {
    const value = environment.get(variable);
    if (value !== undefined && value !== '') settings.set(key, value);
  }
  return settings;
}

const VARIABLES = [
  ['K3S_VPN_AUTH', 'vpn-auth'],
  ['K3S_VPN_AUTH_FILE', 'vpn-auth-file'],
  ['K3S_KUBECONFIG_OUTPUT', 'write-kubeconfig'],
] as const;

function textOf(settings: ReadonlyMap<string, unknown>, key: string): string | undefined {
  const value = settings.get(key);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Logs this machine in to the tailnet, if necessary. Returns its tailnet node; undefined with a static identity. */
async function joinedNode(
  config: GatewayConfig,
  k3s: ReadonlyMap<string, unknown>,
  signal: AbortSignal,
): Promise<TailnetNode | undefined> {
  if (config.identity === 'static') return undefined;
  const text = await vpnAuthText(config.vpnAuth, k3s);
  const localApi = createLocalApi({ socketPath: config.socket ?? '' });
  try {
    const auth = text === undefined ? undefined : parseVpnAuth(text);
    return await joinTailnet(localApi, auth, signal);
  } finally {
    localApi.close();
  }
}

/**
 * Returns the value for `--vpn-auth`. A value that begins with a slash is the path of a file. In the settings of k3s,
 * `vpn-auth-file` takes precedence over `vpn-auth`.
 */
async function vpnAuthText(
  own: string | undefined,
  k3s: ReadonlyMap<string, unknown>,
): Promise<string | undefined> {
  const value = own ?? textOf(k3s, 'vpn-auth-file') ?? textOf(k3s, 'vpn-auth');
  if (value?.startsWith('/') !== true) return value;
  try {
    return (await readFile(value, 'utf8')).trim();
  } catch (cause) {
    throw new TailcastError('CONFIG_INVALID', `vpnAuth: ${value} cannot be read: ${errorReason(cause)}`, {
      cause,
    });
  }
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() === true;
}

const TOKEN_PATH = `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/${ACCOUNT}/token`;

/** Creates the namespace, the account and its rights with the admin kubeconfig. Stores a kubeconfig for the account. */
async function createAccount(
  admin: string,
  { claimableGroups, auditExtras }: GatewayConfig,
  stateDirectory: string,
  signal: AbortSignal,
): Promise<void> {
  const server = await openServer(admin);
  const client = createApiClient(server, Date.now);
  const groups = claimableGroups.some((group) => group.endsWith('*')) ? [] : claimableGroups;
  const objects = [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } },
    ...impersonationRbac({
      users: [],
      groups,
      constrained: false,
      auditExtras,
      namespace: NAMESPACE,
      account: ACCOUNT,
    }),
    ...TOKEN_RIGHTS,
  ];
  for (const object of objects) {
    const path = collectionOf(object);
    const { status } = await client.post(path, object, limited(signal));
    // 409: the object exists from an earlier run.
    if (status === 201 || status === 409) continue;
    throw new TailcastError('CONFIG_INVALID', `k3s: the API server responded to POST ${path} with ${status}`);
  }
  await renew(client, stateDirectory, signal);
  const name = 'k3s';
  const { ca } = server.tls;
  const text = JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      {
        name,
        cluster: {
          server: `https://${server.hostHeader}${server.basePath}`,
          'certificate-authority-data': Buffer.from(ca ?? '').toString('base64'),
        },
      },
    ],
    users: [{ name, user: { tokenFile: tokenFile(stateDirectory) } }],
    contexts: [{ name, context: { cluster: name, user: name } }],
    'current-context': name,
  });
  await replaceFile(k3sKubeconfig(stateDirectory), text);
}

/**
 * Right of the account to create its own tokens. The gateway needs this right because it does not read the admin
 * kubeconfig again.
 */
const TOKEN_RIGHTS = [
  {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'Role',
    metadata: { name: `${ACCOUNT}-token`, namespace: NAMESPACE },
    rules: [
      { apiGroups: [''], resources: ['serviceaccounts/token'], resourceNames: [ACCOUNT], verbs: ['create'] },
    ],
  },
  {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: { name: `${ACCOUNT}-token`, namespace: NAMESPACE },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: `${ACCOUNT}-token` },
    subjects: [{ kind: 'ServiceAccount', name: ACCOUNT, namespace: NAMESPACE }],
  },
] as const;

function collectionOf(object: Readonly<Record<string, unknown>>): string {
  const kind = String(object['kind']);
  const isCore = object['apiVersion'] === 'v1';
  const isNamespaced = ['ServiceAccount', 'Role', 'RoleBinding'].includes(kind);
  const prefix = isCore ? '/api/v1' : `/apis/${String(object['apiVersion'])}`;
  return `${prefix}${isNamespaced ? `/namespaces/${NAMESPACE}` : ''}/${kind.toLowerCase()}s`;
}

function openServer(kubeconfig: string): Promise<ApiServer> {
  return createApiServer({
    kubeconfig: [kubeconfig],
    now: () => performance.now(),
    wallClock: Date.now,
  });
}

function limited(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS)]);
}

const TOKEN = z.object({ status: z.object({ token: z.string().min(1) }) });
const CLAIMS = z.object({ iat: z.number(), exp: z.number() });

function tokenFile(stateDirectory: string): string {
  return join(stateDirectory, 'k3s', 'token');
}

/** @throws TailcastError `CONFIG_INVALID` */
async function renew(client: ApiClient, stateDirectory: string, signal: AbortSignal): Promise<void> {
  const request = {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: { expirationSeconds: TOKEN_SECONDS },
  };
  const { status, body } = await client.post(TOKEN_PATH, request, limited(signal));
  const found = TOKEN.safeParse(body);
  if (status !== 201 || !found.success) {
    throw new TailcastError('CONFIG_INVALID', `k3s: the request for a token returned ${status}`);
  }
  await replaceFile(tokenFile(stateDirectory), found.data.status.token);
}

/** Reads the stored kubeconfig of the account, and renews the token in it after half of the token's lifetime. */
async function openTokens(
  stateDirectory: string,
  signal: AbortSignal,
): Promise<{ follow(onError: (error: unknown) => void): Promise<void> }> {
  const folder = join(stateDirectory, 'k3s');
  const client = createApiClient(await openServer(k3sKubeconfig(stateDirectory)), Date.now);
  const isDue = async (): Promise<boolean> => {
    const token = await readFile(tokenFile(stateDirectory), 'utf8');
    const claims = CLAIMS.safeParse(
      jsonOrUndefined(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()),
    );
    const { iat, exp } = claims.data ?? { iat: 0, exp: 0 };
    const now = Date.now() / 1000;
    if (now < exp) return now >= (iat + exp) / 2;
    throw new TailcastError(
      'CONFIG_INVALID',
      `k3s: the token of the account has expired; delete ${folder} and restart the gateway to create a new one`,
    );
  };
  const check = async (): Promise<void> => {
    if (await isDue()) await renew(client, stateDirectory, signal);
  };
  await isDue();
  return {
    async follow(onError) {
      do {
        await check().catch(onError);
      } while (await pause(RENEW_EVERY_MS, signal));
    },
  };
}
