/**
 * Replaces the tailscale image on a Kubernetes node without a container runtime. Runs the logic of containerboot with a
 * real tailscaled, the variables of a Recorder's pod, and the pod's ServiceAccount.
 *
 *   node tailscale-container.ts <tailscaled> <folder of the ServiceAccount>
 *
 * The program differs from the image in two ways:
 *
 * - tailscaled keeps its state in a file. As with the image, the state Secret contains the machine key before the node
 *   joins. The program adds the other keys only after the node has joined.
 * - All pods share one network, so the program replaces `$(POD_INDEX)` in addresses of the serve configuration with the
 *   number of the pod.
 *
 * If the name of the pod starts with `dies-`, the program exits after joining and before reporting its identity, as a
 * killed pod does.
 */
import { execFile, spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { request as localRequest } from 'node:http';
import { request } from 'node:https';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
const [tailscaled = '', account = ''] = process.argv.slice(2);
const variable = (name: string): string => process.env[name] ?? '';
const socket = variable('TS_SOCKET');
const home = process.cwd();
const stateFile = join(home, 'tailscaled.state');
const STATE_KEY = 'rig_state';

interface Secret {
  readonly data?: Readonly<Record<string, string>>;
}

function kube(method: string, type: string, body?: object): Promise<Secret> {
  const namespace = readFileSync(join(account, 'namespace'), 'utf8');
  const payload = body === undefined ? undefined : JSON.stringify(body);
  return new Promise((done, fail) => {
    const sent = request(
      {
        host: variable('KUBERNETES_SERVICE_HOST'),
        port: variable('KUBERNETES_SERVICE_PORT'),
        ca: readFileSync(join(account, 'ca.crt')),
        method,
        path: `/api/v1/namespaces/${namespace}/secrets/${variable('TS_KUBE_SECRET')}`,
        headers: {
          authorization: `Bearer ${readFileSync(join(account, 'token'), 'utf8')}`,
          ...(payload === undefined ? {} : { 'content-type': type, 'content-length': payload.length }),
        },
      },
      (response) => {
        let text = '';
        response.on('data', (chunk: Buffer) => (text += chunk.toString()));
        response.on('end', () => {
          if ((response.statusCode ?? 500) >= 400) fail(new Error(`${method} state Secret: ${text}`));
          else done(JSON.parse(text) as Secret);
        });
      },
    );
    sent.on('error', fail);
    sent.end(payload);
  });
}

/** @param known stored machine key in base64; undefined creates a key */
async function keepMachineKey(known: string | undefined): Promise<void> {
  const { d = '' } = generateKeyPairSync('x25519').privateKey.export({ format: 'jwk' });
  const _machinekey = known ?? encode(`privkey:${Buffer.from(d, 'base64url').toString('hex')}`);
  if (known === undefined) await kube('PATCH', 'application/merge-patch+json', { data: { _machinekey } });
  writeFileSync(stateFile, JSON.stringify({ _machinekey }));
}

const encode = (text: string | Buffer): string => Buffer.from(text).toString('base64');
const secret = await kube('GET', '');
const saved = secret.data?.[STATE_KEY];
if (saved === undefined) await keepMachineKey(secret.data?.['_machinekey']);
else writeFileSync(stateFile, Buffer.from(saved, 'base64'));
const key = Buffer.from(secret.data?.['authkey'] ?? '', 'base64').toString();

mkdirSync(dirname(socket), { recursive: true });
rmSync(socket, { force: true });
const client = join(home, 'tailscale');
if (!existsSync(client)) symlinkSync(tailscaled, client);
const daemon = spawn(
  tailscaled,
  [
    '--tun=userspace-networking',
    '--port=0',
    `--statedir=${home}`,
    `--state=${stateFile}`,
    `--socket=${socket}`,
  ],
  {
    stdio: 'inherit',
    env: {
      ...process.env,
      TS_DEBUG_USE_DERP_HTTP: '1',
      TS_DEBUG_OMIT_LOCAL_ADDRS: '1',
      TS_DISABLE_PORTMAPPER: '1',
      TS_NO_LOGS_NO_SUPPORT: 'true',
      TS_PANIC_IF_HIT_MAIN_CONTROL: '1',
      TS_ASSUME_NETWORK_UP_FOR_TEST: '1',
    },
  },
);
daemon.once('exit', (code) => process.exit(code ?? 1));
process.once('SIGTERM', () => daemon.kill('SIGTERM'));
const cli = (...args: string[]) => run(client, [`--socket=${socket}`, ...args], { timeout: 30_000 });

interface Status {
  readonly BackendState: string;
  readonly Self: { readonly ID: string; readonly DNSName: string; readonly TailscaleIPs: readonly string[] };
}

async function status(): Promise<Status> {
  for (;;) {
    try {
      const seen = JSON.parse((await cli('status', '--json')).stdout) as Status;
      if (seen.BackendState === 'Running' || seen.BackendState === 'NeedsLogin') return seen;
    } catch {
      // tailscaled is still starting, or `status` failed because the node is down.
    }
    await delay(50);
  }
}

if ((await status()).BackendState === 'NeedsLogin') {
  if (key === '') throw new Error('no auth key in the state Secret');
  await cli(
    'up',
    '--accept-dns=false',
    `--authkey=${key}`,
    `--hostname=${variable('TS_HOSTNAME')}`,
    ...variable('TS_EXTRA_ARGS').split(' ').filter(Boolean),
  );
  if (variable('TS_KUBE_SECRET').startsWith('dies-')) daemon.kill('SIGKILL');
}
/** Like containerboot, omits handlers that need certificates, because this tailnet issues none. */
async function serve(path: string): Promise<void> {
  const config = readFileSync(path, 'utf8').replaceAll('$(POD_INDEX)', variable('POD_INDEX'));
  if (config.includes('${TS_CERT_DOMAIN}')) return;
  const code = await new Promise<number | undefined>((done, fail) => {
    const sent = localRequest(
      {
        socketPath: socket,
        method: 'POST',
        path: '/localapi/v0/serve-config',
        headers: { host: 'local-tailscaled.sock' },
      },
      (response) => done(response.resume().statusCode),
    );
    sent.on('error', fail);
    sent.end(config);
  });
  if (code !== 200) throw new Error(`serve configuration: ${code}`);
}

if (variable('TS_SERVE_CONFIG') !== '') await serve(variable('TS_SERVE_CONFIG'));
const { Self: self } = await status();
await kube('PATCH', 'application/strategic-merge-patch+json', {
  data: {
    device_id: encode(self.ID),
    device_fqdn: encode(self.DNSName),
    device_ips: encode(JSON.stringify(self.TailscaleIPs)),
    https_endpoint: encode('no-https'),
    pod_uid: encode(variable('POD_UID')),
    [STATE_KEY]: encode(readFileSync(stateFile)),
  },
});
// With TS_AUTH_ONCE, containerboot uses the auth key only once.
await kube('PATCH', 'application/merge-patch+json', { data: { authkey: null } });
process.stdout.write(`joined as ${self.DNSName}\n`);
