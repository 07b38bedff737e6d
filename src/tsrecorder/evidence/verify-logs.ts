/** Reads and verifies all evidence logs of a store. Detects missing, changed, moved and wrongly signed entries. */
import { OVERSIZED, readLimited, type DocumentStore } from '../store/document-store.ts';
import { fault, notice, type Finding } from './finding.ts';
import {
  KEY_PREFIX,
  MAX_KEY_BYTES,
  MAX_SEGMENT_BYTES,
  NO_HASH,
  newerLog,
  hashLine,
  headMessage,
  parseEntry,
  parseKeyName,
  parseSegment,
  parseSegmentName,
  parseTailName,
  logSegmentName,
  segmentPrefix,
  TAIL_PREFIX,
  tailName,
  type LogEntry,
  type LogHead,
  type ParsedSegment,
} from './log-entry.ts';
import { keysById, parsePublicKey, type PublicKey } from './signing-key.ts';

/** Read access to the documents of a store. */
export type DocumentReader = Pick<DocumentStore, 'listDocuments' | 'readDocument'>;

/** An evidence log in the store. */
export interface ReadLog {
  readonly log: string;
  /** Readable entries. Map keys: number of the entry. */
  readonly entries: ReadonlyMap<number, LogEntry>;
  /**
   * Numbers of the entries with a trusted signature. If the set is empty, the evidence log belongs to an unknown
   * recorder.
   */
  readonly signed: ReadonlySet<number>;
  /** Hash of the line of each entry. */
  readonly hashes: ReadonlyMap<number, string>;
  /** Ids of the keys that signed the evidence log. */
  readonly keyIds: ReadonlySet<string>;
  readonly head: LogHead | undefined;
}

/** All evidence logs and keys of a store, and the faults in them. */
export interface ReadLogs {
  readonly logs: ReadonlyMap<string, ReadLog>;
  readonly keys: KeyRing;
  readonly findings: readonly Finding[];
}

/** Trusted public keys. */
export interface KeyRing {
  /** True if the verifier provided the keys. False if the keys come from the store. */
  readonly trusted: boolean;
  readonly byId: ReadonlyMap<string, PublicKey>;
}

/**
 * Reads and verifies all evidence logs.
 *
 * @param trusted keys of the verifier. If empty, the keys come from the store, and the result contains a notice
 */
export async function readLogs(store: DocumentReader, trusted: readonly PublicKey[]): Promise<ReadLogs> {
  const findings: Finding[] = [];
  const published = await readKeys(store, findings);
  const keys: KeyRing = {
    trusted: trusted.length > 0,
    byId: trusted.length > 0 ? keysById(trusted) : published,
  };
  // Read the tails before listing the segments. If a segment is published between the two reads, it contains the
  // entries of the tail.
  const tails = await readTails(store, findings);
  const segments: { readonly log: string; readonly first: number }[] = [];
  for (const name of await store.listDocuments(segmentPrefix())) {
    const segment = parseSegmentName(name);
    if (segment !== undefined) segments.push(segment);
    else
      findings.push(
        fault('log-segment-unexpected', 'the object has no name of a log segment', { object: name }),
      );
  }
  const byLog = Map.groupBy(segments, ({ log }) => log);
  const logs = new Map<string, ReadLog>();
  for (const log of new Set([...tails.keys(), ...byLog.keys()])) {
    const reader = new LogReader(log, keys, findings);
    const ofLog = byLog.get(log) ?? [];
    for (const { first } of ofLog.toSorted((left, right) => left.first - right.first)) {
      const text = await readText(store, logSegmentName(log, first), findings);
      reader.take(first, parseSegment(text ?? ''));
    }
    const tail = tails.get(log);
    if (tail !== undefined) reader.takeFresh(parseSegment(tail), tailName(log));
    logs.set(log, reader.finish());
    for (const id of reader.keyIds) {
      if (published.has(id)) continue;
      findings.push(fault('key-missing', `the key ${id} is no longer in the store`, { log }));
    }
  }
  if (!keys.trusted && logs.size > 0) {
    const message = `no key was named, so the keys in the store were used: ${[...published.keys()].join(', ')}`;
    findings.push(notice('no-trusted-key', message, {}));
  }
  return { logs, keys, findings };
}

/** Maximum number of segments without a trusted signature that {@link readLogFrom} skips. */
const MAX_UNSIGNED = 1000;

/**
 * Reads and checks one evidence log from the segment with entry `n` to its end. If the log has no entry `n`, the result
 * is empty.
 *
 * Other programs can add objects, so segments and tails without a trusted signature are skipped. Missing entries
 * between two signed segments are a fault. The caller must check that the evidence log is long enough.
 */
export async function readLogFrom(
  store: DocumentReader,
  log: string,
  n: number,
  keys: KeyRing,
): Promise<{ readonly log: ReadLog; readonly findings: readonly Finding[] }> {
  const findings: Finding[] = [];
  // Read the tail first, for the same reason as in `readLogs`.
  const tail = await readSignedTail(store, log, keys);
  const firsts = (await store.listDocuments(segmentPrefix(log)))
    .flatMap((name) => parseSegmentName(name)?.first ?? [])
    .toSorted((left, right) => left - right);
  const readSegment = createSignedReader(store, log, keys, findings);
  const begin = await findBegin(firsts, n, readSegment);
  const reader = new LogReader(log, keys, findings, (begin ?? tail)?.first ?? n);
  if (begin !== undefined) reader.take(begin.first, begin.segment);
  for (const first of firsts.filter((each) => each > n)) {
    // Stop at the first fault, because other programs can add any number of segments.
    if (findings.length > 0) break;
    const segment = await readSegment(first);
    if (segment !== undefined) reader.takeFresh(segment, logSegmentName(log, first));
  }
  if (tail !== undefined) reader.takeFresh(tail.segment, tailName(log));
  const read = reader.finish();
  return { log: read.signed.has(n) ? read : { ...read, entries: new Map() }, findings };
}

/**
 * Returns the entries of a segment. If the segment has no trusted signature, the result is empty. @param name name in
 * the store
 */
export async function readSignedEntries(
  store: DocumentReader,
  name: string,
  byId: ReadonlyMap<string, PublicKey>,
): Promise<readonly LogEntry[]> {
  const segment = parseSegmentName(name);
  if (segment === undefined) return [];
  const reader = new LogReader(segment.log, { trusted: true, byId }, [], segment.first);
  reader.take(segment.first, parseSegment((await readText(store, name, [])) ?? ''));
  const { entries, signed } = reader.finish();
  return [...entries.values()].filter(({ n }) => signed.has(n));
}

async function readSignedTail(
  store: DocumentReader,
  log: string,
  keys: KeyRing,
): Promise<{ readonly first: number; readonly segment: ParsedSegment } | undefined> {
  const segment = parseSegment((await readText(store, tailName(log), [])) ?? '');
  const first = parseEntry(segment.lines[0] ?? '')?.n;
  return first !== undefined && isSigned(log, keys, first, segment) ? { first, segment } : undefined;
}

/** Returns the last signed segment that starts at entry `n` or before; undefined if no segment does. */
async function findBegin(
  firsts: readonly number[],
  n: number,
  readSegment: (first: number) => Promise<ParsedSegment | undefined>,
): Promise<{ readonly first: number; readonly segment: ParsedSegment } | undefined> {
  const candidates = firsts.filter((first) => first <= n).slice(-MAX_UNSIGNED);
  for (const first of candidates.toReversed()) {
    const segment = await readSegment(first);
    if (segment !== undefined) return { first, segment };
  }
  return undefined;
}

/**
 * Creates a function that reads a segment of an evidence log. It returns undefined unless a trusted key signed the
 * segment.
 */
function createSignedReader(
  store: DocumentReader,
  log: string,
  keys: KeyRing,
  findings: Finding[],
): (first: number) => Promise<ParsedSegment | undefined> {
  let unsigned = 0;
  return async (first) => {
    const segment = parseSegment((await readText(store, logSegmentName(log, first), [])) ?? '');
    if (isSigned(log, keys, first, segment)) return segment;
    unsigned += 1;
    if (unsigned === MAX_UNSIGNED)
      findings.push(fault('log-segment-unexpected', 'too many segments have no trusted signature', { log }));
    return undefined;
  };
}

/**
 * True if a trusted key signed the segment. A segment in a newer format counts as signed if its last line is signed, so
 * that the reader reports the format.
 */
function isSigned(log: string, { byId }: KeyRing, first: number, segment: ParsedSegment): boolean {
  const found: Finding[] = [];
  new LogReader(log, { trusted: true, byId }, found, first).take(first, segment);
  if (found.length === 0) return true;
  const { lines, signature } = segment;
  const last = lines.at(-1) ?? '';
  return (
    newerLog(last) !== undefined &&
    signature?.hash === hashLine(last) &&
    byId.get(signature.key)?.verifies(headMessage(signature), signature.ed25519) === true
  );
}

/** Checks that the evidence logs still contain every last entry (*head*) that an observer saw. */
export function checkHeads(
  logs: ReadonlyMap<string, ReadLog>,
  heads: readonly SeenHead[],
): readonly Finding[] {
  return heads.flatMap(({ head: { log, n, hash }, by }) => {
    const found = logs.get(log)?.hashes.get(n);
    if (found === hash) return [];
    const last = logs.get(log)?.head?.n;
    const now =
      last === undefined
        ? 'the log is missing'
        : found === undefined
          ? `the log ends with entry ${last}`
          : 'the log has another entry';
    return [fault('log-rolled-back', `${by} names entry ${n} of this log, but ${now}`, { log, entry: n })];
  });
}

/** The last entry of an evidence log at the time of an observation. */
export interface SeenHead {
  readonly head: LogHead;
  /** Name of the observer, as the first words of a message. */
  readonly by: string;
}

/** Returns the heads of other evidence logs that `witness` entries contain. Only signed entries count. */
export function witnessedHeads(logs: ReadonlyMap<string, ReadLog>): readonly SeenHead[] {
  return [...logs.values()].flatMap(({ log, entries, signed }) =>
    [...entries.values()].flatMap(({ n, event }) =>
      event.kind === 'witness' && signed.has(n) ? [{ head: event.head, by: `entry ${n} of log ${log}` }] : [],
    ),
  );
}

/** Reads the tails of all evidence logs. Invalid names are ignored, because tails only complement the segments. */
async function readTails(store: DocumentReader, findings: Finding[]): Promise<ReadonlyMap<string, string>> {
  const tails = new Map<string, string>();
  for (const name of await store.listDocuments(TAIL_PREFIX)) {
    const log = parseTailName(name);
    const text = log === undefined ? undefined : await readText(store, name, findings);
    if (log !== undefined && text !== undefined) tails.set(log, text);
  }
  return tails;
}

async function readKeys(store: DocumentReader, findings: Finding[]): Promise<ReadonlyMap<string, PublicKey>> {
  const keys = new Map<string, PublicKey>();
  for (const name of await store.listDocuments(KEY_PREFIX)) {
    const text = await readText(store, name, findings, MAX_KEY_BYTES);
    const key = parsePublicKey(text ?? '');
    if (key !== undefined && key.id === parseKeyName(name) && key.pem === text) keys.set(key.id, key);
    else findings.push(fault('key-changed', 'the content is not the key with this id', { object: name }));
  }
  return keys;
}

/** Verifies one evidence log, segment by segment. */
class LogReader {
  readonly keyIds = new Set<string>();
  readonly #log: string;
  readonly #keys: KeyRing;
  readonly #findings: Finding[];
  readonly #entries = new Map<number, LogEntry>();
  readonly #hashes = new Map<number, string>();
  readonly #signed = new Set<number>();
  #next = 0;
  #last: string | undefined = NO_HASH;
  #key: string | undefined;
  #head: LogHead | undefined;

  /** @param first number of the first entry to read */
  constructor(log: string, keys: KeyRing, findings: Finding[], first = 0) {
    this.#log = log;
    this.#keys = keys;
    this.#findings = findings;
    this.#next = first;
    // The hash of the entry before `first` is unknown, so it is not compared.
    if (first > 0) this.#last = undefined;
  }

  take(first: number, segment: ParsedSegment, object = logSegmentName(this.#log, first)): void {
    const { lines } = segment;
    if (first > this.#next) {
      const last = first - 1;
      const which = last === this.#next ? `entry ${last} is` : `entries ${this.#next} to ${last} are`;
      this.#fault('log-entries-missing', `${which} missing`, this.#next);
      this.#last = undefined;
    } else if (first < this.#next) {
      this.#fault('log-segment-unexpected', 'another segment also contains its entries', first, object);
      return;
    }
    const faults = this.#findings.length;
    for (const [index, line] of lines.entries()) this.#takeLine(first + index, line, object);
    this.#next = first + Math.max(1, lines.length);
    this.#checkSignature(segment, first, object);
    // If one entry of the segment is faulty, the signature proves none of its entries.
    if (this.#findings.length > faults) return;
    for (const index of lines.keys()) this.#signed.add(first + index);
  }

  /** Reads the new entries of a tail or segment. Verifies that entries that were read before are unchanged. */
  takeFresh({ lines, signature }: ParsedSegment, object: string): void {
    const known = lines.findIndex((line) => (parseEntry(line)?.n ?? this.#next) >= this.#next);
    const fresh = known === -1 ? [] : lines.slice(known);
    for (const line of lines.slice(0, lines.length - fresh.length)) {
      const n = parseEntry(line)?.n ?? -1;
      const hash = this.#hashes.get(n);
      if (hash === undefined || hash === hashLine(line)) continue;
      this.#fault(
        'log-entry-changed',
        object === tailName(this.#log)
          ? `entry ${n} is different at the end of the log`
          : `entry ${n} is different in another segment`,
        n,
        object,
      );
    }
    if (fresh.length > 0)
      this.take(parseEntry(fresh[0] ?? '')?.n ?? this.#next, { lines: fresh, signature }, object);
  }

  finish(): ReadLog {
    return {
      log: this.#log,
      entries: this.#entries,
      signed: this.#signed,
      hashes: this.#hashes,
      keyIds: this.keyIds,
      head: this.#head,
    };
  }

  #takeLine(n: number, line: string, object: string): void {
    const hash = hashLine(line);
    const entry = parseEntry(line);
    if (entry?.n !== n) {
      const message = newerLog(line) ?? 'it is not the expected entry';
      this.#fault('log-entry-unreadable', message, n, object);
      this.#last = undefined;
      return;
    }
    if (this.#last !== undefined && entry.prev !== this.#last) {
      const where = n === 0 ? 0 : n - 1;
      this.#fault('log-entry-changed', `entry ${n} does not continue the log`, where, object);
    }
    this.#last = hash;
    this.#entries.set(n, entry);
    this.#hashes.set(n, hash);
    const { event } = entry;
    if (event.kind === 'open' && (n !== 0 || event.log !== this.#log)) {
      this.#fault('log-entry-changed', 'the entry belongs to another log', n, object);
    }
    if (event.kind === 'open' || event.kind === 'restart') this.#takeKey(n, event.key, object);
  }

  #takeKey(n: number, raw: string, object: string): void {
    const key = parsePublicKey(raw)?.id;
    if (key === undefined) this.#fault('log-entry-unreadable', 'its key cannot be read', n, object);
    // If the verifier provided the keys, a change of the signing key to another provided key is no fault, but a key
    // rotation.
    else if (this.#key !== undefined && key !== this.#key && !this.#keys.trusted) {
      const message = `from here on the log is signed by the key ${key}; if that is expected, name all keys`;
      this.#fault('log-key-changed', message, n, object);
    }
    this.#key = key;
  }

  #checkSignature({ lines, signature }: ParsedSegment, first: number, object: string): void {
    const n = first + lines.length - 1;
    if (signature === undefined || lines.length === 0) {
      this.#fault('log-signature-wrong', 'the segment does not end in a signature', n, object);
      return;
    }
    const { key: id, ed25519, ...head } = signature;
    this.keyIds.add(id);
    if (head.log !== this.#log || head.n !== n) {
      this.#fault('log-signature-wrong', 'the signature belongs to another segment', n, object);
      return;
    }
    if (this.#last !== undefined && head.hash !== this.#last) {
      this.#fault('log-entry-changed', 'the entry was changed after it was signed', n, object);
      return;
    }
    const key = this.#keys.byId.get(id);
    if (key === undefined || (this.#key !== undefined && id !== this.#key)) {
      this.#fault('log-key-unknown', `it is signed by the key ${id}, which is not trusted here`, n, object);
    } else if (!key.verifies(headMessage(head), ed25519)) {
      this.#fault('log-signature-wrong', 'the signature is wrong', n, object);
    }
    this.#head = head;
  }

  #fault(code: Finding['code'], message: string, entry: number, object?: string): void {
    this.#findings.push(
      fault(code, message, { log: this.#log, entry, ...(object === undefined ? {} : { object }) }),
    );
  }
}

async function readText(
  store: DocumentReader,
  name: string,
  findings: Finding[],
  maxBytes = MAX_SEGMENT_BYTES,
): Promise<string | undefined> {
  const content = await readLimited(store, name, maxBytes);
  if (content === OVERSIZED)
    findings.push(
      fault('document-oversized', `it was not read, because it is larger than ${maxBytes} bytes`, {
        object: name,
      }),
    );
  return content === undefined || content === OVERSIZED ? undefined : Buffer.from(content).toString();
}
