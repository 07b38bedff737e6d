import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { runRecorder, startRecorder } from '../../src/compose/recorder.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { parseViewRule, type Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import { createRig, HEADER, UPLOADER, uploadWhole, type Rig } from './recorder-rig.ts';
import { recorderSettings } from '../support/settings.ts';

const GATEWAY: Viewer = { node: 'k8s.tail1.ts.net', nodeId: 'nGATE1CNTRL', tags: ['tag:k8s-gateway'] };
const NAMED = {
  'tailscale-user-login': 'alice@example.com',
  'x-tailcast-viewer-node': 'laptop.tail1.ts.net',
  'x-tailcast-viewer-node-id': 'nA1CNTRL',
  'x-tailcast-viewer-address': '100.64.0.4',
};
const ACCEPTED = 'x-tailcast-viewer-accepted';
const OTHER = HEADER.replace('"Namespace":"prod"', '"Namespace":"test"');

/** Starts a recorder with two recordings; alice may read only one of them, and the gateway none. */
async function recorderFor(caller: Viewer, trustedGateways: readonly string[]): Promise<Rig> {
  const rig = await createRig({
    identifyViewer: async () => caller,
    viewers: [parseViewRule('alice@example.com=namespace:test'), parseViewRule('tag:audit')],
    trustedGateways,
  });
  onTestFinished(() => rig[Symbol.asyncDispose]());
  await uploadWhole(rig.recorder, HEADER);
  await uploadWhole(rig.recorder, OTHER);
  return rig;
}

async function namespaces(from: Rig, headers: Record<string, string>): Promise<(string | undefined)[]> {
  const { body } = await from.get('/api/v1/recordings', headers);
  const { recordings } = JSON.parse(body) as { recordings: { kubernetes?: { namespace: string } }[] };
  return recordings.map(({ kubernetes }) => kubernetes?.namespace);
}

describe('a gateway that the recorder trusts', () => {
  it.each([['tag:k8s-gateway'], ['nGATE1CNTRL']])('names the viewer by %s', async (trusted) => {
    const rig = await recorderFor(GATEWAY, [trusted]);
    const answer = await rig.get('/api/v1/recordings', NAMED);
    expect(answer.headers[ACCEPTED]).toBe('nA1CNTRL');
    expect(await namespaces(rig, NAMED)).toEqual(['test']);
  });

  it('also names tagged nodes, whose rules apply', async () => {
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    const { 'tailscale-user-login': _, ...rest } = NAMED;
    expect(await namespaces(from, { ...rest, 'x-tailcast-viewer-tags': 'tag:ci' })).toEqual([]);
    const auditor = { ...rest, 'x-tailcast-viewer-tags': 'tag:ci,tag:audit' };
    expect(new Set(await namespaces(from, auditor))).toEqual(new Set(['prod', 'test']));
    expect((await from.get('/api/v1/events', auditor)).status).toBe(200);
    expect((await from.get('/api/v1/events', NAMED)).status).toBe(403);
  });

  it('is the viewer itself if it names nobody', async () => {
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    const answer = await from.get('/api/v1/recordings');
    expect(answer.headers[ACCEPTED]).toBeUndefined();
    expect(JSON.parse(answer.body)).toEqual({ recordings: [], noRuleFor: GATEWAY.node });
  });

  it('is refused if it names a viewer ambiguously', async () => {
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    for (const unclear of [
      { ...NAMED, 'x-tailcast-viewer-tags': 'tag:audit' },
      { ...NAMED, 'x-tailcast-viewer-node-id': '' },
      { 'x-tailcast-viewer-node': 'laptop.tail1.ts.net' },
    ]) {
      const answer = await from.get('/api/v1/recordings', unclear);
      expect(answer.status).toBe(403);
      expect(answer.body).toContain('an invalid identity');
      expect(answer.headers[ACCEPTED]).toBeUndefined();
    }
  });

  it('names another viewer with each request of a connection, and each request is checked separately', async () => {
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    const bob = { ...NAMED, 'tailscale-user-login': 'bob@example.com' };
    expect(await namespaces(from, NAMED)).toEqual(['test']);
    expect(await namespaces(from, bob)).toEqual([]);
  });

  it('is in the events next to the viewer that it named', async () => {
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    const { body } = await from.get('/api/v1/recordings', NAMED);
    const [recording] = JSON.parse(body).recordings as { id: string }[];
    await from.get(`/api/v1/recordings/${recording!.id}/cast?normalise=1`, NAMED);
    await from.get(`/api/v1/recordings/${recording!.id}/cast`, NAMED);
    const auditor = { ...NAMED, 'x-tailcast-viewer-tags': 'tag:audit' } as Record<string, string>;
    delete auditor['tailscale-user-login'];
    const found = await from.get('/api/v1/events?type=tailcast-recording-access', auditor);
    const { events } = JSON.parse(found.body) as {
      events: { event: { action: string; source: unknown; gateway: unknown } }[];
    };
    expect(events.map(({ event }) => event.action)).toEqual(['download', 'play', 'list']);
    for (const { event } of events) {
      expect(event.source).toEqual({
        node: 'laptop.tail1.ts.net',
        nodeID: 'nA1CNTRL',
        address: '100.64.0.4',
        nodeUser: 'alice@example.com',
      });
      expect(event.gateway).toMatchObject({ node: 'k8s.tail1.ts.net', nodeID: 'nGATE1CNTRL' });
    }
  });

  it('is in the event of a live view', async () => {
    const kept: string[] = [];
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    const { body } = await from.get('/api/v1/recordings', NAMED);
    const [recording] = JSON.parse(body).recordings as { id: string }[];
    const address = `${from.recorder.url.replace('http', 'ws')}/api/v1/recordings/${encodeURIComponent(recording!.id)}/live`;
    const viewer = new WebSocket(address, ['v2.asciicast'], { headers: NAMED });
    viewer.on('message', (data: Buffer) => kept.push(data.toString()));
    await once(viewer, 'close');
    expect(kept.length).toBeGreaterThan(0);
    const { 'tailscale-user-login': _, ...node } = NAMED;
    const auditor = { ...node, 'x-tailcast-viewer-tags': 'tag:audit' };
    const found = await from.get('/api/v1/events?type=tailcast-recording-access&limit=1', auditor);
    expect(JSON.parse(found.body).events[0].event).toMatchObject({
      action: 'play',
      recording: recording!.id,
      request: { method: 'GET', path: expect.stringMatching(/\/live$/) },
      source: { nodeID: 'nA1CNTRL', nodeUser: 'alice@example.com' },
      gateway: { nodeID: 'nGATE1CNTRL' },
    });
  });

  it('gets a confirmation over a WebSocket, too', async () => {
    const from = await recorderFor(GATEWAY, ['tag:k8s-gateway']);
    const { body } = await from.get('/api/v1/recordings', NAMED);
    const [recording] = JSON.parse(body).recordings as { id: string }[];
    const address = `${from.recorder.url.replace('http', 'ws')}/api/v1/recordings/${encodeURIComponent(recording!.id)}/live`;
    const viewer = new WebSocket(address, ['v2.asciicast'], { headers: NAMED });
    const [response] = await once(viewer, 'upgrade');
    expect(response.headers[ACCEPTED]).toBe('nA1CNTRL');
    await once(viewer, 'close');
    const bob = { ...NAMED, 'tailscale-user-login': 'bob@example.com' };
    const [error] = await once(new WebSocket(address, ['v2.asciicast'], { headers: bob }), 'error');
    expect(String(error)).toContain('404');
  });
});

describe('other nodes', () => {
  it.each([
    ['a node with another tag', { ...GATEWAY, nodeId: 'nOTHER', tags: ['tag:k8s'] }],
    ['a person', { node: 'eve.tail1.ts.net', nodeId: 'nEVE', user: 'tag:k8s-gateway' }],
    ['nobody', { node: '', nodeId: '' }],
  ])('cannot name a viewer: %s', async (_name, caller) => {
    const from = await recorderFor(caller, ['tag:k8s-gateway']);
    const answer = await from.get('/api/v1/recordings', NAMED);
    expect(answer.headers[ACCEPTED]).toBeUndefined();
    expect(JSON.parse(answer.body)).toEqual({
      recordings: [],
      noRuleFor: 'user' in caller ? caller.user : caller.node,
    });
    const unclear = await from.get('/api/v1/recordings', { ...NAMED, 'x-tailcast-viewer-node': '' });
    expect(unclear.status).toBe(200);
  });

  it('cannot name a viewer at a recorder that trusts no gateway', async () => {
    const from = await recorderFor(GATEWAY, []);
    expect(await namespaces(from, NAMED)).toEqual([]);
  });
});

describe('the settings', () => {
  const start = (settings: Record<string, unknown>): Promise<unknown> =>
    startRecorder(
      {
        ...recorderSettings({ store: '/dev/null/recordings', ...settings }),
        listen: { host: '127.0.0.1', port: 0 },
      },
      { identify: async () => UPLOADER, log: createSilentLogger() },
    );

  it.each(['*', 'alice@example.com', 'gateway.tail1.ts.net', 'tag:', 'tag:a b'])(
    'reject %s as a gateway',
    async (trustedGateways) => {
      await expect(start({ trustedGateways, viewers: '*' })).rejects.toThrow('neither a tag nor');
    },
  );

  it('reject a gateway on loopback, where any process could pretend to be the gateway', async () => {
    const settings = recorderSettings({
      store: '/dev/null/recordings',
      identity: 'loopback',
      trustedGateways: 'local',
      viewers: '*',
    });
    const { stdout, stderr } = process;
    const context = { stdout, stderr, environment: new Map(), signal: AbortSignal.abort() };
    await expect(runRecorder(settings, context)).rejects.toThrow('needs identity=tailscale');
  });

  it('require rules for viewers if a gateway is trusted', async () => {
    await expect(start({ trustedGateways: 'tag:k8s-gateway' })).rejects.toThrow('needs viewers');
  });
});
