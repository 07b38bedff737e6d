/**
 * Clients that a recorder accepts. The recorder is started from settings, with a tailscaled double that identifies only
 * some clients.
 */
import { mkdtempSync } from 'node:fs';
import { connect } from 'node:http2';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openIdentities } from '../../src/compose/recorder-identities.ts';
import { startRecorder } from '../../src/compose/recorder.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { startLocalApiDouble, taggedNode } from '../support/local-api-double.ts';
import { recorderSettings } from '../support/settings.ts';

/**
 * @param tags tags of the node that connects from 127.0.0.1; undefined: tailscaled does not know the node, as behind
 * `tailscale serve`
 */
async function open(settings: Readonly<Record<string, unknown>>, tags: readonly string[] | undefined) {
  const folder = mkdtempSync(join(tmpdir(), 'tc-identities-'));
  const localApi = await startLocalApiDouble();
  onTestFinished(() => localApi.close());
  if (tags !== undefined) {
    const body = { ...taggedNode(), Node: { ...(taggedNode()['Node'] as object), Tags: tags } };
    // returns the node for every address, because the query contains a port that the OS chooses
    localApi.whois.get = () => body;
  }
  const config = recorderSettings({
    store: join(folder, 'recordings'),
    socket: localApi.socketPath,
    ...settings,
  });
  const { identify, identifyViewer } = openIdentities(config);
  const recorder = await startRecorder(
    { ...config, listen: { host: '127.0.0.1', port: 0 }, drainSeconds: 1 },
    { identify, identifyViewer, log: createSilentLogger() },
  );
  onTestFinished(() => recorder.close());
  return `http://127.0.0.1:${recorder.address.port}`;
}

/** Status of an empty upload. */
async function upload(url: string): Promise<number> {
  const session = connect(url);
  session.on('error', () => {});
  const stream = session.request({ ':method': 'POST', ':path': '/v2/record' });
  const answered = once(stream, 'response') as Promise<[{ ':status': number }]>;
  stream.on('error', () => {});
  stream.resume();
  stream.end();
  const [{ ':status': status }] = await answered;
  session.destroy();
  return status;
}

async function list(url: string): Promise<number> {
  const response = await fetch(`${url}/api/v1/recordings`, {
    headers: { 'tailscale-user-login': 'alice@example.com', 'x-forwarded-for': '100.64.0.4' },
  });
  await response.text();
  return response.status;
}

describe('the player behind HTTPS of `tailscale serve`, which says nothing of who calls', () => {
  it('shows nothing where viewers are named, whatever headers say', async () => {
    expect(await list(await open({ viewers: 'alice@example.com' }, undefined))).toBe(403);
    expect(await list(await open({ viewers: '*' }, undefined))).toBe(403);
  });

  it('shows everything where nobody is named', async () => {
    expect(await list(await open({}, undefined))).toBe(200);
  });

  it('takes no upload', async () => {
    expect(await upload(await open({}, undefined))).toBeGreaterThanOrEqual(400);
  });
});

describe('uploads', () => {
  it.each([
    ['tag:k8s-gateway', ['tag:k8s-gateway'], 200],
    ['tag:k8s-gateway', ['tag:other'], 403],
    ['tag:a,tag:b', ['tag:b', 'tag:c'], 200],
    ['', ['tag:other'], 200],
  ])('of %j from a node with %j are answered %i', async (uploaders, tags, status) => {
    expect(await upload(await open(uploaders === '' ? {} : { uploaders }, tags))).toBe(status);
  });
});
