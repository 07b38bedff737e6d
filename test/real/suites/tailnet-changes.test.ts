/**
 * Users and their sessions when a node or a grant is removed, and during outages of the control server, the gateway's
 * tailscaled, the recorder and the recorder's node.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createPod } from '../cases/case.ts';
import {
  type Kubectl,
  type KubectlResult,
  environmentFor,
  runKubectl,
  startKubectl,
} from '../rig/kubectl.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import type { Tailnet, TailnetNode } from '../rig/tailnet.ts';
import { type Terminal, openTerminal } from '../rig/terminal.ts';
import type { Archive, StoredRecording } from '../support/archive.ts';
import { type SiteGateway, type SiteGrant, type SiteRecorder, sitePolicy } from '../support/site.ts';
import { ensureTailnetSite, startTailnetSite } from '../support/tailnet-site.ts';

/** Maximum time until access that was removed has ended everywhere (docs/identity.md). */
const ACCESS_ENDS_MS = 15_000;
const PROMPT = '$ ';

let rig: Rig;
let cluster: Kubernetes;
let tailnet: Tailnet;
let proxy: TailnetNode;
let recorder: SiteRecorder;
let gateway: SiteGateway;
let archive: Archive;
let kubectl: Kubectl;
let configOf: (from: string) => string;
let pod = '';
let pods = 0;

beforeAll(async () => {
  await ensureTailnetSite();
  rig = createRig();
  const site = await startTailnetSite(rig, [
    { name: 'alice', user: 'alice@example.com' },
    { name: 'carol', user: 'carol@example.com' },
    { name: 'eve', user: 'eve@example.com' },
  ]);
  ({ cluster, tailnet, proxy, recorder, gateway, archive, kubectl, kubeconfig: configOf } = site);
  await setGrants(GRANTS());
});

afterAll(() => rig?.stop());

beforeEach(async () => {
  pods += 1;
  pod = `shell-${pods}`;
  await createPod(cluster, pod, { command: ['sleep', 'infinity'] });
});

/** Recording is enforced for alice and eve; carol's sessions also run without a recorder. */
const GRANTS = (): readonly SiteGrant[] => [
  { src: 'alice@example.com', groups: ['system:masters'], recorder: [recorder.address], enforce: true },
  { src: 'carol@example.com', groups: ['system:masters'], recorder: [recorder.address] },
  {
    src: 'eve@example.com',
    groups: ['system:masters', 'tier:2'],
    recorder: [recorder.address],
    enforce: true,
  },
];

async function setGrants(grants: readonly SiteGrant[]): Promise<void> {
  tailnet.setPolicy(sitePolicy(grants));
  for (const { src, groups } of grants) {
    await rig.until(`the grant of ${src}`, async () => {
      const run = await at(src.split('@')[0]!, [
        'auth',
        'whoami',
        '--output=jsonpath={.status.userInfo.groups}',
      ]);
      return groups.every((group) => run.stdout.toString().includes(group)) ? true : undefined;
    });
  }
}

function at(from: string, args: readonly string[], timeoutMs = 60_000): Promise<KubectlResult> {
  return runKubectl(kubectl, args, { kubeconfig: configOf(from), timeoutMs });
}

interface CutSession {
  readonly name: string;
  readonly outcome: 'client-disconnected' | 'interrupted';
}

/** Pods whose sessions were cut off by a failure, and the expected state of their recordings. */
const cut: CutSession[] = [];

/** Opens a shell in the test's pod and waits until the recorder has acknowledged its first output. */
async function openShell(from: string): Promise<Terminal> {
  const args = ['exec', '-it', pod, '--', 'env', `PS1=${PROMPT}`, 'sh'];
  const terminal = openTerminal(kubectl.path, args, { env: environmentFor({ kubeconfig: configOf(from) }) });
  rig.onStop(() => terminal.kill());
  await terminal.expect(PROMPT);
  terminal.type('echo so-"far"\r');
  await terminal.expect('so-far');
  await terminal.expect(PROMPT);
  await rig.until(
    'the recording has what was said',
    async () => {
      const [recording] = await archive.of(pod);
      if (recording === undefined) return undefined;
      const cast = await fetch(`${recorder.url}/api/v1/recordings/${recording.id}/cast`);
      return (await cast.text()).includes('so-far') ? true : undefined;
    },
    { timeoutMs: 15_000 },
  );
  return terminal;
}

/** Returns the only recording of a pod after the recorder has finished it. */
function settled(name: string, timeoutMs: number): Promise<StoredRecording> {
  return rig.until(
    `the recording of ${name}`,
    async () => {
      const [only, ...more] = await archive.of(name);
      if (only !== undefined && more.length === 0 && only.state !== 'running') return only;
      throw new Error(`${more.length + (only === undefined ? 0 : 1)} recordings, ${only?.state ?? 'none'}`);
    },
    { timeoutMs },
  );
}

async function sessionsInAudit(stage?: string): Promise<number> {
  const sessions = cluster
    .audit()
    .filter(({ objectRef }) => objectRef?.subresource === 'exec' && objectRef.name === pod);
  return sessions.filter((event) => stage === undefined || event.stage === stage).length;
}

/** Runs a new session of alice, and returns its exit code, its output and the state of its recording. */
async function newSession(): Promise<object> {
  pods += 1;
  const fresh = `fresh-${pods}`;
  await createPod(cluster, fresh, { command: ['sleep', 'infinity'] });
  const { code, stdout, stderr } = await at('alice', ['exec', fresh, '--', 'echo', 'fine']);
  const [recording] = code === 0 ? await archive.whole([fresh], 1) : [];
  return { code, stdout: stdout.toString(), stderr: stderr.toString(), recording: recording?.state };
}

const AS_ALWAYS = { code: 0, stdout: 'fine\n', stderr: '', recording: 'completed' };

describe('access that ends', () => {
  it('ends a session and a watch when the grant is gone, and says why', { timeout: 90_000 }, async () => {
    const terminal = await openShell('eve');
    const watch = startKubectl(kubectl, ['get', 'pods', '--watch'], { kubeconfig: configOf('eve') });
    const watchEnded = new Promise((done) => watch.once('exit', done));
    const started = performance.now();
    tailnet.setPolicy(sitePolicy(GRANTS().filter(({ src }) => !src.startsWith('eve'))));
    await terminal.expect('the access to this cluster has ended', ACCESS_ENDS_MS);
    expect(await terminal.ended).not.toBe(0);
    await watchEnded;
    expect(performance.now() - started).toBeLessThan(ACCESS_ENDS_MS + 5_000);
    expect(await settled(pod, 15_000)).toMatchObject({ state: 'interrupted' });
    const again = await at('eve', ['get', 'pods']);
    expect(again.stderr.toString()).toContain('cannot list resource "pods"');
    await setGrants(GRANTS());
  });

  it('ends the session of a node that is removed from the tailnet', { timeout: 90_000 }, async () => {
    await tailnet.join({ name: 'temp', user: 'eve@example.com' });
    const terminal = await openShell('temp');
    await tailnet.remove('temp');
    const recording = await settled(pod, ACCESS_ENDS_MS + 10_000);
    expect(recording).toMatchObject({ state: 'interrupted', source: { node: 'temp.lab.ts.net' } });
    expect((await archive.read(recording.id)).text).toContain('so-far');
    expect(await gateway.metric('tailcast_sessions_active')).toBe(0);
    terminal.kill();
    await tailnet.node('temp').program.stop();
    expect(await newSession()).toEqual(AS_ALWAYS);
  });
});

describe('an outage', () => {
  it('of the control server is not noticed by who is known', async () => {
    tailnet.control.pause();
    try {
      expect(await newSession()).toEqual(AS_ALWAYS);
    } finally {
      tailnet.control.resume();
    }
  });

  it(
    'of tailscaled ends what goes through it; when it is back, so is the gateway',
    { timeout: 150_000 },
    async () => {
      const terminal = await openShell('alice');
      await proxy.program.stop();
      await expect.poll(() => gateway.metric('tailcast_sessions_active'), { timeout: 20_000 }).toBe(0);
      proxy.program.start();
      await rig.until('the tailnet is back', () => at('alice', ['get', '--raw=/version'], 10_000).then(ok), {
        timeoutMs: 60_000,
      });
      expect(await terminal.ended).not.toBe(0);
      // The gateway detects that the client has disconnected, and reports that as soon as the recorder is reachable
      // again.
      cut.push({ name: pod, outcome: 'client-disconnected' });
      expect(await newSession()).toEqual(AS_ALWAYS);
    },
  );

  it(
    'of tailscaled that answers nothing ends sessions, because nobody vouches for them',
    { timeout: 150_000 },
    async () => {
      const terminal = await openShell('alice');
      proxy.program.pause();
      try {
        // The session is cut off and cannot change the cluster, but its recording is not finished yet.
        await expect.poll(() => sessionsInAudit('ResponseComplete'), { timeout: 40_000 }).toBe(1);
      } finally {
        proxy.program.resume();
      }
      expect(await terminal.ended).not.toBe(0);
      cut.push({ name: pod, outcome: 'interrupted' });
      expect(await newSession()).toEqual(AS_ALWAYS);
    },
  );

  describe('of the recorder', () => {
    it('at the start refuses who must be recorded at once, and does not ask the API server', async () => {
      await recorder.program.stop();
      try {
        const started = performance.now();
        const run = await at('alice', ['exec', pod, '--', 'true']);
        expect(run.code).toBe(1);
        expect(run.stderr.toString()).toContain('this session must be recorded, but no recorder accepted it');
        expect(performance.now() - started).toBeLessThan(5_000);
        expect(await sessionsInAudit()).toBe(0);
      } finally {
        await restartRecorder();
      }
      expect(await newSession()).toEqual(AS_ALWAYS);
    });

    it('at the start is counted for who is recorded if possible', async () => {
      const before = await gateway.metric('tailcast_sessions_unrecorded_total');
      await recorder.program.stop();
      try {
        const run = await at('carol', ['exec', pod, '--', 'echo', 'ran']);
        expect([run.code, run.stdout.toString()]).toEqual([0, 'ran\n']);
      } finally {
        await restartRecorder();
      }
      expect(await gateway.metric('tailcast_sessions_unrecorded_total')).toBe(before + 1);
      expect(gateway.program.log()).toContain('"user":"carol@example.com"');
      expect(await archive.of(pod)).toEqual([]);
    });

    it(
      'in mid-session ends the session of who must be recorded, and says why',
      { timeout: 120_000 },
      async () => {
        const terminal = await openShell('alice');
        recorder.program.signal('SIGKILL');
        await terminal.expect('the session recorder was lost', 45_000);
        expect(await terminal.ended).not.toBe(0);
        await restartRecorder();
        cut.push({ name: pod, outcome: 'interrupted' });
      },
    );

    it(
      'in mid-session lets the session of who is recorded if possible go on',
      { timeout: 120_000 },
      async () => {
        const lost = await gateway.metric('tailcast_recorder_lost_total');
        const terminal = await openShell('carol');
        recorder.program.signal('SIGKILL');
        await expect
          .poll(() => gateway.metric('tailcast_recorder_lost_total'), { timeout: 45_000 })
          .toBe(lost + 1);
        terminal.type('echo still-"here"\r');
        await terminal.expect('still-here');
        terminal.type('exit 3\r');
        expect(await terminal.ended).toBe(3);
        await restartRecorder();
        cut.push({ name: pod, outcome: 'interrupted' });
        expect(await gateway.metric('tailcast_recording_gaps_total')).toBeGreaterThan(0);
      },
    );
  });

  describe("of the recorder's node", () => {
    it('at the start refuses who must be recorded', { timeout: 120_000 }, async () => {
      const node = tailnet.node('recorder');
      await node.program.stop();
      try {
        const run = await at('alice', ['exec', pod, '--', 'true']);
        expect(run.code).toBe(1);
        expect(run.stderr.toString()).toContain('this session must be recorded, but no recorder accepted it');
        expect(await sessionsInAudit()).toBe(0);
      } finally {
        await restartRecorderNode();
      }
      expect(await newSession()).toEqual(AS_ALWAYS);
    });

    it(
      'in mid-session ends the session of who must be recorded, and says why',
      { timeout: 150_000 },
      async () => {
        const terminal = await openShell('alice');
        await tailnet.node('recorder').program.stop();
        try {
          // No message reports a lost node: the gateway treats it as lost after half a minute without
          // acknowledgements.
          await terminal.expect('the session recorder was lost', 60_000);
          expect(await terminal.ended).not.toBe(0);
        } finally {
          await restartRecorderNode();
        }
        cut.push({ name: pod, outcome: 'interrupted' });
      },
    );
  });
});

/** Time for which the recorder waits for the rest of an interrupted session. */
const RESUME_MS = 150_000;

describe('the sessions that were cut off', () => {
  it(
    'get their end from the gateway as soon as there is a way, and keep what was acknowledged',
    { timeout: 2 * RESUME_MS + 10_000 },
    async () => {
      expect(cut).toHaveLength(5);
      const ends = cut.map(async ({ name, outcome }) => {
        const { id } = await settled(name, RESUME_MS);
        const { text } = await archive.read(id);
        const seen = await rig.until(`the end of ${name}`, async () => (await archive.read(id)).outcome, {
          timeoutMs: RESUME_MS,
        });
        const [recording] = await archive.of(name);
        expect({
          name,
          state: recording?.state,
          outcome: seen,
          kept: text.includes('so-far'),
        }).toEqual({ name, state: 'interrupted', outcome, kept: true });
      });
      await Promise.all(ends);
    },
  );
});

function ok({ code }: KubectlResult): true | undefined {
  return code === 0 ? true : undefined;
}

async function restartRecorder(): Promise<void> {
  await rig.until('the recorder has ended', async () => (recorder.program.running ? undefined : true));
  recorder.program.start();
  await rig.until('the recorder is back', () => archive.count().then(() => true), {
    watch: [recorder.program],
  });
  // Repeats the command, because the gateway tries a recently failed recorder last, and with a short timeout.
  await rig.until('the gateway reaches the recorder', () =>
    at('alice', ['exec', 'nobody', '--', 'true']).then(reached),
  );
}

async function restartRecorderNode(): Promise<void> {
  tailnet.node('recorder').program.start();
  await rig.until(
    'the gateway reaches the recorder',
    () => at('alice', ['exec', 'nobody', '--', 'true']).then(reached),
    { timeoutMs: 60_000 },
  );
}

/** Returns true if the gateway reaches a recorder: otherwise it does not forward a request for a missing pod. */
function reached({ stderr }: KubectlResult): true | undefined {
  return stderr.toString().includes('pods "nobody" not found') ? true : undefined;
}
