/** `identity: requestHeader` in front of a server that responds as kcp does. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { issueAuthority, issueServer } from '../../src/tailnet/issue-certificate.ts';
import { openClusterRig, type ClusterRig } from '../support/cluster-rig.ts';

const REVIEWS = '/apis/authentication.k8s.io/v1/selfsubjectreviews';
const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/**
 * Starts a server that refuses access reviews. Its message is that of kcp for a user who lacks the verb `access` in the
 * workspace.
 */
async function startKcp(
  believes: boolean,
): Promise<{ readonly asked: string[]; readonly kubeconfig: object }> {
  const authority = await issueAuthority({ nowMs: Date.now(), validMs: 86_400_000 });
  const names = ['127.0.0.1'];
  const pair = await issueServer(authority, { names, nowMs: Date.now(), validMs: 86_400_000 });
  const asked: string[] = [];
  const tls = { key: pair.keyPem, cert: pair.certificatePem, requestCert: true, rejectUnauthorized: false };
  const server: Server = createServer(tls, (incoming, response) => {
    if (incoming.url?.endsWith('/readyz') === true) return void response.end('ok');
    asked.push(incoming.url ?? '');
    incoming.resume();
    if (!incoming.url!.endsWith(REVIEWS)) return void response.end('from kcp');
    const isKnown = (incoming.socket as TLSSocket).getPeerCertificate().subject !== undefined;
    const claimed = believes && isKnown ? incoming.headers['x-remote-user'] : undefined;
    const user = String(claimed ?? 'system:anonymous');
    const cannot = 'cannot create resource "selfsubjectreviews" in API group "authentication.k8s.io"';
    response.writeHead(403, { 'content-type': 'application/json' }).end(
      JSON.stringify({
        kind: 'Status',
        apiVersion: 'v1',
        message: `selfsubjectreviews is forbidden: User "${user}" ${cannot}: access denied`,
        reason: 'Forbidden',
        code: 403,
      }),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closers.push(async () => {
    server.closeAllConnections();
    server.close();
  });
  const dataOf = (text: string): string => Buffer.from(text).toString('base64');
  const certificate = {
    'client-certificate-data': dataOf(pair.certificatePem),
    'client-key-data': dataOf(pair.keyPem),
  };
  const address = {
    server: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    'certificate-authority-data': dataOf(authority.certificatePem),
  };
  return {
    asked,
    kubeconfig: {
      'current-context': 'c',
      clusters: [{ name: 'k', cluster: address }],
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
      users: [{ name: 'u', user: certificate }],
    },
  };
}

async function open(kubeconfig: object, kcp: boolean): Promise<ClusterRig> {
  const content = {
    clusters: [{ name: 'a', kcp, identity: 'requestHeader', kubeconfig: { file: 'DIR/a.yaml' } }],
  };
  const rig = await openClusterRig({ content, files: { 'a.yaml': JSON.stringify(kubeconfig) } });
  closers.push(() => rig.close());
  return rig;
}

const PATH = '/clusters/a/clusters/root:team-a/api';

describe('request headers at kcp', () => {
  it('are proven in a workspace by the user that the refusal names', async () => {
    const { asked, kubeconfig } = await startKcp(true);
    const rig = await open(kubeconfig, true);
    expect(await rig.get(PATH)).toMatchObject({ status: 200, body: 'from kcp' });
    expect(new Set(asked)).toEqual(new Set([`/clusters/root${REVIEWS}`, '/clusters/root:team-a/api']));
  });

  it('are refused if kcp ignores them', async () => {
    const { kubeconfig } = await startKcp(false);
    const rig = await open(kubeconfig, true);
    expect((await rig.get(PATH)).status).not.toBe(200);
    expect(rig.log()).toContain('the API server does not trust them (403)');
  });

  it('need a review that succeeds at every other server', async () => {
    const { asked, kubeconfig } = await startKcp(true);
    const rig = await open(kubeconfig, false);
    expect((await rig.get('/clusters/a/api')).status).not.toBe(200);
    expect(new Set(asked)).toEqual(new Set([REVIEWS]));
  });
});
