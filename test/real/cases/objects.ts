/** Cases without streams: reads, watches, writes, the identity of the caller, and paths that do not exist. */
import { once } from 'node:events';
import { startKubectl } from '../rig/kubectl.ts';
import { type CaseContext, type KubectlCase, observe } from './case.ts';

export const OBJECT_CASES: readonly KubectlCase[] = [
  {
    name: 'get',
    streams: 'none',
    async run(context) {
      const nodes = await observe(context, ['get', 'nodes', '--output=name']);
      const missing = await observe(context, ['get', 'pod', 'there-is-no-such-pod']);
      return { nodes, missing };
    },
  },
  { name: 'get -w', streams: 'none', run: watch },
  {
    name: 'apply',
    streams: 'none',
    async run(context) {
      const manifest = (value: string): string =>
        JSON.stringify({
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { name: context.unique },
          data: { value },
        });
      const apply = async (value: string): Promise<unknown> => {
        const { code, stdout, stderr } = await observe(context, ['apply', '--filename=-'], manifest(value));
        return { code, stdout: stdout.replaceAll(context.unique, 'NAME'), stderr };
      };
      const steps = [await apply('one'), await apply('one'), await apply('two')];
      const read = await observe(context, [
        'get',
        'configmap',
        context.unique,
        '--output=jsonpath={.data.value}',
      ]);
      const removed = await observe(context, ['delete', 'configmap', context.unique, '--output=name']);
      return { steps, read, removed: removed.code };
    },
  },
  {
    name: 'auth whoami',
    streams: 'none',
    sinceMinor: 28,
    run: async (context) => ({
      ...(await observe(context, ['auth', 'whoami', '--output=jsonpath={.status.userInfo.username}'])),
    }),
  },
  {
    name: 'aggregated path that is absent',
    streams: 'none',
    async run(context) {
      const raw = await observe(context, ['get', '--raw', '/apis/metrics.k8s.io/v1beta1/nodes']);
      const top = await observe(context, ['top', 'nodes']);
      return { raw, top };
    },
  },
];

/** Watches an object while it is created, changed and deleted. */
async function watch(context: CaseContext): Promise<Record<string, unknown>> {
  const { cluster, unique } = context;
  const columns = '--output=jsonpath={.type} {.object.metadata.name} {.object.data.step}{"\\n"}';
  const filter = `--field-selector=metadata.name=${unique}`;
  const args = ['get', 'configmaps', '--watch', '--output-watch-events', filter, columns];
  const child = startKubectl(context.kubectl, args, context);
  let text = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  const seen = async (wanted: string): Promise<void> => {
    while (!text.includes(wanted)) {
      if (child.exitCode !== null) throw new Error(`the watch ended: ${text}`);
      await once(child.stdout ?? child, 'data', { signal: AbortSignal.timeout(20_000) });
    }
  };
  const path = '/api/v1/namespaces/default/configmaps';
  try {
    // The first line is ADDED, even if the watch opens after the object was created.
    await cluster.api('POST', path, { metadata: { name: unique }, data: { step: 'one' } });
    await seen('ADDED');
    await cluster.api('PUT', `${path}/${unique}`, { metadata: { name: unique }, data: { step: 'two' } });
    await seen('MODIFIED');
    await cluster.api('DELETE', `${path}/${unique}`);
    await seen('DELETED');
  } finally {
    child.kill('SIGKILL');
  }
  return { lines: text.replaceAll(unique, 'NAME').trimEnd().split('\n') };
}
