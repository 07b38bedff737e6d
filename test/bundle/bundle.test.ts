import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkBundle, type BundleCheck } from '../../src/bundle/check-bundle.ts';
import { parseManifest, BUNDLE_PIECE_BYTES, type BundleFile } from '../../src/bundle/bundle-format.ts';
import { openBundle, type BundleReader } from '../../src/bundle/read-bundle.ts';
import { writeBundle, type BundleSources } from '../../src/bundle/write-bundle.ts';
import { answerBundle, type AnswerBundle } from '../../src/bundle/answer-bundle.ts';
import { runProgram } from '../../src/cli/program.ts';
import { blockBytesFor, createLineSealer } from '../../src/tsrecorder/evidence/line-seal.ts';
import { signSidecar } from '../../src/tsrecorder/evidence/signed-sidecar.ts';
import { generateSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { createRig, HEADER, openUpload, until, type Rig } from '../tsrecorder/recorder-rig.ts';

const PAGE = '<html><!--bundle--></html>';

/** Returns the manifest and the data blocks of a bundle, as a browser parses them. */
function readPage(page: string): { manifest: string; blocks: Map<string, string> } {
  const blocks = new Map<string, string>();
  for (const [, file, piece, text = ''] of page.matchAll(/data-file="(\w+)" data-piece="(\d+)">([^<]*)</g))
    blocks.set(`${file} ${piece}`, text);
  return { manifest: /data-bundle>([^<]*)</.exec(page)?.[1] ?? '', blocks };
}

function open(page: string): BundleReader {
  const { manifest, blocks } = readPage(page);
  const parsed = parseManifest(manifest);
  if (parsed === undefined) throw new Error('there is no manifest');
  return openBundle(parsed, (file, piece) => blocks.get(`${file} ${piece}`));
}

/** Opens a bundle after an attacker has replaced one of its files by editing the HTML. */
function withFile(page: string, file: string, content: string): BundleReader {
  const { manifest, blocks } = readPage(page);
  const parsed = JSON.parse(manifest) as { files: Record<string, { bytes: number }> };
  parsed.files[file] = { bytes: Buffer.byteLength(content) };
  const packed = gzipSync(content).toString('base64');
  const known = parseManifest(JSON.stringify(parsed));
  if (known === undefined) throw new Error('there is no manifest');
  return openBundle(known, (name, piece) =>
    name === file ? (piece === 0 ? packed : undefined) : blocks.get(`${name} ${piece}`),
  );
}

/** Repeats a request until the bundle has built the response. @returns its text */
async function answerOf(ask: AnswerBundle, path: string): Promise<string> {
  for (;;) {
    const response = await ask(path, { headers: {} });
    const text = await response.text();
    if (!text.includes('"progress":')) return text;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const RECORDING: Recording = {
  id: 'n1_2026-01-02T03:04:05.000000000Z',
  key: 'n1/2026-01-02T03:04:05.000000000Z.cast',
  state: 'completed',
  startedAt: '2026-01-02T03:04:05Z',
  bytes: 10,
  width: 80,
  height: 24,
  kind: 'exec',
  command: '</script><script>alert(1)</script>',
  source: { node: 'laptop.example.ts.net', nodeId: 'n1' },
  destination: { node: 'cluster', nodeId: 'n2' },
};

function sourcesOf(cast: readonly Uint8Array[], more: Partial<BundleSources> = {}): BundleSources {
  return {
    recording: RECORDING,
    async *cast() {
      yield* cast;
    },
    sidecar: async () => undefined,
    notes: async () => undefined,
    evidence: async () => ({
      parts: 1,
      accesses: [{ event: {} }],
      events: [],
      related: { pod: [RECORDING] },
    }),
    ...more,
  };
}

async function write(sources: BundleSources): Promise<string> {
  const options = { page: PAGE, madeAt: '2026-01-02T03:04:05Z' };
  return (await Array.fromAsync(writeBundle(sources, options))).join('');
}

describe('a bundle', () => {
  it('gives back any range of a cast, however its pieces came', async () => {
    const cast = Uint8Array.from(
      { length: BUNDLE_PIECE_BYTES * 2 + 777 },
      (_, at) => (at * 31 + (at >> 8)) & 255,
    );
    for (const cut of [1000, BUNDLE_PIECE_BYTES, cast.length]) {
      const chunks = Array.from({ length: Math.ceil(cast.length / cut) }, (_, n) =>
        cast.subarray(n * cut, (n + 1) * cut),
      );
      const bundle = open(await write(sourcesOf(chunks)));
      expect(bundle.manifest.files.cast?.bytes).toBe(cast.length);
      expect(Buffer.from(await bundle.read('cast')).equals(cast)).toBe(true);
      await fc.assert(
        fc.asyncProperty(fc.nat(cast.length + 10), fc.nat(BUNDLE_PIECE_BYTES + 10), async (start, length) => {
          const read = await bundle.read('cast', start, start + length);
          expect(Buffer.from(read).equals(cast.subarray(start, start + length))).toBe(true);
        }),
        { numRuns: 30 },
      );
    }
  });

  it('has no text in it that could end a block or run, and says nothing of other recordings and people', async () => {
    const page = await write(sourcesOf([Buffer.from('</script><img src=x onerror=alert(1)>')]));
    expect(page).not.toMatch(/alert|onerror/);
    expect(Object.keys(open(page).manifest.files).toSorted()).toEqual(['cast', 'recording']);
  });

  it.each(['recording', 'sidecar'])('shows no trust that its %s claims', async (file) => {
    const recording = { ...RECORDING, trust: 'verified', trustReason: 'trust me' };
    const page = await write(sourcesOf([Buffer.from('{}\n')]));
    const content = file === 'sidecar' ? { recording } : recording;
    const ask = answerBundle(withFile(page, file, JSON.stringify(content)));
    const shown: unknown = JSON.parse(await answerOf(ask, `/api/v1/recordings/${RECORDING.id}`));
    expect(shown).toEqual(RECORDING);
  });

  it('that was cut says so and is not played as whole', async () => {
    const page = await write(sourcesOf([new Uint8Array(BUNDLE_PIECE_BYTES + 5)]));
    expect(() => open(page.slice(0, page.indexOf('data-bundle')))).toThrow('no manifest');
    const lost = open(page.replace('data-file="cast" data-piece="1"', 'data-file="cast" data-piece="7"'));
    await expect(lost.read('cast')).rejects.toThrow('cast 1 is missing');
  });

  it('rejects a piece of the wrong length, so the bytes of each offset come from one piece only', async () => {
    const cast = Buffer.alloc(BUNDLE_PIECE_BYTES + 5000, 'recorded ');
    const { manifest, blocks } = readPage(await write(sourcesOf([cast])));
    const parsed = parseManifest(manifest)!;
    const openWith = (number: number, content: Uint8Array): BundleReader =>
      openBundle(parsed, (file, piece) =>
        piece === number ? gzipSync(content).toString('base64') : blocks.get(`${file} ${piece}`),
      );
    const wrong: readonly (readonly [number, Uint8Array])[] = [
      [0, cast.subarray(0, BUNDLE_PIECE_BYTES + 1000)],
      [0, cast.subarray(0, BUNDLE_PIECE_BYTES - 1)],
      [1, cast.subarray(BUNDLE_PIECE_BYTES, -1)],
      [1, Buffer.concat([cast.subarray(BUNDLE_PIECE_BYTES), Buffer.from('x')])],
    ];
    for (const [number, content] of wrong) {
      const start = number * BUNDLE_PIECE_BYTES;
      await expect(openWith(number, content).read('cast', start, start + 10)).rejects.toThrow(
        new RegExp(`cast ${number} has (?:${content.length} bytes instead of|more than) \\d+`),
      );
    }
  });

  it('reads no more of a piece than its length', async () => {
    const { manifest } = readPage(await write(sourcesOf([Buffer.from('recorded')])));
    const bomb = gzipSync(Buffer.alloc(256 * 1024 ** 2)).toString('base64');
    const before = process.memoryUsage().arrayBuffers;
    const opened = openBundle(parseManifest(manifest)!, () => bomb);
    await expect(opened.read('cast')).rejects.toThrow('cast 0 has more than');
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1024 ** 2);
  });

  it('is faulty if an oversized piece hides changed bytes of the next piece', async () => {
    const key = generateSigningKey();
    const line = (action: string, count: number): string =>
      `[${count}.5,"o","user ${action} ${String(count).padStart(6, '0')}\\r\\n"]\n`;
    let text = '{"version":2,"width":80,"height":24,"timestamp":1785325858}\n';
    for (let count = 0; text.length < BUNDLE_PIECE_BYTES + 40_000; count++)
      text += line('deletes secret', count);
    const cast = Buffer.from(text);
    const sealer = createLineSealer(blockBytesFor(cast.length));
    sealer.push(cast);
    const seal = sealer.finish();
    const recording = { ...RECORDING, bytes: cast.length };
    const document = `{\n  "tailcast": 1,\n  "recording": ${JSON.stringify(recording)},\n  "gaps": []\n}\n`;
    const sidecar = signSidecar(document, { format: 1, log: 'a'.repeat(32), start: 1, cast: seal }, key);
    const page = await write(
      sourcesOf([cast], {
        recording,
        sidecar: async () => Buffer.from(sidecar),
        evidence: async () => ({ evidence: { signedBy: { pem: key.public.pem } }, parts: 1 }),
      }),
    );
    expect((await checkBundle(open(page))).verdict).toBe('verified');
    let end = 0;
    for (const [length] of seal.blocks) if (end <= BUNDLE_PIECE_BYTES) end += length;
    expect(end).toBeGreaterThan(BUNDLE_PIECE_BYTES);
    const hidden = cast.subarray(BUNDLE_PIECE_BYTES, end).toString();
    const forged = hidden.replaceAll('deletes secret', 'lists the pods');
    expect(forged).not.toBe(hidden);
    const withPiece = (of: string, number: number, content: Uint8Array): string =>
      of.replace(
        new RegExp(`(data-file="cast" data-piece="${number}">)[^<]*`),
        (_, start: string) => start + gzipSync(content).toString('base64'),
      );
    const attacked = withPiece(
      withPiece(page, 0, cast.subarray(0, end)),
      1,
      Buffer.concat([Buffer.from(forged), cast.subarray(end)]),
    );
    expect(await checkBundle(open(attacked))).toMatchObject({ verdict: 'failed', covers: [] });
    await expect(open(attacked).read('cast')).rejects.toThrow('cast 0 has');
  });

  it('is written for no other page', async () => {
    const options = { page: '<html></html>', madeAt: '' };
    await expect(Array.fromAsync(writeBundle(sourcesOf([]), options))).rejects.toThrow(RangeError);
  });
});

describe('tailcast export', () => {
  let rig: Rig;
  let id: string;
  let folder: string;
  const written = new Map<string, string>();

  async function run(...args: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    const streams = { stdout: new PassThrough(), stderr: new PassThrough() };
    const { signal } = new AbortController();
    const code = await runProgram(['export', ...args], { ...streams, environment: new Map(), signal });
    streams.stdout.end();
    streams.stderr.end();
    const text = async (from: PassThrough): Promise<string> => Buffer.concat(await from.toArray()).toString();
    return { code, stdout: await text(streams.stdout), stderr: await text(streams.stderr) };
  }

  beforeAll(async () => {
    rig = await createRig();
    folder = await mkdtemp(join(tmpdir(), 'tailcast-export-test-'));
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    upload.write(`${JSON.stringify({ kind: 'gap', bytes: 7, reason: 'lost' })}\n`);
    upload.write('[1,"o","hello \\u001b[1mbold\\u001b[0m\\r\\n"]\n[2,"o","second row\\r\\n"]\n');
    // enough rows to make the cast larger than one block of the digest chain
    for (let at = 0; at < 3000; at += 1) upload.write(`[${3 + at / 100},"o","row ${at}\\r\\n"]\n`);
    upload.write(
      `${JSON.stringify({ kind: 'end', outcome: 'completed', outputBytes: 5, outputLines: 1 })}\n`,
    );
    upload.end();
    await upload.over;
    upload.close();
    id = (await rig.list())[0]?.id ?? '';
    for (const [name, place] of [
      ['recorder', ['--recorder', rig.recorder.url]],
      ['store', ['--store', rig.directory]],
    ] as const) {
      const target = join(folder, `${name}.html`);
      const { code, stderr } = await run(id, ...place, '--output', target);
      if (code !== 0) throw new Error(stderr);
      written.set(name, await readFile(target, 'utf8'));
    }
  });
  afterAll(async () => {
    await rig[Symbol.asyncDispose]();
  });

  it.each(['recorder', 'store'])('writes one file with all there is, from a %s', async (from) => {
    const page = written.get(from) ?? '';
    const bundle = open(page);
    expect(Object.keys(bundle.manifest.files).toSorted()).toEqual(['cast', 'key', 'notes', 'sidecar']);
    const text = async (file: BundleFile): Promise<string> => Buffer.from(await bundle.read(file)).toString();
    expect(await text('cast')).toBe((await rig.get(`/api/v1/recordings/${id}/cast`)).body);
    expect(await text('notes')).toBe((await rig.get(`/api/v1/recordings/${id}/notes`)).body);
    const ask = answerBundle(bundle);
    expect(await answerOf(ask, `/api/v1/recordings/${id}/transcript`)).toContain('"hello bold"');
    const index = await until(async () => {
      const { status, body } = await rig.get(`/api/v1/recordings/${id}/playback`);
      return status === 200 ? body : undefined;
    });
    expect(await answerOf(ask, `/api/v1/recordings/${id}/playback`)).toEqual(index);
    const { trust: _, ...listed } = (await rig.list())[0]!;
    expect(JSON.parse(await answerOf(ask, `/api/v1/recordings/${id}`))).toEqual(listed);
    expect(page).toContain("default-src 'none'");
    // a local reference of an SVG, such as "#r1", loads nothing
    expect(page).not.toMatch(/(?:src|href)="(?!data:|#)/);
  });

  it.each(['recorder', 'store'])(
    'from a %s is verified by nothing but the file, and any change is not',
    async (from) => {
      const { manifest, blocks } = readPage(written.get(from) ?? '');
      const check = (changed: BundleReader): Promise<BundleCheck> => checkBundle(changed);
      const bundle = open(written.get(from) ?? '');
      expect(await check(bundle)).toMatchObject({ verdict: 'verified', findings: [] });
      const { signature } = JSON.parse(Buffer.from(await bundle.read('sidecar')).toString()) as {
        signature: { key: string };
      };
      expect((await check(bundle)).keyId).toBe(signature.key);
      const sizes = bundle.manifest.files;
      for (const file of ['cast', 'notes', 'sidecar', 'key'] as const) {
        const bytes = sizes[file]?.bytes ?? 0;
        for (const at of [0, Math.floor(bytes / 2), bytes - 3]) {
          const changed: BundleReader = {
            ...bundle,
            async read(name, start = 0, end) {
              const read = await bundle.read(name, start, end);
              if (name === file && at >= start && at - start < read.length) read[at - start]! ^= 1;
              return read;
            },
          };
          const { verdict, findings } = await check(changed);
          expect([file, at, verdict === 'verified', findings.length > 0]).toEqual([file, at, false, true]);
        }
      }
      const parsed = parseManifest(manifest)!;
      const renamed = openBundle({ ...parsed, id: RECORDING.id }, (file, piece) =>
        blocks.get(`${file} ${piece}`),
      );
      expect(await check(renamed)).toMatchObject({ verdict: 'failed' });
      const without = (gone: BundleFile): BundleReader => ({
        ...bundle,
        has: (file) => file !== gone && bundle.has(file),
      });
      expect((await check(without('notes'))).verdict).toBe('failed');
      expect((await check(without('sidecar'))).verdict).toBe('none');
      expect((await check(without('key'))).verdict).toBe('none');
    },
  );

  it.each(['recorder', 'store'])(
    'from a %s shows no user, command, transcript or screen that somebody put into the file, or is not verified',
    async (from) => {
      const forged = 'mallory';
      const page = written.get(from) ?? '';
      const genuine = open(page);
      const recording = { ...RECORDING, id, command: forged, source: { ...RECORDING.source, user: forged } };
      const evidence = {
        evidence: { verdict: 'verified', findings: [] },
        session: { user: forged, argv: [forged] },
      };
      const more = { gaps: [], gapCount: 0, parts: 1, related: { caller: [], pod: [] } };
      const index = {
        version: 1,
        seconds: 1,
        frames: [{ at: 0, offset: 0 }],
        activity: [],
        marks: [{ at: 0, kind: 'command', text: forged }],
      };
      const files: Readonly<Record<string, unknown>> = {
        recording,
        evidence: { ...evidence, ...more },
        transcript: { version: 1, rows: [[0, forged]] },
        index: { index, offsets: [0, forged.length + 2] },
        frames: JSON.stringify(forged),
        sidecar: Buffer.from(await genuine.read('sidecar'))
          .toString()
          .replace('a@example.com', forged),
      };
      const believed: string[] = [];
      for (const [file, content] of Object.entries(files)) {
        const bundle = withFile(page, file, typeof content === 'string' ? content : JSON.stringify(content));
        const { verdict } = await checkBundle(bundle);
        const ask = answerBundle(bundle);
        const shown: string[] = [];
        for (const part of ['', '/evidence', '/transcript', '/playback', '/playback?frame=0'])
          shown.push(await answerOf(ask, `/api/v1/recordings/${id}${part}`));
        if (shown.join('').includes(forged) && verdict === 'verified') believed.push(file);
        if (file !== 'sidecar' && !shown.join('').includes('a@example.com'))
          believed.push(`no user: ${file}`);
      }
      expect(believed).toEqual([]);
    },
  );

  it.each(['recorder', 'store'])('from a %s says what the verdict covers', async (from) => {
    const bundle = open(written.get(from) ?? '');
    const { covers } = await checkBundle(bundle);
    expect(covers.join('\n')).toMatch(/user.*command[^]*transcript/);
  });

  it('writes the cast as it is, and what could be read as text', async () => {
    const cast = await run(id, '--recorder', rig.recorder.url, '--format', 'cast', '--output', '-');
    expect(cast.stdout).toBe((await rig.get(`/api/v1/recordings/${id}/cast`)).body);
    for (const place of [
      ['--recorder', rig.recorder.url],
      ['--store', rig.directory],
    ]) {
      const { stdout, code } = await run('latest', ...place, '--format', 'txt', '--output', '-');
      expect(code).toBe(0);
      expect(stdout).toMatch(/^0:01\.0\thello bold\n0:02\.0\tsecond row\n0:03\.0\trow 0\n/);
    }
  });

  it('writes over nothing, and leaves nothing behind when it fails', async () => {
    const target = join(folder, 'mine.html');
    await writeFile(target, 'mine');
    const { code, stderr } = await run(id, '--store', rig.directory, '--output', target);
    expect([code, stderr]).toEqual([2, expect.stringContaining('exists already')]);
    expect(await readFile(target, 'utf8')).toBe('mine');
    expect(await run('nobody', '--store', rig.directory)).toMatchObject({ code: 1 });
    expect((await run(id, '--store', rig.directory, '--format', 'gif')).code).toBe(2);
  });

  it('takes no session that is still running', async () => {
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    await expect.poll(async () => (await rig.list('?state=running')).length).toBe(1);
    const { code, stderr } = await run('latest', '--recorder', rig.recorder.url);
    expect([code, stderr]).toEqual([2, expect.stringContaining('still running')]);
    upload.end();
    await upload.over;
    upload.close();
  });
});
