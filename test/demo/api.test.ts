import { connect } from 'node:http2';
import { request } from 'node:https';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../demo/cluster.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';

let cluster: DemoCluster;

beforeAll(async () => {
  cluster = await startDemoCluster({ log: createSilentLogger() });
});
afterAll(() => cluster.close());

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

interface Call {
  readonly method?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string | Uint8Array;
  readonly token?: string | null;
}

function call(
  path: string,
  { method = 'GET', headers = {}, body, token }: Call = {},
  { url, caPem, adminToken } = cluster,
): Promise<Answer> {
  const bearer = token === null ? {} : { authorization: `Bearer ${token ?? adminToken}` };
  return new Promise((resolve, reject) => {
    const outgoing = request(
      `${url}${path}`,
      { method, ca: caPem, agent: false, headers: { ...bearer, ...headers } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          const type = response.headers['content-type'] ?? '';
          const json = type.includes('json') && !text.includes('}\n{') ? JSON.parse(text) : {};
          resolve({ status: response.statusCode ?? 0, type, text, json });
        });
      },
    );
    outgoing.on('error', reject);
    // Sends a Buffer, because Node encodes headers in another way if the body is a string.
    outgoing.end(body === undefined ? undefined : Buffer.from(body));
  });
}

const JSON_BODY = { 'content-type': 'application/json' };
const CONFIG_MAPS = '/api/v1/namespaces/default/configmaps';

describe('authentication', () => {
  it.each([null, 'wrong', ''])('answers 401 to the token %j', async (token) => {
    const { status, json } = await call('/api', { token });
    expect(status).toBe(401);
    expect(json).toMatchObject({ kind: 'Status', reason: 'Unauthorized', code: 401 });
  });

  it('honours every impersonation header', async () => {
    const headers = {
      'Impersonate-User': 'jané',
      'Impersonate-Uid': '7',
      'Impersonate-Group': ['a', 'b, c'],
      'Impersonate-Extra-Example.com%2Fscope': ['x', 'y'],
    };
    const latin = JSON.parse(Buffer.from(JSON.stringify(headers)).toString('latin1')) as Record<
      string,
      string[]
    >;
    const { json } = await call('/apis/authentication.k8s.io/v1/selfsubjectreviews', {
      method: 'POST',
      headers: { ...latin, ...JSON_BODY },
      body: '{}',
    });
    expect(json['status']).toEqual({
      userInfo: {
        username: 'jané',
        uid: '7',
        groups: ['a', 'b, c', 'system:authenticated'],
        extra: { 'example.com/scope': ['x', 'y'] },
      },
    });
  });

  it('derives the groups of a service account and refuses the anonymous user', async () => {
    const as = (user: string, path: string, method = 'GET'): Promise<Answer> =>
      call(path, {
        method,
        headers: { 'Impersonate-User': user, ...JSON_BODY },
        ...(method === 'POST' ? { body: '{}' } : {}),
      });
    const review = await as(
      'system:serviceaccount:ns:bot',
      '/apis/authentication.k8s.io/v1/selfsubjectreviews',
      'POST',
    );
    expect(review.json['status']).toMatchObject({
      userInfo: { groups: ['system:serviceaccounts', 'system:serviceaccounts:ns', 'system:authenticated'] },
    });
    const anonymous = await as('system:anonymous', '/api/v1/pods');
    expect(anonymous.status).toBe(403);
    expect(anonymous.json['message']).toContain('User "system:anonymous" cannot get resource "pods"');
    expect((await call('/api/v1/pods', { headers: { 'Impersonate-Group': 'x' } })).status).toBe(400);
  });
});

describe('paths', () => {
  it('decodes escapes once, as Go does', async () => {
    expect((await call('/api/v1/namespaces/default%2Fpods/shell')).json).toMatchObject({ kind: 'Pod' });
    expect((await call('/api/v1/namespaces/default/pods/%zz')).status).toBe(400);
  });

  it.each([
    '/api/v1/namespaces/default/pods/shell/nonsense',
    '/api/v1/namespaces/default/pods//shell',
    '/api/v1/namespaces/default/nodes',
    '/api/v1/pods/shell',
    '/api/v2/pods',
    '/apis/metrics.k8s.io/v1beta1/pods',
    '/nowhere',
    '/openapi/v4',
  ])('answers 404 to %s', async (path) => {
    expect((await call(path)).json).toMatchObject({ kind: 'Status', reason: 'NotFound', code: 404 });
  });

  it('serves discovery in the classic and the aggregated form', async () => {
    expect((await call('/apis')).json).toMatchObject({ kind: 'APIGroupList' });
    expect((await call('/api/v1')).json['resources']).toContainEqual(
      expect.objectContaining({ name: 'pods/exec', kind: 'PodExecOptions' }),
    );
    const accept = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json';
    const aggregated = await call('/apis', { headers: { accept } });
    expect(aggregated.type).toBe('application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList');
    expect(aggregated.json).toMatchObject({
      kind: 'APIGroupDiscoveryList',
      apiVersion: 'apidiscovery.k8s.io/v2',
    });
  });

  it('answers over HTTP/2 as well', async () => {
    const session = connect(cluster.url, { ca: cluster.caPem });
    const stream = session.request({ ':path': '/version', authorization: `Bearer ${cluster.adminToken}` });
    const text = await new Promise<string>((resolve, reject) => {
      let all = '';
      stream.setEncoding('utf8').on('data', (chunk: string) => (all += chunk));
      stream.on('end', () => resolve(all)).on('error', reject);
    });
    session.close();
    expect(JSON.parse(text)).toMatchObject({ major: '1', minor: '33' });
  });
});

describe('bodies', () => {
  it('takes 3 MiB and not a byte more', async () => {
    const wrap = (bytes: number): string => {
      const empty = JSON.stringify({ metadata: { name: 'large' }, data: { a: '' } });
      return JSON.stringify({ metadata: { name: 'large' }, data: { a: 'x'.repeat(bytes - empty.length) } });
    };
    const limit = 3 * 1024 * 1024;
    const fits = await call(CONFIG_MAPS, { method: 'POST', headers: JSON_BODY, body: wrap(limit) });
    expect(fits.status).toBe(201);
    const tooLarge = await call(CONFIG_MAPS, { method: 'POST', headers: JSON_BODY, body: wrap(limit + 1) });
    expect(tooLarge.json).toMatchObject({ reason: 'RequestEntityTooLarge', code: 413 });
    await call(`${CONFIG_MAPS}/large`, { method: 'DELETE' });
  });

  it.each([
    [{ 'content-type': 'text/plain' }, '{}', 415],
    [JSON_BODY, '{', 400],
    [JSON_BODY, '[]', 400],
    [JSON_BODY, '{"kind":"Pod","metadata":{"name":"x"}}', 400],
    [JSON_BODY, '{"metadata":{"name":"x","namespace":"web"}}', 400],
    [JSON_BODY, '{"metadata":{"name":"Not_A_Name"}}', 422],
    [JSON_BODY, '{"metadata":{}}', 422],
    [{ 'content-type': 'application/vnd.kubernetes.protobuf' }, 'k8s', 400],
  ])('refuses %j with %j by %d', async (headers, body, status) => {
    const answer = await call(CONFIG_MAPS, { method: 'POST', headers, body });
    expect(answer.json).toMatchObject({ kind: 'Status', status: 'Failure', code: status });
  });

  it('takes YAML, patches and dry runs', async () => {
    const yaml = 'metadata:\n  name: patched\ndata:\n  a: "1"\n';
    const headers = { 'content-type': 'application/yaml' };
    expect((await call(CONFIG_MAPS, { method: 'POST', headers, body: yaml })).status).toBe(201);
    const patch = (type: string, body: unknown, query = ''): Promise<Answer> =>
      call(`${CONFIG_MAPS}/patched${query}`, {
        method: 'PATCH',
        headers: { 'content-type': `application/${type}` },
        body: JSON.stringify(body),
      });
    expect((await patch('merge-patch+json', { data: { b: '2' } }, '?dryRun=All')).json['data']).toEqual({
      a: '1',
      b: '2',
    });
    expect((await patch('merge-patch+json', { data: { c: '3' } })).json['data']).toEqual({ a: '1', c: '3' });
    expect((await patch('json-patch+json', [])).status).toBe(415);
    expect((await patch('merge-patch+json', { metadata: { uid: 'x', name: 'other' } })).status).toBe(400);
    expect((await patch('merge-patch+json', { metadata: { resourceVersion: '1' } })).status).toBe(409);
    await call(`${CONFIG_MAPS}/patched`, { method: 'DELETE' });
  });

  it('does not let the main resource change status, nor the status anything else', async () => {
    const pod = '/api/v1/namespaces/default/pods/shell';
    const headers = { 'content-type': 'application/merge-patch+json' };
    const body = JSON.stringify({ status: { phase: 'Failed' }, metadata: { labels: { seen: 'yes' } } });
    expect((await call(pod, { method: 'PATCH', headers, body })).json).toMatchObject({
      metadata: { labels: { seen: 'yes' } },
      status: { phase: 'Running' },
    });
  });
});

describe('lists and watches', () => {
  const events = (text: string): { type: string; object: Record<string, unknown> }[] =>
    text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { type: string; object: Record<string, unknown> });

  it('ends a watch at its timeout and marks where the initial events end', async () => {
    const query = 'watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true';
    const { text } = await call(`/api/v1/nodes?${query}`);
    const seen = events(text);
    expect(seen.map(({ type }) => type)).toEqual(['ADDED', 'BOOKMARK']);
    expect(seen[1]?.object['metadata']).toMatchObject({
      annotations: { 'k8s.io/initial-events-end': 'true' },
    });
  });

  it('says 410 inside a watch that begins too long ago', async () => {
    const small = await startDemoCluster({ log: createSilentLogger(), limits: { maxHistory: 5 } });
    const { text, status } = await call('/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=5', {}, small);
    await small.close();
    expect(status).toBe(200);
    expect(events(text)).toEqual([
      { type: 'ERROR', object: expect.objectContaining({ kind: 'Status', reason: 'Expired', code: 410 }) },
    ]);
  });
});
