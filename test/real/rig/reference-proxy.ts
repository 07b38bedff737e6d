/**
 * The reference's API-server proxy (Tailscale's) as a node of the tailnet, for comparisons of behaviour and speed.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePeer } from './build.ts';
import type { Kubernetes } from './kubernetes.ts';
import { type Program, type Rig, freePort } from './rig.ts';
import { DOMAIN, type Tailnet, nodeEnvironment, ping } from './tailnet.ts';

export interface ReferenceProxy {
  /** Tailnet addresses of the proxy, which listens on port 443. */
  readonly addresses: readonly [ipv4: string, ipv6: string];
  /** Name in the proxy's certificate. */
  readonly name: string;
  readonly program: Program;
  /** Writes a kubeconfig for clients that run on the tailnet node `from`. Returns its path. */
  kubeconfig(from: string): string;
}

export interface ReferenceProxyOptions {
  readonly mode: 'auth' | 'noauth';
  readonly kubernetes: Kubernetes;
  readonly tailnet: Tailnet;
  /** Capability of the policy that the proxy reads as `https://tailscale.com/cap/kubernetes`. */
  readonly legacyName?: string;
}

/** Starts the proxy and returns when its node, which has `tag:k8s`, has joined the tailnet. */
export async function startReferenceProxy(rig: Rig, options: ReferenceProxyOptions): Promise<ReferenceProxy> {
  const { kubernetes, tailnet, mode } = options;
  const { 'api-proxy': path = '' } = await ensurePeer('reference');
  const hostname = `reference-${mode}`;
  const name = `${hostname}.${DOMAIN}`;
  const folder = join(rig.folder, hostname);
  mkdirSync(folder, { mode: 0o700 });
  const authKeyFile = join(folder, 'key');
  writeFileSync(authKeyFile, await tailnet.authKey({ tags: ['tag:k8s'] }), { mode: 0o600 });
  const leaf = await kubernetes.authority.issue({ name: hostname, commonName: name, dnsNames: [name] });
  const program = rig.launch({
    name: hostname,
    path,
    env: nodeEnvironment(await freePort()),
    args: [
      `--kubeconfig=${kubernetes.kubeconfig(`${hostname}-upstream`, { token: kubernetes.tokens.impersonator })}`,
      `--mode=${mode}`,
      `--login-server=${tailnet.controlUrl}`,
      `--auth-key-file=${authKeyFile}`,
      `--hostname=${hostname}`,
      `--state=${join(folder, 'state')}`,
      `--certificate=${leaf.certificatePath}`,
      `--key=${leaf.keyPath}`,
      ...(options.legacyName === undefined ? [] : [`--legacy-name=${options.legacyName}`]),
    ],
  });
  const ready = await rig.until(hostname, () => program.firstLine, { watch: [program] });
  const [ipv4, ipv6] = ready['addresses'] as [string, string];
  // The other nodes may not yet know a proxy that already runs.
  const clients = Object.values(tailnet.nodes).filter((node) => node.program.running);
  for (const node of clients) {
    await rig.until(`${node.name} reaches ${hostname}`, () => ping(node, ipv4), { watch: [program] });
  }
  return {
    addresses: [ipv4, ipv6],
    name,
    program,
    kubeconfig: (from) =>
      kubernetes.kubeconfig(`${hostname}-${from}`, {
        server: `https://${ipv4}`,
        tlsServerName: name,
        proxyUrl: `http://127.0.0.1:${tailnet.node(from).httpProxyPort}`,
        // Without a token, kubectl would ask for a password.
        token: mode === 'noauth' ? kubernetes.tokens.admin : 'unused',
      }),
  };
}
