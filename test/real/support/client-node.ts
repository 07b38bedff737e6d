/** Uses @kubernetes/client-node as common programs do. */
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { CoreV1Api, Exec, KubeConfig, PortForward, type V1Status, Watch } from '@kubernetes/client-node';

export function loadConfig(kubeconfig: string): KubeConfig {
  const config = new KubeConfig();
  config.loadFromFile(kubeconfig);
  return config;
}

export async function get(config: KubeConfig): Promise<unknown> {
  const core = config.makeApiClient(CoreV1Api);
  const { items } = await core.listNamespacedConfigMap({ namespace: 'tailcast' });
  const missing = await core
    .readNamespacedConfigMap({ namespace: 'tailcast', name: 'there-is-no-such-thing' })
    .then(
      () => 200,
      (error: unknown) => (error as { code: number }).code,
    );
  return { names: items.map(({ metadata }) => metadata?.name), missing };
}

export async function watch(config: KubeConfig, name: string): Promise<unknown> {
  const core = config.makeApiClient(CoreV1Api);
  const seen: string[] = [];
  const ended = Promise.withResolvers<void>();
  const { metadata } = await core.listNamespacedConfigMap({ namespace: 'default' });
  const abort = await new Watch(config).watch(
    '/api/v1/namespaces/default/configmaps',
    { fieldSelector: `metadata.name=${name}`, resourceVersion: metadata?.resourceVersion ?? '' },
    (type) => {
      seen.push(type);
      if (type === 'DELETED') ended.resolve();
    },
    (error) => (error === null ? ended.resolve() : ended.reject(error)),
  );
  const namespace = 'default';
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { step: 'one' } } });
  await core.replaceNamespacedConfigMap({
    namespace,
    name,
    body: { metadata: { name }, data: { step: 'two' } },
  });
  await core.deleteNamespacedConfigMap({ namespace, name });
  await ended.promise;
  abort.abort();
  return { seen };
}

export async function execute(config: KubeConfig, pod: string): Promise<unknown> {
  const run = async (command: string[], stdin: PassThrough | null): Promise<[string, string, V1Status]> => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const output = Promise.all([text(stdout), text(stderr)]);
    const status = Promise.withResolvers<V1Status>();
    const socket = await new Exec(config).exec(
      'default',
      pod,
      'main',
      command,
      stdout,
      stderr,
      stdin,
      false,
      status.resolve,
    );
    if (socket.readyState !== socket.CLOSED) await once(socket, 'close');
    stdout.end();
    stderr.end();
    return [...(await output), await status.promise];
  };
  const [stdout, stderr, failed] = await run(['sh', '-c', 'echo out; echo err >&2; exit 5'], null);
  const input = new PassThrough();
  input.end('twelve bytes');
  const [counted, , fine] = await run(['head', '-c', '12'], input);
  return { stdout, stderr, code: failed.details?.causes?.[0]?.message, counted, fine: fine.status };
}

/** Forwards a port over the library's old WebSocket protocol, without half-close. */
export async function forward(config: KubeConfig, pod: string, port: number, body: Buffer): Promise<string> {
  const [input, output, errors] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const socket = await new PortForward(config).portForward('default', pod, [port], output, errors, input);
  const answer = buffer(output);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  input.write(length);
  input.write(body);
  const timer = setTimeout(() => output.end(), 20_000);
  for (let size = 0; size < 64;) size += ((await once(output, 'data')) as [Buffer])[0].length;
  clearTimeout(timer);
  if (typeof socket !== 'function') socket.close();
  output.end();
  return (await answer).toString();
}
