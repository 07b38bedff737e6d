/** Ways to damage an archive, each with the expected result of the verification. */
import { createHash } from 'node:crypto';
import type { Finding } from '../../src/tsrecorder/evidence/finding.ts';
import { encodeSegment, keyName, parseEntry, parseSegment } from '../../src/tsrecorder/evidence/log-entry.ts';
import { generateSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import type { Archive, Objects } from './archive.ts';

export interface Mutant {
  readonly name: string;
  readonly objects: Objects;
  /** Returns true for a fault that names the change. The verification must find at least one such fault. */
  readonly isNamedBy: (finding: Finding) => boolean;
}

export type Random = (below: number) => number;

type Mutate = (archive: Archive, random: Random) => Mutant | undefined;

/** The random-number generator Mulberry32: a seed always produces the same numbers. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below);
  };
}

/** Returns a mutant of a random kind; undefined if the random choice changes nothing. */
export function createMutant(
  archive: Archive,
  kind: keyof typeof MUTATIONS,
  random: Random,
): Mutant | undefined {
  const mutant = MUTATIONS[kind](archive, random);
  if (mutant === undefined || areSame(mutant.objects, archive.objects)) return undefined;
  return { ...mutant, name: `${kind}: ${mutant.name}` };
}

const FILES = /^nGATE.CNTRL\/20(?!20).*\.(cast|json|notes)$/;
const CASTS = /^nGATE.CNTRL\/20(?!20).*\.cast$/;
const SEGMENTS = /^\.evidence\/logs\//;

export const MUTATIONS = {
  flipInFile: (archive, random) => changeFile(archive, random, FILES, (bytes) => flip(bytes, random)),
  insertInFile: (archive, random) => changeFile(archive, random, FILES, (bytes) => insert(bytes, random)),
  appendToFile: (archive, random) => changeFile(archive, random, FILES, (bytes) => append(bytes, random)),
  truncateFile: (archive, random) => changeFile(archive, random, FILES, (bytes) => truncate(bytes, random)),
  dropLine: (archive, random) => changeLines(archive, random, FILES, (lines, at) => lines.toSpliced(at, 1)),
  doubleLine: (archive, random) =>
    changeLines(archive, random, FILES, (lines, at) => lines.toSpliced(at, 0, lines[at]!)),
  swapLines: (archive, random) =>
    changeLines(archive, random, FILES, (lines, at) =>
      lines.toSpliced(at, 2, ...lines.slice(at, at + 2).toReversed()),
    ),
  flipInLog: (archive, random) => changeFile(archive, random, SEGMENTS, (bytes) => flip(bytes, random)),
  appendToLog: (archive, random) => changeFile(archive, random, SEGMENTS, (bytes) => append(bytes, random)),
  truncateLog: (archive, random) => changeFile(archive, random, SEGMENTS, (bytes) => truncate(bytes, random)),
  dropLogLine: (archive, random) =>
    changeLines(archive, random, SEGMENTS, (lines, at) => lines.toSpliced(at, 1)),
  doubleLogLine: (archive, random) =>
    changeLines(archive, random, SEGMENTS, (lines, at) => lines.toSpliced(at, 0, lines[at]!)),
  swapLogLines: (archive, random) =>
    changeLines(archive, random, SEGMENTS, (lines, at) =>
      lines.toSpliced(at, 2, ...lines.slice(at, at + 2).toReversed()),
    ),
  flipInKey: (archive, random) =>
    changeFile(archive, random, /^\.evidence\/keys\//, (bytes) => flip(bytes, random)),
  deleteObject(archive, random) {
    const name = pick(names(archive, /^(nGATE.CNTRL\/20(?!20).*|\.evidence\/.*)$/), random);
    return {
      name,
      objects: without(archive.objects, [name]),
      isNamedBy: (finding) => isAbout(finding, name),
    };
  },
  deleteSession(archive, random) {
    const base = pick(names(archive, CASTS), random).replace(/cast$/, '');
    const gone = names(archive, FILES).filter((name) => name.startsWith(base));
    return {
      name: base,
      objects: without(archive.objects, gone),
      isNamedBy: ({ code, recording }) => code === 'recording-missing' && recording === idOf(`${base}cast`),
    };
  },
  swapCasts: (archive, random) => swapSessions(archive, random, ['cast']),
  swapSessions: (archive, random) => swapSessions(archive, random, ['cast', 'json', 'notes']),
  swapSidecars: (archive, random) => swapSessions(archive, random, ['json']),
  copySession(archive, random) {
    const [from, to] = pickTwo(names(archive, CASTS), random);
    const target = random(2) === 0 ? to : from.replace(/T(\d\d)/, (_, hour: string) => `T${otherHour(hour)}`);
    const objects = new Map(archive.objects);
    for (const suffix of ['cast', 'json', 'notes']) {
      const content = objects.get(from.replace(/cast$/, suffix));
      const name = target.replace(/cast$/, suffix);
      if (content === undefined) objects.delete(name);
      else objects.set(name, content);
    }
    return {
      name: `${from} to ${target}`,
      objects,
      isNamedBy: ({ recording }) => recording === idOf(target),
    };
  },
  deleteSegment(archive, random) {
    const name = pick(names(archive, SEGMENTS), random);
    return {
      name,
      objects: without(archive.objects, [name]),
      isNamedBy: (finding) => isAbout(finding, name),
    };
  },
  rollBackLog(archive, random) {
    const log = logOf(pick(names(archive, SEGMENTS), random));
    const segments = names(archive, SEGMENTS).filter((name) => logOf(name) === log);
    const gone = segments.slice(random(segments.length));
    return {
      name: gone[0]!,
      objects: without(archive.objects, gone),
      isNamedBy: (finding) => finding.log === log && finding.code === 'log-rolled-back',
    };
  },
  deleteEverythingOfALog(archive, random) {
    const log = logOf(pick(names(archive, SEGMENTS), random))!;
    const own = [...archive.objects].filter(
      ([name, content]) => logOf(name) === log || content.includes(log),
    );
    const recordings = own
      .filter(([name]) => name.endsWith('.json'))
      .map(([name]) => name.replace(/json$/, ''));
    const gone = names(archive, /./).filter(
      (name) => logOf(name) === log || recordings.some((base) => name.startsWith(base)),
    );
    return {
      name: log,
      objects: without(archive.objects, gone),
      isNamedBy: (finding) => finding.log === log && finding.code === 'log-rolled-back',
    };
  },
  deleteAllEvidence(archive, random) {
    const objects = new Map<string, Buffer>();
    for (const [name, content] of archive.objects) {
      if (name.startsWith('.evidence/')) continue;
      const stripped = content.toString().replace(/,\n {2}"evidence": [^]*$/, '\n}\n');
      objects.set(name, name.endsWith('.json') ? Buffer.from(stripped) : content);
    }
    if (random(2) === 0) objects.delete(pick(names(archive, CASTS), random));
    return { name: 'and strip sidecars', objects, isNamedBy: ({ code }) => code === 'log-rolled-back' };
  },
  stripEvidence(archive, random) {
    const name = pick(names(archive, /^nGATE.*\.json$/), random);
    const stripped = archive.objects
      .get(name)!
      .toString()
      .replace(/,\n {2}"evidence": [^]*$/, '\n}\n');
    const objects = new Map(archive.objects).set(name, Buffer.from(stripped));
    return { name, objects, isNamedBy: (finding) => isAbout(finding, name) };
  },
  restoreOlder(archive, random) {
    const turn = random(archive.earlier.length);
    return {
      name: `as after turn ${turn}`,
      objects: archive.earlier[turn]!,
      isNamedBy: ({ code }) => code === 'log-rolled-back',
    };
  },
  relinkLog: (archive, random) => forgeLog(archive, random, false),
  forgeLog: (archive, random) => forgeLog(archive, random, true),
} satisfies Record<string, Mutate>;

/**
 * Changes an entry of an evidence log and repairs the hashes. With `sign`, also replaces the signatures by signatures
 * of an untrusted key.
 */
function forgeLog(archive: Archive, random: Random, sign: boolean): Mutant | undefined {
  const log = logOf(pick(names(archive, SEGMENTS), random))!;
  const segments = names(archive, SEGMENTS).filter((name) => logOf(name) === log);
  const key = generateSigningKey();
  const objects = new Map(archive.objects);
  const from = random(segments.length);
  let prev: string | undefined;
  let changed: number | undefined;
  for (const name of segments.slice(from)) {
    const { lines, signature } = parseSegment(objects.get(name)!.toString());
    const forged = lines.map((line) => {
      const entry = parseEntry(line)!;
      const isIt = changed === undefined && random(2) === 0;
      if (isIt) changed = entry.n;
      const next = {
        ...entry,
        ...(prev === undefined ? {} : { prev }),
        ...(isIt ? { time: '2026-01-01T00:00:00.000Z' } : {}),
      };
      const text = JSON.stringify({ n: next.n, prev: next.prev, time: next.time, event: next.event });
      prev = createHash('sha256').update(text).digest('hex');
      return text;
    });
    const head = { log, n: signature!.n, hash: prev! };
    const { key: id, ed25519 } = signature!;
    const unsigned = [...forged, JSON.stringify({ signature: { ...head, key: id, ed25519 } }), ''].join('\n');
    objects.set(name, Buffer.from(sign ? encodeSegment(forged, head, key) : unsigned));
  }
  if (changed === undefined) return undefined;
  if (sign) objects.set(keyName(key.public.id), Buffer.from(key.public.pem));
  return {
    name: `${log} entry ${changed}`,
    objects,
    isNamedBy: ({ code, log: named }) =>
      named === log && ['log-signature-wrong', 'log-key-unknown', 'log-rolled-back'].includes(code),
  };
}

function swapSessions(archive: Archive, random: Random, suffixes: readonly string[]): Mutant {
  const [left, right] = pickTwo(names(archive, CASTS), random);
  const objects = new Map(archive.objects);
  for (const suffix of suffixes) {
    const [leftName, rightName] = [left.replace(/cast$/, suffix), right.replace(/cast$/, suffix)];
    const [leftContent, rightContent] = [objects.get(leftName), objects.get(rightName)];
    for (const [name, content] of [
      [leftName, rightContent],
      [rightName, leftContent],
    ] as const) {
      if (content === undefined) objects.delete(name);
      else objects.set(name, content);
    }
  }
  return {
    name: `${left} and ${right}`,
    objects,
    isNamedBy: ({ recording }) => recording === idOf(left) || recording === idOf(right),
  };
}

interface Change {
  readonly content: Buffer;
  /** Position of the first changed byte. */
  readonly at: number;
}

function changeFile(
  archive: Archive,
  random: Random,
  pattern: RegExp,
  change: (bytes: Buffer) => Change,
): Mutant | undefined {
  const name = pick(names(archive, pattern), random);
  const before = archive.objects.get(name)!;
  if (before.length === 0) return undefined;
  const { content, at } = change(before);
  return {
    name: `${name} at ${at}`,
    objects: new Map(archive.objects).set(name, content),
    isNamedBy: (finding) => isAbout(finding, name, before, at),
  };
}

function changeLines(
  archive: Archive,
  random: Random,
  pattern: RegExp,
  change: (lines: readonly string[], at: number) => readonly string[],
): Mutant | undefined {
  return changeFile(archive, random, pattern, (bytes) => {
    const lines = bytes.toString().split(/(?<=\n)/);
    const content = Buffer.from(change(lines, random(lines.length)).join(''));
    let at = 0;
    while (at < content.length && at < bytes.length && content[at] === bytes[at]) at += 1;
    return { content, at };
  });
}

function flip(bytes: Buffer, random: Random): Change {
  const at = random(bytes.length);
  const content = Buffer.from(bytes);
  content[at] = content[at]! ^ (1 << random(8));
  return { content, at };
}

function insert(bytes: Buffer, random: Random): Change {
  const at = random(bytes.length + 1);
  const added = Buffer.from(['\n', ' ', 'x', '[9,"o","forged"]\n'][random(4)]!);
  return { content: Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at)]), at };
}

function append(bytes: Buffer, random: Random): Change {
  const added = Buffer.from(['\n', ' ', '{}\n', '[9,"o","forged"]\n'][random(4)]!);
  return { content: Buffer.concat([bytes, added]), at: bytes.length };
}

function truncate(bytes: Buffer, random: Random): Change {
  const at = random(bytes.length);
  return { content: bytes.subarray(0, at), at };
}

/** Returns true if a finding names the changed recording or the changed entry of an evidence log. */
function isAbout(finding: Finding, name: string, before?: Buffer, at = 0): boolean {
  if (finding.severity !== 'fault') return false;
  if (logOf(name) !== undefined) return isAboutSegment(finding, name, before, at);
  if (name.startsWith('.evidence/keys/')) return finding.code === 'key-missing' || finding.object === name;
  return finding.recording === idOf(name.replace(/(json|notes)$/, 'cast'));
}

function isAboutSegment(finding: Finding, name: string, before: Buffer | undefined, at: number): boolean {
  if (finding.log !== logOf(name) || finding.entry === undefined) return false;
  const first = Number(name.slice(-'000000000000.ndjson'.length, -'.ndjson'.length));
  if (before === undefined) return Math.abs(finding.entry - first) <= 1 || finding.code === 'log-rolled-back';
  const line = before.subarray(0, at).filter((byte) => byte === 0x0a).length;
  return Math.abs(finding.entry - (first + line)) <= (finding.object === name ? 2 : 1);
}

function names(archive: Archive, pattern: RegExp): readonly string[] {
  return [...archive.objects.keys()].filter((name) => pattern.test(name)).toSorted();
}

function logOf(name: string): string | undefined {
  return /^\.evidence\/logs\/([0-9a-f]{32})\//.exec(name)?.[1];
}

function idOf(cast: string): string {
  return cast.replace('/', '_').replace(/\.cast$/, '');
}

function without(objects: Objects, gone: readonly string[]): Objects {
  return new Map([...objects].filter(([name]) => !gone.includes(name)));
}

function pick<T>(list: readonly T[], random: Random): T {
  return list[random(list.length)]!;
}

/** Returns an hour that differs from `hour`. */
function otherHour(hour: string): string {
  return String((Number(hour) + 1) % 24).padStart(2, '0');
}

function pickTwo<T>(list: readonly T[], random: Random): [T, T] {
  const first = random(list.length);
  const second = (first + 1 + random(list.length - 1)) % list.length;
  return [list[first]!, list[second]!];
}

function areSame(left: Objects, right: Objects): boolean {
  return (
    left.size === right.size &&
    [...left].every(([name, content]) => right.get(name)?.equals(content) === true)
  );
}
