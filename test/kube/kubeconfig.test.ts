import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { kubeconfigPaths, pathInKubeconfig, readKubeconfigContext } from '../../src/kube/kubeconfig.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'tailcast-kubeconfig-'));
});

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

const PROD = `
apiVersion: v1
kind: Config
preferences: {}
current-context: prod
clusters:
- name: prod
  cluster: {server: "https://prod:6443", extensions: [{name: x, extension: {}}]}
users:
- name: admin
  user: {token: t}
contexts:
- name: prod
  context: {cluster: prod, user: admin, namespace: web}
- name: other
  context: {cluster: prod, user: ""}
`;

describe('kubeconfigPaths', () => {
  it('follows KUBECONFIG, else the home directory', () => {
    expect(kubeconfigPaths(undefined, '/home/u')).toEqual([join('/home/u', '.kube', 'config')]);
    expect(kubeconfigPaths('', '/home/u')).toEqual([join('/home/u', '.kube', 'config')]);
    expect(kubeconfigPaths(delimiter, '/home/u')).toEqual([join('/home/u', '.kube', 'config')]);
    expect(kubeconfigPaths(['/a', '', '/b', '/a'].join(delimiter), '/home/u')).toEqual(['/a', '/b']);
  });
});

describe('readKubeconfigContext', () => {
  it('follows the current context, or the one that is named', () => {
    const path = file('prod', PROD);
    expect(readKubeconfigContext([path])).toEqual({
      name: 'prod',
      clusterName: 'prod',
      cluster: { value: { server: 'https://prod:6443' }, file: path },
      userName: 'admin',
      user: { value: { token: 't' }, file: path },
      namespace: 'web',
    });
    expect(readKubeconfigContext([path], 'other')).toMatchObject({
      name: 'other',
      userName: '',
      user: { value: {} },
    });
  });

  it('merges a list: the first file that names a thing wins, missing files are skipped', () => {
    const first = file(
      'first',
      'current-context: prod\nusers:\n- {name: admin, user: {token: first}}\nclusters: null\n',
    );
    const context = readKubeconfigContext([join(directory, 'nowhere'), first, file('second', PROD)]);
    expect(context.user).toEqual({ value: { token: 'first' }, file: first });
    expect(context.cluster.file).toBe(join(directory, 'second'));
  });

  it('reads JSON as well', () => {
    const json = JSON.stringify({
      'current-context': 'c',
      clusters: [{ name: 'c', cluster: { server: 'https://x' } }],
      contexts: [{ name: 'c', context: { cluster: 'c' } }],
    });
    expect(readKubeconfigContext([file('json', json)]).cluster.value.server).toBe('https://x');
  });

  it('prints nothing: a warning about YAML would show the line, and that line may hold a token', async () => {
    const warnings: Error[] = [];
    const keep = (warning: Error): number => warnings.push(warning);
    process.on('warning', keep);
    try {
      readKubeconfigContext([file('tag', PROD.replace('token: t', 'token: !<tag:x> secret'))]);
      // Node emits warnings in a later turn of the event loop
      await new Promise((done) => setImmediate(done));
    } finally {
      process.off('warning', keep);
    }
    expect(warnings).toEqual([]);
  });

  it('resolves paths against the file that names them', () => {
    expect(pathInKubeconfig('pki/ca.crt', '/etc/kube/config')).toBe('/etc/kube/pki/ca.crt');
    expect(pathInKubeconfig('/ca.crt', '/etc/kube/config')).toBe('/ca.crt');
  });

  it.each<[what: string, text: string, context: string | undefined, message: RegExp]>([
    ['no YAML', 'a: [', undefined, /kubeconfig \S+bad: is not YAML: /],
    ['another kind', 'kind: Pod', undefined, /kubeconfig \S+bad: kind: /],
    ['a list', '- a', undefined, /the document: /],
    [
      'a wrong type',
      PROD.replace('token: t', 'token: [1]'),
      undefined,
      /users\[admin\]\.user\.token: .*string/,
    ],
    [
      'a missing server',
      PROD.replace('server: "https://prod:6443", ', ''),
      undefined,
      /clusters\[prod\]\.cluster\.server: /,
    ],
    [
      'an empty server',
      PROD.replace('https://prod:6443', ''),
      undefined,
      /clusters\[prod\]\.cluster\.server: /,
    ],
    ['nothing', '', undefined, /current-context is not set; name one of the contexts: \(there are none\)/],
    [
      'no current context',
      PROD.replace('current-context: prod', ''),
      undefined,
      /not set; name one of the contexts: prod, other/,
    ],
    ['an unknown context', PROD, 'dev', /no context "dev"; name one of the contexts: prod, other/],
    [
      'a dangling cluster',
      PROD.replace('cluster: prod, user: admin', 'cluster: gone, user: admin'),
      undefined,
      /contexts\[prod\]\.cluster names "gone"/,
    ],
    [
      'a dangling user',
      PROD.replace('user: admin', 'user: gone'),
      undefined,
      /contexts\[prod\]\.user names "gone"/,
    ],
    [
      'a name twice',
      `${PROD}- name: prod\n  context: {cluster: prod}\n`,
      undefined,
      /the context "prod" is there twice/,
    ],
  ])('says in one sentence what is wrong with %s', (_what, text, context, message) => {
    const path = file('bad', text);
    expect(() => readKubeconfigContext([path], context)).toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringMatching(message) as string }),
    );
  });

  it('says which file is missing or unreadable', () => {
    const missing = join(directory, 'missing');
    expect(() => readKubeconfigContext([missing])).toThrow(new RegExp(`${missing}: no such file`));
    expect(() => readKubeconfigContext([missing, `${missing}2`])).toThrow(/no such file/);
    expect(() => readKubeconfigContext([directory])).toThrow(/cannot be read: it is a folder/);
  });

  it('shows no secret in its messages', () => {
    const path = file('secret', PROD.replace('{token: t}', '{token: hunter2, tokenFile: 7}'));
    expect(() => readKubeconfigContext([path])).toThrow(expect.not.stringMatching(/hunter2/));
  });
});
