/** `tailcast kubeconfig --all` with a real gateway in front of scripted API servers. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { writeGatewayKubeconfig } from '../../src/cli/kubeconfig.ts';
import { readKubeconfigContexts } from '../../src/kube/kubeconfig.ts';
import { kubeconfigOf, openClusterRig, startScripted, type ClusterRig } from '../support/cluster-rig.ts';

async function open(rules: readonly unknown[]): Promise<ClusterRig> {
  const server = await startScripted('one');
  onTestFinished(() => server.close());
  const content = {
    clusters: ['prod', 'dev', 'lab'].map((name) => ({
      name,
      hosts: name === 'prod' ? ['localhost'] : [],
      kubeconfig: { file: 'DIR/k.yaml' },
    })),
  };
  const rig = await openClusterRig({ content, rules, files: { 'k.yaml': kubeconfigOf(server) } });
  onTestFinished(() => rig.close());
  return rig;
}

async function run(
  rig: ClusterRig,
  file: string,
  options: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const ca = join(rig.directory, 'ca.crt');
  await writeFile(ca, rig.gateway.caPem ?? '');
  let printed = '';
  const stdout = { write: (text: string) => ((printed += text), true), writableLength: 0 };
  const host = `https://127.0.0.1:${rig.gateway.port}`;
  await writeGatewayKubeconfig([host], { all: true, certificateAuthority: ca, file, ...options }, {
    stdout,
    environment: new Map(),
  } as never);
  return printed;
}

/** A kubeconfig in kubectl's format: lists are not indented. */
const FOREIGN = `apiVersion: v1
clusters:
- cluster:
    server: https://10.0.0.1:6443   # of the lab
  name: other
contexts:
- context: {cluster: other, user: "someone"}
  name: other
current-context: other
kind: Config
preferences: {}
users:
- name: someone
  user:
    token: 'secret'
`;

describe('tailcast kubeconfig --all', () => {
  it.each([
    ['all', [{ clusters: ['*'] }], ['dev', 'lab', 'prod']],
    ['two', [{ clusters: ['prod', 'dev'] }], ['dev', 'prod']],
    ['one', [{ clusters: ['la*'] }], ['lab']],
  ])('writes %s of the clusters', async (_, rules, names) => {
    const rig = await open(rules);
    const file = join(rig.directory, 'config');
    await run(rig, file);
    const contexts = readKubeconfigContexts([file]);
    const { port } = rig.gateway;
    expect(contexts.map(({ name }) => name).toSorted()).toEqual(
      names.map((name) => `${name}@127.0.0.1:${port}`),
    );
    const server = (name: string): string =>
      name === 'prod' ? `https://localhost:${port}` : `https://127.0.0.1:${port}/clusters/${name}`;
    expect(contexts.map(({ cluster }) => cluster.value.server).toSorted()).toEqual(
      names.map(server).toSorted(),
    );
  });

  it('leaves other entries unchanged byte for byte, and the current context', async () => {
    const rig = await open([{ clusters: ['*'] }]);
    const file = join(rig.directory, 'config');
    await writeFile(file, FOREIGN);
    await run(rig, file, { name: 'team-{name}' });
    const text = await readFile(file, 'utf8');
    for (const line of FOREIGN.split('\n')) expect(text.split('\n')).toContain(line);
    expect(text).toContain('current-context: other\n');
    expect(readKubeconfigContexts([file]).map(({ name }) => name)).toContain('team-dev');
    await run(rig, file, { name: 'team-{name}' });
    expect(await readFile(file, 'utf8')).toBe(text);
  });

  it('refuses a caller without a cluster', async () => {
    const rig = await open([{ clusters: ['other'] }]);
    await expect(run(rig, join(rig.directory, 'config'))).rejects.toThrow('no grant of yours');
  });
});

it('answers /-/clusters only for callers, with GET, over both protocols', async () => {
  const rig = await open([{ clusters: ['dev'], impersonate: { groups: ['g'] } }]);
  const list = await rig.get('/-/clusters');
  expect(JSON.parse(list.body)).toEqual({
    clusters: [{ name: 'dev', hosts: [], path: '/clusters/dev', groups: ['g'] }],
  });
  expect((await rig.get('/-/clusters', { method: 'DELETE' })).status).toBe(405);
  expect((await rig.get('/-/clusters/dev')).status).toBe(404);
  expect((await rig.get('/-/clusters', { headers: ['Origin', 'https://evil.test'] })).status).toBe(403);
});
