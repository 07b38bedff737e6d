/** Tailnet resources against a control server over HTTP. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createTailnetReconciler } from '../../../src/operator/tailnet/reconcile.ts';
import { createBench, OWN, TAILSCALE, type Bench } from '../bench.ts';

const PATH = `${TAILSCALE}/tailnets/other`;
const ACCOUNT = 'system:serviceaccount:tailcast:tailcast-operator';

let bench: Bench;
let server: Server;
/**
 * Requests to the control server: the path, followed by the form of a token request, or by the header `Authorization`
 * of another request.
 */
let seen: string[];
/** Paths that the control server refuses. */
let refused: RegExp | undefined;

beforeEach(async () => {
  bench = await createBench();
  seen = [];
  refused = undefined;
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      const { url = '' } = request;
      seen.push(`${url} ${body}`.trim());
      const answers: Record<string, object> = {
        '/api/v2/oauth/token': { access_token: 'token' },
        '/api/v2/oauth/token-exchange': { access_token: 'token' },
        '/api/v2/tailnet/-/devices': { devices: [] },
        '/api/v2/tailnet/-/vip-services': { vipServices: [] },
      };
      const status = refused?.test(url) === true ? 403 : answers[url] === undefined ? 404 : 200;
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(
        JSON.stringify(status === 403 ? { message: `no scope for ${url}` } : (answers[url] ?? {})),
      );
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const loginUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  bench.api.put(PATH, {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'Tailnet',
    metadata: { name: 'other', finalizers: ['tailscale.com/finalizer'] },
    spec: { loginUrl, credentials: { secretName: 'oauth' } },
  });
});

afterEach(async () => {
  await bench.close();
  await new Promise((done) => server.close(done));
});

function store(values: Readonly<Record<string, string>>): void {
  const data = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
  );
  const metadata = { name: 'oauth', namespace: 'tailcast' };
  bench.api.put(`${OWN}/secrets/oauth`, { apiVersion: 'v1', kind: 'Secret', metadata, data });
}

const reconcile = (): Promise<number | undefined> => createTailnetReconciler(bench.deps()).reconcile('other');

const condition = () => bench.condition(PATH);

describe('a Tailnet', () => {
  it('is ready when its client may read devices, keys and Services', async () => {
    store({ client_id: 'id', client_secret: 'secret' });
    expect(await reconcile()).toBeUndefined();
    expect(condition()).toMatchObject({ type: 'TailnetReady', status: 'True', reason: 'TailnetValid' });
    expect(seen[0]).toContain('client_secret=secret');
  });

  it.each([
    [{}, 'client_id is missing'],
    [{ client_id: 'id' }, 'client_secret or audience is missing'],
    [{ client_id: 'id', client_secret: 's', audience: 'a' }, 'exclude each other'],
  ])('with the Secret %j is not, and says why', async (values, message) => {
    store(values);
    expect(await reconcile()).toBe(30_000);
    expect(condition()).toMatchObject({
      status: 'False',
      reason: 'InvalidSecret',
      message: expect.stringContaining(message) as string,
    });
    expect(seen).toEqual([]);
  });

  it('without its Secret is not', async () => {
    await reconcile();
    expect(condition()).toMatchObject({
      reason: 'InvalidSecret',
      message: 'Secret tailcast/oauth: it does not exist',
    });
  });

  it.each(['devices', 'keys', 'vip-services'])('whose client may not read %s is not', async (scope) => {
    store({ client_id: 'id', client_secret: 'secret' });
    refused = new RegExp(scope);
    expect(await reconcile()).toBe(30_000);
    expect(condition()).toMatchObject({
      status: 'False',
      reason: 'InvalidOAuth',
      message: expect.stringContaining('no scope for') as string,
    });
  });

  it('with an audience exchanges a token of the operator’s own account', async () => {
    store({ client_id: 'id', audience: 'api.example.com/id' });
    const asked: unknown[] = [];
    bench.api.interfere = ({ path, body }) => {
      if (path.endsWith('/selfsubjectreviews'))
        return { status: 201, body: { status: { userInfo: { username: ACCOUNT } } } };
      if (!path.endsWith('/serviceaccounts/tailcast-operator/token')) return undefined;
      asked.push(body);
      return { status: 201, body: { status: { token: 'signed.by.cluster' } } };
    };
    expect(await reconcile()).toBeUndefined();
    expect(asked).toMatchObject([{ kind: 'TokenRequest', spec: { audiences: ['api.example.com/id'] } }]);
    expect(seen[0]).toBe('/api/v2/oauth/token-exchange client_id=id&jwt=signed.by.cluster');
    expect(condition()).toMatchObject({ status: 'True' });
  });

  it('with an audience needs an account of the cluster', async () => {
    store({ client_id: 'id', audience: 'api.example.com/id' });
    bench.api.interfere = ({ path }) =>
      path.endsWith('/selfsubjectreviews')
        ? { status: 201, body: { status: { userInfo: { username: 'admin' } } } }
        : undefined;
    await reconcile();
    expect(condition()).toMatchObject({
      reason: 'InvalidOAuth',
      message: expect.stringContaining('an audience needs a ServiceAccount') as string,
    });
  });

  it('that is deleted loses the finalizer of the reference', async () => {
    const object = bench.object(PATH)!;
    bench.api.put(PATH, {
      ...object,
      metadata: { ...object.metadata, deletionTimestamp: '2026-11-27T00:00:00Z' },
    });
    await reconcile();
    expect(bench.object(PATH)).toBeUndefined();
  });
});
