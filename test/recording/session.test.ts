import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { RecordingSession, type SessionOptions } from '../../src/recording/session.ts';
import { parseAnnotation } from '../../src/wire/recorder-api/annotation.ts';
import { SessionSink } from '../support/session-sink.ts';

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

function begin(options: Partial<SessionOptions> & { readonly sink?: SessionSink } = {}) {
  const clock = { ms: 1_000 };
  const sink = options.sink ?? new SessionSink();
  const session = new RecordingSession(sink, {
    tty: false,
    enforce: true,
    header: ({ columns, rows }) => `{"version":2,"width":${columns},"height":${rows}}\n`,
    about: { kind: 'session', id: 's1', tty: false, stdin: false, protocol: 'spdy', path: '/x' },
    nowMs: () => clock.ms,
    ...options,
  });
  return { session, sink, clock };
}

describe('recording session without a terminal', () => {
  it('writes the header immediately, without a size', () => {
    const { session, sink } = begin();
    void session.flush();
    expect(sink.header).toMatchObject({ width: 0, height: 0 });
    expect(sink.annotationLines).toEqual([expect.objectContaining({ kind: 'session', id: 's1' })]);
  });

  it('writes output with the seconds since its start, and one batch per flush', () => {
    const { session, sink, clock } = begin();
    void session.flush();
    clock.ms += 250;
    session.output('stdout', utf8('one\n'));
    session.output('stdout', utf8('two\n'));
    void session.flush();
    expect(sink.events).toEqual([
      [0.25, 'o', 'one\n'],
      [0.25, 'o', 'two\n'],
    ]);
    expect(sink.writes).toHaveLength(2);
  });

  it('ignores resizes and empty output', () => {
    const { session, sink } = begin();
    session.resize({ columns: 10, rows: 20 });
    session.output('stdout', new Uint8Array(0));
    void session.flush();
    expect(sink.events).toEqual([]);
  });

  it('marks changes between stdout and stderr', () => {
    const { session, sink } = begin();
    session.output('stdout', utf8('a'));
    session.output('stderr', utf8('b'));
    session.output('stderr', utf8('c'));
    session.output('stdout', utf8('d'));
    void session.flush();
    expect(sink.lines.slice(2)).toEqual([
      '[0,"o","a"]',
      '{"kind":"stream","name":"stderr"}',
      '[0,"o","b"]',
      '[0,"o","c"]',
      '{"kind":"stream","name":"stdout"}',
      '[0,"o","d"]',
    ]);
  });

  it('joins the parts of a split character, per stream', () => {
    const { session, sink } = begin();
    const euro = utf8('€');
    session.output('stdout', euro.subarray(0, 1));
    session.output('stderr', utf8('x'));
    session.output('stdout', euro.subarray(1, 2));
    session.output('stdout', euro.subarray(2));
    void session.flush();
    expect(sink.events).toEqual([
      [0, 'o', 'x'],
      [0, 'o', '€'],
    ]);
    expect(sink.annotationLines.some(({ kind }) => kind === 'raw')).toBe(false);
  });

  describe('with much binary output', () => {
    const limits = { bulkAfterBytes: 40, bulkRunBytes: 20, maxLineBytes: 30 };
    const noise = (length: number): Uint8Array => new Uint8Array(length).fill(0xff);
    const shownOf = ({ events }: SessionSink): string[] =>
      events.map((event) => (event as [number, string, string])[2]);

    it('stores the output above the limit once, and shows its size', () => {
      const { session, sink } = begin({ limits });
      for (const bytes of [noise(20), noise(20), noise(20), utf8('plain text of 27 characters\n')])
        session.output('stdout', bytes);
      void session.flush();
      expect(shownOf(sink)).toEqual([
        '\ufffd'.repeat(20),
        '\ufffd'.repeat(20),
        '[not text: 20 B]\r\n',
        'plain text of 27 characters\n',
      ]);
      const raw = sink.annotationLines.filter(({ kind }) => kind === 'raw');
      expect(raw).toEqual(Array(3).fill({ kind: 'raw', base64: Buffer.from(noise(20)).toString('base64') }));
    });

    it.each(['a pause', 'input'])('shows small amounts, each after %s', (after) => {
      const { session, sink, clock } = begin({ limits });
      for (let line = 0; line < 10; line += 1) {
        session.output('stdout', noise(20));
        if (after === 'input') session.input(1);
        else clock.ms += 101;
      }
      void session.flush();
      expect(shownOf(sink)).toEqual(Array<string>(10).fill('\ufffd'.repeat(20)));
    });

    it('stores the output once, however small the pieces from the network are', () => {
      const { session, sink, clock } = begin({ limits });
      for (let piece = 0; piece < 100; piece += 1) {
        session.output('stdout', noise(1));
        clock.ms += 99;
      }
      void session.flush();
      const shown = shownOf(sink);
      expect(shown.slice(0, 40)).toEqual(Array(40).fill('\ufffd'));
      expect(shown.slice(40)).toEqual(Array(60).fill('[not text: 1 B]\r\n'));
    });

    it('keeps back no incomplete character of binary output, but of text that follows', () => {
      const { session, sink } = begin({ limits });
      const cut = Buffer.concat([noise(20), Uint8Array.of(0xe2)]);
      for (const bytes of [noise(20), noise(21), cut, cut, utf8('prüfe €').subarray(0, -1)])
        session.output('stdout', bytes);
      session.output('stdout', utf8('€\n').subarray(2));
      void session.flush();
      expect(shownOf(sink)).toEqual([
        '\ufffd'.repeat(20),
        ...Array<string>(3).fill('[not text: 21 B]\r\n'),
        'prüfe ',
        '€\n',
      ]);
      // characters stay complete if the session has a terminal, or if the recorder does not support annotations
      for (const options of [{ sink: new SessionSink(false) }, { tty: true }]) {
        const other = begin({ limits, ...options });
        other.session.resize({ columns: 80, rows: 24 });
        for (const bytes of [noise(45), Buffer.concat([noise(1), Uint8Array.of(0xc3)]), Uint8Array.of(0xa9)])
          other.session.output('stdout', bytes);
        void other.session.flush();
        expect(shownOf(other.sink).at(-1)).toBe('é');
      }
    });

    it('distinguishes text from binary output at any position of the first invalid byte', () => {
      const text = '€'.repeat(10);
      const pieces = Array.from({ length: 71 }, (_, at) => {
        const bytes = Buffer.from('é'.repeat(36).slice(0, 36));
        bytes[at] = 0xff;
        return bytes;
      });
      const { session, sink } = begin({
        limits: { ...limits, maxLineBytes: 100, bulkAfterBytes: 0, bulkRunBytes: 0 },
      });
      for (const bytes of [
        ...pieces,
        ...Array.from({ length: 4 }, (_, skip) => utf8(`${'x'.repeat(60 + skip)}€€${text}`)),
      ])
        session.output('stdout', bytes);
      void session.flush();
      const shown = shownOf(sink);
      expect(shown.slice(0, -4).every((line) => line.startsWith('[not text: 72 B]\r\n'))).toBe(true);
      expect(shown.slice(-4).every((line) => line.startsWith('xxx'))).toBe(true);
    });

    it('shows all of it if the recorder does not store exact bytes', () => {
      const { session, sink } = begin({ limits, sink: new SessionSink(false) });
      for (let line = 0; line < 4; line += 1) session.output('stdout', noise(20));
      void session.flush();
      expect(shownOf(sink)).toEqual(Array(4).fill('\ufffd'.repeat(20)));
    });

    it('shows all of it on a terminal', () => {
      const { session, sink } = begin({ limits, tty: true });
      session.resize({ columns: 80, rows: 24 });
      for (let line = 0; line < 4; line += 1) session.output('stdout', noise(20));
      void session.flush();
      expect(shownOf(sink)).toEqual(Array(4).fill('\ufffd'.repeat(20)));
    });
  });

  it('stores the exact bytes of output that is not UTF-8 next to its readable form', () => {
    const { session, sink } = begin();
    const bytes = Uint8Array.of(0x62, 0xff, 0xfe, 0x78, 0x0a);
    session.output('stdout', bytes);
    void session.flush();
    expect(sink.events).toEqual([[0, 'o', 'b\ufffd\ufffdx\n']]);
    const raw = parseAnnotation(sink.lines.at(-2)!);
    expect(raw).toEqual({ kind: 'raw', base64: Buffer.from(bytes).toString('base64') });
  });

  it('sends plain asciicast to a recorder without annotations', async () => {
    const { session, sink } = begin({ sink: new SessionSink(false) });
    session.output('stderr', Uint8Array.of(0xff));
    session.exit({ kind: 'exit', code: 3, message: '' });
    await session.end('completed');
    expect(sink.lines).toEqual(['{"version":2,"width":0,"height":0}', '[0,"o","\ufffd"]']);
  });

  it('splits long output into lines, never inside a character', () => {
    const { session, sink } = begin({ limits: { maxLineBytes: 10 } });
    const text = 'aaaaaaaa€€€bbbbbbbbbbbbbbb😀';
    session.output('stdout', utf8(text));
    void session.flush();
    const parts = sink.events.map((event) => (event as [number, string, string])[2]);
    expect(parts.join('')).toBe(text);
    expect(parts.every((part) => utf8(part).length <= 10)).toBe(true);
    expect(parts.join('')).not.toContain('\ufffd');
  });

  it('records a byte-order mark unchanged', () => {
    const { session, sink } = begin();
    session.output('stdout', utf8('\ufeffx'));
    void session.flush();
    expect(sink.events).toEqual([[0, 'o', '\ufeffx']]);
  });

  it('ends with the rest of a character, the exit status and an end mark', async () => {
    const { session, sink } = begin();
    session.output('stdout', utf8('ok\n'));
    session.output('stdout', utf8('€').subarray(0, 2));
    session.exit({ kind: 'exit', code: 7, message: 'code 7' });
    session.exit({ kind: 'success' });
    await session.end('completed');
    expect(sink.events.at(-1)).toEqual([0, 'o', '\ufffd']);
    expect(sink.annotationLines.slice(1)).toEqual([
      { kind: 'exit', code: 7, message: 'code 7' },
      { kind: 'raw', base64: Buffer.from(utf8('€').subarray(0, 2)).toString('base64') },
      { kind: 'end', outcome: 'completed', outputBytes: 5, outputLines: 2 },
    ]);
    expect(sink.ended).toBe(true);
    expect(session.totals).toMatchObject({ outputBytes: 5, exit: { kind: 'exit', code: 7 } });
  });
});

describe('recording session with a terminal', () => {
  it('writes the first size into the header, and a line for each later size, including unchanged ones', () => {
    const { session, sink } = begin({ tty: true });
    void session.flush();
    expect(sink.writes).toEqual([]);
    session.resize({ columns: 10, rows: 20 });
    session.resize({ columns: 10, rows: 20 });
    void session.flush();
    expect(sink.header).toMatchObject({ width: 10, height: 20 });
    expect(sink.events).toEqual([[0, 'r', '10x20']]);
  });

  it('keeps the times of output that came before the size', () => {
    const { session, sink, clock } = begin({ tty: true });
    clock.ms += 100;
    session.output('stdout', utf8('early'));
    void session.flush();
    clock.ms += 100;
    session.resize({ columns: 10, rows: 20 });
    void session.flush();
    expect(sink.header).toMatchObject({ width: 10 });
    expect(sink.events).toEqual([[0.1, 'o', 'early']]);
  });

  it('waits for a size only for a limited time', async () => {
    const { session, sink } = begin({ tty: true, limits: { sizeWaitMs: 20 } });
    session.output('stdout', utf8('early'));
    while (sink.writes.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(sink.header).toMatchObject({ width: 80, height: 24 });
    expect(sink.events).toEqual([[0, 'o', 'early']]);
    session.resize({ columns: 10, rows: 20 });
    void session.flush();
    expect(sink.events.at(-1)).toEqual([0, 'r', '10x20']);
  });

  it('holds back a limited amount of output while it waits', () => {
    const { session, sink } = begin({ tty: true, limits: { sizeWaitBytes: 8 } });
    session.output('stdout', utf8('12345678'));
    void session.flush();
    expect(sink.writes).toEqual([]);
    session.output('stdout', utf8('9'));
    void session.flush();
    expect(sink.header).toMatchObject({ width: 80, height: 24 });
    expect(sink.events).toHaveLength(2);
  });

  it('ignores sizes without columns or rows', () => {
    const { session, sink } = begin({ tty: true });
    session.resize({ columns: 0, rows: 0 });
    void session.flush();
    expect(sink.writes).toEqual([]);
    session.resize({ columns: 65_535, rows: 65_535 });
    session.resize({ columns: 5, rows: 0 });
    void session.flush();
    expect(sink.header).toMatchObject({ width: 65_535 });
    expect(sink.events).toEqual([]);
  });

  it('writes a header even if it ends before any size arrives', async () => {
    const { session, sink } = begin({ tty: true });
    await session.end('interrupted', 'the client left');
    expect(sink.header).toMatchObject({ width: 80, height: 24 });
    expect(sink.annotationLines.at(-1)).toMatchObject({ kind: 'end', outcome: 'interrupted' });
  });
});

describe('recording session whose output is shown only after it is durable', () => {
  it('holds back output that waits for the size, until its lines are durable', async () => {
    const { session, sink } = begin({ tty: true });
    sink.policy = 'window';
    const durable = Promise.withResolvers<void>();
    sink.wait = durable.promise;
    session.output('stdout', utf8('early'));
    let shown = false;
    const early = Promise.resolve(session.flush()).then(() => (shown = true));
    // this `flush` is for the client's chunk that contains the terminal size, so it must not wait for that size
    expect(session.flush()).toBeUndefined();
    session.resize({ columns: 10, rows: 20 });
    const size = session.flush();
    expect(size).toBeInstanceOf(Promise);
    await new Promise((resolve) => setImmediate(resolve));
    expect(sink.events).toEqual([[0, 'o', 'early']]);
    expect(shown).toBe(false);
    durable.resolve();
    await Promise.all([early, size]);
    expect(shown).toBe(true);
  });

  it('shows output that waited for a size if no size arrives', async () => {
    const { session, sink } = begin({ tty: true, limits: { sizeWaitMs: 20 } });
    sink.policy = 'window';
    session.output('stdout', utf8('early'));
    await session.flush();
    expect(sink.events).toEqual([[0, 'o', 'early']]);
  });

  it.each([true, false])(
    'does not show this output if the recorder is lost meanwhile, if enforced: %s',
    async (enforce) => {
      const { session, sink } = begin({ tty: true, enforce });
      sink.policy = 'window';
      const durable = Promise.withResolvers<void>();
      durable.promise.catch(() => undefined);
      sink.wait = durable.promise;
      session.output('stdout', utf8('early'));
      const early = Promise.resolve(session.flush());
      const outcome = early.then(
        () => 'shown',
        (error: unknown) => (error as TailcastError).code,
      );
      session.resize({ columns: 10, rows: 20 });
      const size = Promise.resolve(session.flush()).catch(() => undefined);
      durable.reject(new TailcastError('RECORDER_LOST'));
      expect(await outcome).toBe(enforce ? 'RECORDER_LOST' : 'shown');
      await size;
    },
  );

  it('does not hold back this output for any other recorder', () => {
    const { session } = begin({ tty: true });
    session.output('stdout', utf8('early'));
    expect(session.flush()).toBeUndefined();
  });
});

describe('recording session with a failing recorder', () => {
  it('waits with the recorder', async () => {
    const { session, sink } = begin();
    void session.flush();
    const room = Promise.withResolvers<void>();
    sink.wait = room.promise;
    session.output('stdout', utf8('x'));
    const wait = session.flush();
    expect(wait).toBeInstanceOf(Promise);
    room.resolve();
    await wait;
  });

  it('throws after the loss if recording is enforced', () => {
    const { session, sink } = begin();
    void session.flush();
    sink.error = new TailcastError('RECORDER_LOST');
    session.output('stdout', utf8('x'));
    expect(() => session.flush()).toThrow(/recorder was lost/);
    sink.error = undefined;
    expect(() => session.flush()).toThrow(/recorder was lost/);
  });

  it('rejects a pending wait when the recorder is lost, if recording is enforced', async () => {
    const { session, sink } = begin();
    void session.flush();
    sink.wait = Promise.reject(new TailcastError('RECORDER_LOST'));
    session.output('stdout', utf8('x'));
    await expect(session.flush()).rejects.toMatchObject({ code: 'RECORDER_LOST' });
    expect(() => session.flush()).toThrow(/recorder was lost/);
  });

  it('continues and counts the missing output if recording is not enforced', async () => {
    const { session, sink } = begin({ enforce: false });
    void session.flush();
    sink.error = new TailcastError('RECORDER_LOST');
    session.output('stdout', utf8('abc'));
    expect(session.flush()).toBeUndefined();
    session.output('stdout', utf8('defg'));
    expect(session.flush()).toBeUndefined();
    expect(session.totals).toMatchObject({ outputBytes: 7, missingBytes: 7 });
    await expect(session.end('completed')).rejects.toMatchObject({ code: 'RECORDER_LOST' });
  });
});

describe('recording session that is abandoned', () => {
  it('passes held-back output and its last lines to the sink', () => {
    const { session, sink } = begin({ tty: true });
    session.output('stdout', Buffer.from('held\n'));
    session.output('stdout', Buffer.from('\u00e9').subarray(0, 1));
    session.abandon('the recorder burned');
    const lines = sink.left?.trimEnd().split('\n') ?? [];
    expect(JSON.parse(lines[0]!)).toMatchObject({ width: 80, height: 24 });
    expect(lines.filter((line) => line.startsWith('[')).map((line) => JSON.parse(line) as unknown)).toEqual([
      [0, 'o', 'held\n'],
      [0, 'o', '\ufffd'],
    ]);
    expect(parseAnnotation(lines.at(-1)!)).toMatchObject({
      kind: 'end',
      outcome: 'interrupted',
      reason: 'the recorder burned',
      outputBytes: 6,
    });
    expect(sink.writes).toEqual([]);
  });

  it('follows the recording policy afterwards', async () => {
    const enforced = begin();
    enforced.session.abandon('x');
    expect(() => enforced.session.flush()).toThrow(/unrecorded/);
    const { session, sink } = begin({ enforce: false });
    session.abandon('x');
    const left = sink.left;
    session.output('stdout', utf8('missing'));
    void session.flush();
    expect(session.totals.missingBytes).toBe(7);
    await expect(session.end('completed')).rejects.toMatchObject({ code: 'RECORDER_LOST' });
    expect(sink).toMatchObject({ left, writes: [], ended: false });
  });

  it('does nothing after its end', async () => {
    const { session, sink } = begin();
    await session.end('completed');
    session.abandon('x');
    expect(sink.left).toBeUndefined();
  });
});

describe('the bytes that are passed to a session', () => {
  it('may be reused after the call', () => {
    const { session, sink } = begin({ tty: true });
    const shared = Buffer.from('held\n');
    session.output('stdout', shared);
    shared.fill('x');
    session.resize({ columns: 10, rows: 20 });
    const half = Buffer.from('a\u00e9');
    session.output('stdout', half.subarray(0, 2));
    half.fill('x');
    session.output('stdout', Uint8Array.of(0xa9));
    void session.flush();
    expect(sink.events).toEqual([
      [0, 'o', 'held\n'],
      [0, 'o', 'a'],
      [0, 'o', '\u00e9'],
    ]);
  });
});
