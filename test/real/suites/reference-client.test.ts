/** Runs the reference's own recording client and Go types, as released, against tailcast's recorder and encoders. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import { type RunningRecorder, createRecorder } from '../../../src/compose/recorder-parts.ts';
import type { RecorderOptions } from '../../../src/compose/recorder-options.ts';
import { encodeCastEvent } from '../../../src/wire/asciicast/event.ts';
import { type CastHeader, encodeCastHeader } from '../../../src/wire/asciicast/header.ts';
import { type ApiRequestEvent, encodeApiRequestEvent } from '../../../src/wire/recorder-api/api-event.ts';
import { ensurePeer } from '../rig/build.ts';
import { freePort } from '../rig/rig.ts';

const UPLOADER = { kind: 'accepted', nodeId: 'nPROXY1CNTRL', nodeName: 'proxy.lab.ts.net' } as const;
interface UploadResult {
  readonly protocol: string;
  readonly attempts: readonly { readonly recorder: string; readonly failure: string }[];
  readonly sent: number;
  readonly acks: readonly number[];
  readonly firstAckMillis: number;
  readonly error: string;
  readonly stage: string;
  readonly millis: number;
}

let client = '';
const cleanups: (() => Promise<void> | void)[] = [];

beforeAll(async () => {
  client = (await ensurePeer('reference'))['recording-client'] ?? '';
});

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

describe.each(['auto', 'v1'] as const)('an upload, protocol %s', (protocol) => {
  const spoken = protocol === 'auto' ? 'v2' : 'v1';

  it('is stored byte for byte behind a header that gains the two keys of the uploader', async () => {
    const { recorder, stored } = await startRecorder();
    const cast = header() + eventLines(200);
    const result = await upload(recorder, cast, ['-protocol', protocol]);
    expect(result).toMatchObject({ protocol: spoken, error: '', sent: Buffer.byteLength(cast) });
    const { body } = await stored();
    expect(withoutFirstLine(body)).toBe(withoutFirstLine(cast));
    expect(JSON.parse(firstLine(body))).toEqual({
      ...JSON.parse(firstLine(cast)),
      dstNode: 'proxy.lab.ts.net',
      dstNodeID: 'nPROXY1CNTRL',
    });
    expect(firstLine(body)).toContain('"srcNodeUserID":16793133573424021');
  });

  it.each([1, 7, 4096])('is the same whatever the size of its writes: %i bytes', async (chunk) => {
    const { recorder, stored } = await startRecorder();
    const cast = header() + eventLines(chunk === 1 ? 10 : 400);
    const result = await upload(recorder, cast, ['-protocol', protocol, '-chunk', String(chunk)]);
    expect(result.error).toBe('');
    expect(withoutFirstLine((await stored()).body)).toBe(withoutFirstLine(cast));
  });

  it('carries 32 MiB without losing a byte', async () => {
    const { recorder, stored } = await startRecorder();
    const line = encodeCastEvent(1.5, 'o', 'x'.repeat(60_000));
    const cast = header() + line.repeat(Math.ceil((32 * 1024 * 1024) / line.length));
    const result = await upload(recorder, cast, ['-protocol', protocol, '-chunk', '65536']);
    expect(result).toMatchObject({ error: '', sent: Buffer.byteLength(cast) });
    expect(withoutFirstLine((await stored()).body) === withoutFirstLine(cast)).toBe(true);
  });

  it('that breaks off keeps what came and is not called complete', async () => {
    const { recorder, stored } = await startRecorder();
    const cast = Buffer.from(header() + eventLines(100));
    const cut = cast.length - 10;
    // The test waits before it breaks the connection, because a broken connection may drop undelivered output.
    const flags = ['-protocol', protocol, '-abort-after', String(cut), '-hold', '500ms'];
    const result = await upload(recorder, cast.toString(), flags);
    expect(result.error).not.toBe('');
    const { recording, body } = await stored('interrupted');
    expect(recording.state).toBe('interrupted');
    // An incomplete line is not an event.
    const whole = cast.subarray(0, cast.lastIndexOf('\n', cut - 1) + 1).toString();
    expect(withoutFirstLine(body)).toBe(withoutFirstLine(whole));
  });

  it('goes to the next recorder when the first does not answer or refuses', async () => {
    const refusing = await startRecorder({
      identify: async () => ({ kind: 'refused', reason: 'not this node' }),
    });
    const { recorder, stored } = await startRecorder();
    const cast = header() + eventLines(3);
    const addresses = [`127.0.0.1:${await freePort()}`, addressOf(refusing.recorder), addressOf(recorder)];
    const result = await upload(recorder, cast, ['-protocol', protocol], addresses);
    expect(result).toMatchObject({ protocol: spoken, error: '' });
    expect(result.attempts.map(({ failure }) => failure)).toEqual([
      expect.stringContaining('connection refused'),
      expect.stringContaining('403'),
      '',
    ]);
    expect(withoutFirstLine((await stored()).body)).toBe(withoutFirstLine(cast));
    expect(await refusing.list()).toEqual([]);
  });

  it.each([
    ['what is no header', 'hello\n'],
    ['an event before the header', `${encodeCastEvent(0, 'o', 'x')}${header()}`],
    ['nothing at all', ''],
  ])('of %s is answered with a reason', async (_name, body) => {
    const { recorder } = await startRecorder();
    const result = await upload(recorder, body, ['-protocol', protocol]);
    expect(result.stage).toBe('finish');
    expect(result.error).toMatch(
      protocol === 'v1' ? /unexpected status: 4\d\d/ : /received error from the recorder/,
    );
  });

  it('that is longer than a session may be is ended with a reason', async () => {
    const { recorder } = await startRecorder({ limits: { maxSessionBytes: 100_000 } });
    const result = await upload(recorder, header() + eventLines(5_000), [
      '-protocol',
      protocol,
      '-delay',
      '1ms',
    ]);
    expect(result.error).not.toBe('');
  });
});

describe('acknowledgements', () => {
  it('begin at once, never fall, and end with every byte', async () => {
    const { recorder } = await startRecorder();
    const cast = header() + eventLines(500);
    const { acks, firstAckMillis } = await upload(recorder, cast, ['-chunk', '512', '-delay', '20ms']);
    expect(firstAckMillis).toBeLessThan(1_000);
    expect(acks).toEqual(acks.toSorted((a, b) => a - b));
    expect(acks.at(-1)).toBe(Buffer.byteLength(cast));
    expect(acks.length).toBeGreaterThan(5);
  });

  it('go on while nothing is sent, so that the client does not give up', async () => {
    const { recorder } = await startRecorder({ timing: { idleAckMs: 100 } });
    const cast = header();
    const { acks, error } = await upload(recorder, cast, ['-hold', '2s']);
    expect(error).toBe('');
    const whole = acks.filter((ack) => ack === Buffer.byteLength(cast));
    expect(whole.length).toBeGreaterThan(10);
  });

  it('come at least every ten seconds by default, which is a third of what the client waits', async () => {
    const { recorder } = await startRecorder();
    const cast = header();
    const { acks } = await upload(recorder, cast, ['-hold', '11s']);
    expect(acks.filter((ack) => ack === Buffer.byteLength(cast)).length).toBeGreaterThanOrEqual(2);
  });

  it('are only given for what another process can read from the disk', async () => {
    const { recorder, directory } = await startRecorder();
    const cast = header() + eventLines(50);
    const running = upload(recorder, cast, ['-hold', '2s']);
    await expect
      .poll(() => spooledBytes(directory), { timeout: 5_000 })
      .toBeGreaterThanOrEqual(Buffer.byteLength(cast));
    expect((await running).error).toBe('');
  });
});

describe('a recorder that goes away', () => {
  it('tells the client so instead of ending the answer quietly', async () => {
    const { recorder, list } = await startRecorder();
    const running = upload(recorder, header() + eventLines(5), ['-hold', '3s']);
    await expect.poll(async () => (await list()).length, { timeout: 5_000 }).toBe(1);
    await recorder.close();
    const result = await running;
    expect(result).toMatchObject({
      stage: 'finish',
      error: expect.stringContaining('received error from the recorder'),
    });
  });
});

describe('an event', () => {
  it('is stored in the wrapper of the reference, with the uploader filled in', async () => {
    const { recorder, directory } = await startRecorder({ eventLayout: 'reference' });
    const event = encodeApiRequestEvent(apiEvent());
    const result = await run(['event', '-addr', addressOf(recorder)], event);
    expect(result).toMatchObject({ protocol: 'event', error: '' });
    const folder = join(directory, 'nPROXY1CNTRL', 'events');
    const files = readdirSync(folder);
    expect(files).toHaveLength(1);
    const text = readFileSync(join(folder, files[0] ?? ''), 'utf8');
    const id = `nPROXY1CNTRL/events/${files[0]}`;
    expect(JSON.parse(text)).toEqual({
      stableID: 'nPROXY1CNTRL',
      event: {
        ...(JSON.parse(event) as object),
        id,
        destination: { node: 'proxy.lab.ts.net', nodeID: 'nPROXY1CNTRL' },
      },
      timestamp: '2026-07-29 10:44:42 +0000 UTC',
    });
    expect(text).toContain('"nodeUserID":16793133573424021');
  });

  it('with invalid content is refused with a short reason', async () => {
    const { recorder } = await startRecorder();
    const result = await run(['event', '-addr', addressOf(recorder)], '[1,2,3]\n');
    expect(result).toMatchObject({ stage: 'finish', error: expect.stringMatching(/non-OK status: 4\d\d/) });
  });

  it('from a node that may not upload is refused', async () => {
    const { recorder } = await startRecorder({
      identify: async () => ({ kind: 'refused', reason: 'not this node' }),
    });
    const result = await run(['event', '-addr', addressOf(recorder)], encodeApiRequestEvent(apiEvent()));
    expect(result.error).toContain('403');
  });
});

describe('our encoders, read by the Go types of the reference', () => {
  it('write cast headers that come back the same, in the same order', async () => {
    const headers = fc.sample(arbitraryHeader, 2_000).map(encodeCastHeader);
    const decoded = await decode('header', headers);
    for (const [index, text] of headers.entries()) {
      expect(JSON.stringify(exactJson(goText(decoded[index])))).toBe(JSON.stringify(exactJson(text)));
    }
  });

  it('write events that come back the same', async () => {
    const events = fc.sample(arbitraryEvent, 2_000).map(encodeApiRequestEvent);
    const decoded = await decode('event', events);
    for (const [index, text] of events.entries()) {
      expect(exactJson(goText(decoded[index]))).toEqual(exactJson(text));
    }
  });
});

interface Started {
  readonly recorder: RunningRecorder;
  readonly directory: string;
  list(): Promise<readonly Recording[]>;
  /** Waits for the only recording to reach a state, and returns it with its cast. */
  stored(state?: Recording['state']): Promise<{ recording: Recording; body: string }>;
}

async function startRecorder(options: Partial<RecorderOptions> = {}): Promise<Started> {
  const directory = mkdtempSync(join(tmpdir(), 'tcref-'));
  const recorder = await createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory,
    identify: async () => UPLOADER,
    log: createSilentLogger(),
    ...options,
    timing: { closeGraceMs: 500, ...options.timing },
  });
  cleanups.push(async () => {
    await recorder.close();
    rmSync(directory, { recursive: true, force: true });
  });
  async function list(): Promise<readonly Recording[]> {
    const response = await fetch(`${recorder.url}/api/v1/recordings`);
    return ((await response.json()) as { recordings: readonly Recording[] }).recordings;
  }
  return {
    recorder,
    directory,
    list,
    async stored(state = 'completed') {
      for (const deadline = Date.now() + 10_000; ;) {
        const [recording] = await list();
        if (recording?.state === state) {
          const response = await fetch(
            `${recorder.url}/api/v1/recordings/${encodeURIComponent(recording.id)}/cast`,
          );
          return { recording, body: await response.text() };
        }
        if (Date.now() > deadline)
          throw new Error(`no recording became ${state}: ${JSON.stringify(recording)}`);
        await delay(20);
      }
    },
  };
}

function addressOf({ address }: RunningRecorder): string {
  return `${address.host}:${address.port}`;
}

function upload(
  recorder: RunningRecorder,
  body: string,
  flags: readonly string[] = [],
  addresses: readonly string[] = [addressOf(recorder)],
): Promise<UploadResult> {
  return run(['upload', '-addr', addresses.join(','), ...flags], body);
}

async function run(args: readonly string[], stdin: string): Promise<UploadResult> {
  return JSON.parse(await runClient(args, stdin)) as UploadResult;
}

async function decode(kind: 'header' | 'event', lines: readonly string[]): Promise<string[]> {
  return (await runClient(['decode', kind], lines.join(''))).trimEnd().split('\n');
}

function runClient(args: readonly string[], stdin: string): Promise<string> {
  return new Promise((done, fail) => {
    const child = spawn(client, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    const stdout: Buffer[] = [];
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    child.on('error', fail);
    child.on('close', (code) => {
      if (code === 0) done(Buffer.concat(stdout).toString());
      else fail(new Error(`recording-client ended with ${code}: ${stderr}`));
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(stdin);
  });
}

/**
 * Returns the JSON text of a value that the Go types have decoded and encoded again. The text is not parsed, because
 * some numbers exceed JavaScript's range.
 */
function goText(line: string | undefined): string {
  const match = /^\{"value":(.*)\}$/s.exec(line ?? '');
  return match?.[1] ?? `not understood: ${line}`;
}

/** Parses JSON, and returns numbers as text, because some exceed JavaScript's range. */
function exactJson(json: string): unknown {
  return JSON.parse(json, (_key: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' ? `number ${context?.source}` : value,
  );
}

function header(): string {
  return encodeCastHeader({
    version: 2,
    width: 80,
    height: 24,
    timestamp: 1_785_325_858,
    command: 'sh -i',
    srcNode: 'alice.lab.ts.net',
    srcNodeID: 'nA1CNTRL',
    srcNodeUserID: 16_793_133_573_424_021n,
    srcNodeUser: 'alice@example.com',
    env: null,
    sshUser: '',
    localUser: '',
    connectionID: '',
    kubernetes: { PodName: 'web-0', Namespace: 'prod', Container: 'app', SessionType: 'exec' },
  });
}

/**
 * Returns output with difficult characters for encoders: escapes, HTML, line separators, emoji, lone replacement
 * characters.
 */
function eventLines(count: number): string {
  const texts = [
    'plain\r\n',
    '\u001b[31mred\u001b[0m',
    '<a href="x">&</a>',
    'a\u2028b\u2029c',
    'ä€😀',
    '\ufffd',
    '\\ "',
  ];
  return Array.from({ length: count }, (_, index) =>
    index % 20 === 19
      ? encodeCastEvent(index / 10, 'r', '100x30')
      : encodeCastEvent(index / 10, 'o', texts[index % texts.length] ?? ''),
  ).join('');
}

function firstLine(text: string): string {
  return text.slice(0, text.indexOf('\n'));
}

function withoutFirstLine(text: string): string {
  return text.slice(text.indexOf('\n') + 1);
}

function spooledBytes(directory: string): number {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  return Math.max(0, ...files.map((entry) => readFileSync(join(entry.parentPath, entry.name)).length));
}

function apiEvent(): ApiRequestEvent {
  return {
    timestamp: 1_785_321_882,
    userAgent: 'kubectl/v1.36.3 <test>',
    request: {
      method: 'POST',
      path: '/api/v1/namespaces/prod/pods?dryRun=All',
      body: new TextEncoder().encode('{"kind":"Pod"}'),
      queryParameters: new Map([['dryRun', ['All']]]),
    },
    kubernetes: {
      IsResourceRequest: true,
      Path: '/api/v1/namespaces/prod/pods',
      Verb: 'create',
      APIPrefix: 'api',
      APIGroup: '',
      APIVersion: 'v1',
      Namespace: 'prod',
      Resource: 'pods',
      Subresource: '',
      Name: '',
      Parts: ['pods'],
      FieldSelector: '',
      LabelSelector: '',
    },
    source: {
      node: 'alice.lab.ts.net',
      nodeID: 'nA1CNTRL',
      nodeUserID: 16_793_133_573_424_021n,
      nodeUser: 'alice@example.com',
    },
  };
}

const text = fc.string({ unit: 'grapheme-composite', maxLength: 20 });
const word = fc.stringMatching(/^[a-z0-9.-]{1,20}$/);
const userId = fc.bigInt({ min: 1n, max: 2n ** 63n - 1n });
const wide = fc.nat({ max: 100_000 });

const arbitraryHeader: fc.Arbitrary<CastHeader> = fc.record(
  {
    version: fc.constant(2 as const),
    width: wide,
    height: wide,
    timestamp: fc.nat({ max: 2 ** 31 }),
    command: text.filter((value) => value !== ''),
    srcNode: word,
    srcNodeID: word,
    srcNodeTags: fc.array(
      word.map((name) => `tag:${name}`),
      { minLength: 1, maxLength: 3 },
    ),
    srcNodeUserID: userId,
    srcNodeUser: word,
    env: fc.oneof(fc.constant(null), fc.constant(new Map([['TERM', 'xterm']]))),
    sshUser: text,
    localUser: text,
    connectionID: text,
    kubernetes: fc.record({
      PodName: word,
      Namespace: word,
      Container: text,
      SessionType: fc.constantFrom('exec', 'attach'),
    }),
  },
  {
    requiredKeys: [
      'version',
      'width',
      'height',
      'timestamp',
      'srcNode',
      'srcNodeID',
      'env',
      'sshUser',
      'localUser',
      'connectionID',
    ],
  },
);

const arbitraryEvent: fc.Arbitrary<ApiRequestEvent> = fc.record({
  timestamp: fc.nat({ max: 2 ** 31 }),
  userAgent: text,
  request: fc.record({
    method: fc.constantFrom('GET', 'POST', 'DELETE'),
    path: text,
    body: fc.uint8Array({ maxLength: 40 }),
    queryParameters: fc
      .array(fc.tuple(text, fc.array(text, { minLength: 1, maxLength: 3 })), { maxLength: 4 })
      .map((entries) => new Map(entries)),
  }),
  kubernetes: fc.record({
    IsResourceRequest: fc.boolean(),
    Path: text,
    Verb: word,
    APIPrefix: word,
    APIGroup: text,
    APIVersion: word,
    Namespace: text,
    Resource: text,
    Subresource: text,
    Name: text,
    Parts: fc.oneof(fc.constant(null), fc.array(text, { maxLength: 3 })),
    FieldSelector: text,
    LabelSelector: text,
  }),
  source: fc.oneof(
    fc.record({ node: word, nodeID: word, nodeTags: fc.array(word, { minLength: 1, maxLength: 3 }) }),
    fc.record({ node: word, nodeID: word, nodeUserID: userId, nodeUser: word }),
  ),
});
