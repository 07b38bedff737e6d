/**
 * The reference's own API-server proxy and session hijacker, unmodified, in front of a real API server. tailcast's
 * recorder must record sessions through this proxy like sessions through tailcast's gateway.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPod } from '../cases/case.ts';
import { ensurePeer } from '../rig/build.ts';
import {
  type Kubectl,
  type KubectlResult,
  type Transport,
  environmentFor,
  runKubectl,
} from '../rig/kubectl.ts';
import { type ReferenceProxy, startReferenceProxy } from '../rig/reference-proxy.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { openTerminal } from '../rig/terminal.ts';
import type { Archive, RecordedOutput, StoredRecording } from '../support/archive.ts';
import { type SiteRecorder, sitePolicy } from '../support/site.ts';
import { type TailnetSite, ensureTailnetSite, startTailnetSite } from '../support/tailnet-site.ts';

type Front = 'reference' | 'reference in noauth mode' | 'ours';

let rig: Rig;
let site: TailnetSite;
let recorder: SiteRecorder;
let references: Readonly<Record<'auth' | 'noauth', ReferenceProxy>>;
let archive: Archive;
let kubectl: Kubectl;
let counter = 0;

beforeAll(async () => {
  await ensureTailnetSite();
  await ensurePeer('reference');
  rig = createRig();
  site = await startTailnetSite(rig, [
    { name: 'alice', user: 'alice@example.com' },
    { name: 'bob', user: 'bob@example.com' },
  ]);
  ({ recorder, archive, kubectl } = site);
  const { cluster, tailnet } = site;
  tailnet.setPolicy(
    sitePolicy([
      {
        src: 'alice@example.com',
        groups: ['system:masters'],
        recorder: [recorder.address],
        enforce: true,
        events: true,
      },
      { src: 'bob@example.com', groups: ['rig:viewers'] },
    ]),
  );
  const start = (mode: 'auth' | 'noauth'): Promise<ReferenceProxy> =>
    startReferenceProxy(rig, { mode, kubernetes: cluster, tailnet });
  references = { auth: await start('auth'), noauth: await start('noauth') };
  for (const front of ['ours', 'reference'] as const) {
    await rig.until(`the grants are in force at ${front}`, async () =>
      (await whoami('alice', front)).includes('system:masters') ? true : undefined,
    );
  }
});

afterAll(() => rig?.stop());

function configOf(from: string, front: Front): string {
  if (front === 'reference') return references.auth.kubeconfig(from);
  if (front === 'reference in noauth mode') return references.noauth.kubeconfig(from);
  return site.kubeconfig(from);
}

function at(
  from: string,
  front: Front,
  args: readonly string[],
  transport?: Transport,
): Promise<KubectlResult> {
  const kubeconfig = configOf(from, front);
  return runKubectl(kubectl, args, { kubeconfig, ...(transport === undefined ? {} : { transport }) });
}

async function whoami(from: string, front: Front): Promise<string> {
  return (
    await at(from, front, ['auth', 'whoami', '--output=jsonpath={.status.userInfo}'])
  ).stdout.toString();
}

interface Session {
  readonly pod: string;
  readonly recording: StoredRecording;
  readonly output: RecordedOutput;
}

/** Creates a pod, runs `act`, and returns the only recording of the pod. */
async function session(front: Front, act: (pod: string) => Promise<void>): Promise<Session> {
  counter += 1;
  const pod = `reference-${counter}`;
  await createPod(site.cluster, pod, { command: ['sleep', 'infinity'] });
  await act(pod);
  const closed = front === 'ours' ? archive.whole([pod], 1) : whole(pod);
  const [recording] = await closed;
  return { pod, recording: recording!, output: await archive.read(recording!.id) };
}

/** The reference does not report the end of a session, so the test waits only for the end of the upload. */
function whole(pod: string): Promise<readonly StoredRecording[]> {
  return rig.until(`the recording of ${pod}`, async () => {
    const found = await archive.of(pod);
    return found.length > 0 && found.every(({ state }) => state !== 'running') ? found : undefined;
  });
}

const SCRIPT = 'echo out; sleep 0.2; printf "größe € 😀\\n"';

describe.each(['reference', 'reference in noauth mode'] as const)('a session through the %s', (front) => {
  it.each(['websocket', 'spdy'] as const)('over %s is recorded as through our gateway', async (transport) => {
    const act = (through: Front) => async (pod: string) => {
      const run = await at('alice', through, ['exec', pod, '--', 'sh', '-c', SCRIPT], transport);
      expect(run.stdout.toString()).toBe('out\ngröße € 😀\n');
    };
    const theirs = await session(front, act(front));
    const ours = await session('ours', act('ours'));
    expect(theirs.output.text).toBe(ours.output.text);
    expect(theirs.recording).toMatchObject({
      state: 'completed',
      kind: 'exec',
      command: ours.recording.command,
      source: { user: 'alice@example.com', node: 'alice.lab.ts.net' },
      kubernetes: { namespace: 'default', pod: theirs.pod },
    });
    expect(comparable(theirs)).toEqual(comparable(ours));
  });

  it.each(['websocket', 'spdy'] as const)(
    'on a terminal over %s keeps its size and what it showed',
    async (transport) => {
      const act = (through: Front) => async (pod: string) => {
        const args = [
          'exec',
          '-it',
          pod,
          '--',
          'env',
          'PS1=rig> ',
          'bash',
          '--norc',
          '--noprofile',
          '--noediting',
          '-i',
        ];
        const terminal = openTerminal(kubectl.path, args, {
          env: environmentFor({ kubeconfig: configOf('alice', through), transport }),
          columns: 97,
          rows: 31,
        });
        await terminal.expect('rig> ');
        terminal.resize(120, 40);
        terminal.type('until stty size | grep -q \'40 120\'; do sleep 0.05; done; echo re""sized\r');
        await terminal.expect('resized');
        await terminal.expect('rig> ');
        terminal.type('exit 3\r');
        await terminal.ended;
      };
      const theirs = await session(front, act(front));
      const ours = await session('ours', act('ours'));
      expect(withoutEcho(theirs.output.text)).toBe(withoutEcho(ours.output.text));
      expect([theirs.recording.width, theirs.recording.height]).toEqual([97, 31]);
      expect(comparable(theirs)).toEqual(comparable(ours));
    },
  );
});

describe('what is not a session', () => {
  it('leaves events in our recorder, as from our gateway', async () => {
    const events = (): Promise<number> => recorder.metric('tailcast_recorder_events_total');
    for (const front of ['reference', 'ours'] as const) {
      const before = await events();
      // `-v=6` makes kubectl log each request, so that the log of a failure shows which response is missing
      const run = await at('alice', front, ['get', 'configmaps', '--output=name', '-v=6']);
      expect([run.code, run.stdout.toString()]).toEqual([0, 'configmap/kube-root-ca.crt\n']);
      await expect.poll(events, { timeout: 10_000 }).toBeGreaterThan(before);
    }
  });

  it('makes the same person of each caller', async () => {
    for (const who of ['alice', 'bob'])
      expect(await whoami(who, 'reference')).toBe(await whoami(who, 'ours'));
  });
});

/** Returns a cast header without its time, its uploader and the field that only tailcast's gateway adds. */
function comparable({ output, pod }: Session): object {
  const {
    tailcast: _mark,
    dstNode: _name,
    dstNodeID: _id,
    connectionID: _session,
    ...header
  } = output.header;
  const text = JSON.stringify({ ...header, timestamp: 0 }).replaceAll(pod, 'POD');
  return JSON.parse(text) as object;
}

/** Removes line breaks of the terminal's echo, because their position depends on timing. */
function withoutEcho(text: string): string {
  return text.replaceAll('\r\n', '\n');
}
