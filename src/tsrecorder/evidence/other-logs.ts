/**
 * Finds the newest signed entries in the evidence logs of other recorders. Anyone with write access to the store can
 * add segments, so the number of reads is limited. Unsigned segments cannot hide signed segments, because the segment
 * after the last known entry has a predictable name.
 */
import { randomInt } from 'node:crypto';
import type { Logger } from '../../observe/logger.ts';
import { OVERSIZED, readLimited, type DocumentStore } from '../store/document-store.ts';
import {
  headMessage,
  MAX_SEGMENT_BYTES,
  parseSegment,
  parseSegmentName,
  segmentPrefix,
  type LogHead,
  type SegmentSignature,
} from './log-entry.ts';
import type { PublicKey } from './signing-key.ts';

/** Maximum number of segments that one pass reads. Publishing starts after this pass. */
const MAX_READS = 500;
/**
 * Maximum number of further segments that one pass reads in a log, if it has not found a new signed segment in that
 * log.
 */
const MAX_UNSIGNED_READS = 19;

const UNSIGNED =
  "segments of another recorder's evidence log have no trusted signature: run tailcast verify, and name the key of " +
  'that recorder in --recorder-keys';

export interface OtherLogsOptions {
  readonly store: Pick<DocumentStore, 'listDocuments' | 'readDocument'>;
  /** Name of this recorder's evidence log, which is skipped. */
  readonly own: string;
  /** Public keys of the trusted recorders. Map keys: key id. */
  readonly keys: ReadonlyMap<string, PublicKey>;
  /** Returns the newest known entry of another log. */
  readonly known: (log: string) => LogHead | undefined;
  readonly log: Pick<Logger, 'error'>;
}

/** Newest entries of other evidence logs. */
export interface NewestHeads {
  /** Entries that are newer than the known entries. */
  readonly heads: readonly LogHead[];
  /** True if the pass ended at its read limit, although further segments of a log may be signed. */
  readonly isBehind: boolean;
}

interface Segment {
  readonly log: string;
  readonly first: number;
  readonly name: string;
}

/** Reader of the evidence logs of other recorders. */
export class OtherLogs {
  readonly #options: OtherLogsOptions;
  /** Names of segments without a trusted signature. */
  readonly #unsigned = new Set<string>();
  /** Logs whose unsigned segments were reported. */
  readonly #reported = new Set<string>();
  #readsLeft = 0;
  #isBehind = false;

  constructor(options: OtherLogsOptions) {
    this.#options = options;
  }

  /** Reads the newest entries in one pass. @throws TailcastError `STORE_FAILED` */
  async newestHeads(): Promise<NewestHeads> {
    const { store, own, known } = this.#options;
    const names = await store.listDocuments(segmentPrefix());
    const segments = names.flatMap((name): Segment[] => {
      const segment = parseSegmentName(name);
      const isNew =
        segment !== undefined && segment.log !== own && segment.first > (known(segment.log)?.n ?? -1);
      return isNew ? [{ ...segment, name }] : [];
    });
    this.#forgetRemoved(segments);
    this.#readsLeft = MAX_READS;
    this.#isBehind = false;
    const byLog = inOrder(
      [...Map.groupBy(segments, ({ log }) => log)].map(([log, ofLog]) => ({
        log,
        known: known(log),
        segments: ofLog.toSorted((left, right) => right.first - left.first),
      })),
    );
    const heads = new Map<string, LogHead>();
    for (const each of byLog) {
      const head =
        (await this.#readNewest(each.segments, 1)) ?? (await this.#followKnown(each.segments, each.known));
      if (head !== undefined) heads.set(each.log, head);
    }
    for (const each of byLog) {
      if (heads.has(each.log)) continue;
      const head = await this.#readNewest(each.segments, MAX_UNSIGNED_READS);
      if (head !== undefined) heads.set(each.log, head);
    }
    for (const each of byLog) this.#report(each.log, each.segments, heads.get(each.log) ?? each.known);
    // Read all unsigned segments again, because a recorder may replace a damaged segment.
    if (segments.every(({ log, name }) => heads.has(log) || this.#unsigned.has(name))) this.#unsigned.clear();
    return { heads: [...heads.values()], isBehind: this.#isBehind };
  }

  /**
   * Reads at most `maximum` segments, newest first, until a segment is signed. Skips segments that an earlier pass
   * found unsigned.
   */
  async #readNewest(newestFirst: readonly Segment[], maximum: number): Promise<LogHead | undefined> {
    for (const segment of newestFirst.filter(({ name }) => !this.#unsigned.has(name)).slice(0, maximum)) {
      if (this.#readsLeft === 0) return undefined;
      const head = await this.#read(segment);
      if (head !== undefined) return head;
    }
    return undefined;
  }

  /**
   * Reads the segments that follow the known entry without a gap. A segment without a signature is read again in each
   * pass if the log is known.
   */
  async #followKnown(segments: readonly Segment[], known: LogHead | undefined): Promise<LogHead | undefined> {
    const byFirst = new Map(segments.map((segment) => [segment.first, segment]));
    const [newest] = segments;
    let head: LogHead | undefined;
    for (;;) {
      const next = byFirst.get(((head ?? known)?.n ?? -1) + 1);
      if (next === undefined || next === newest) return head;
      if (known === undefined && this.#unsigned.has(next.name)) return head;
      if (this.#readsLeft === 0) {
        this.#isBehind = true;
        return head;
      }
      const found = await this.#read(next);
      if (found === undefined) return head;
      head = found;
    }
  }

  async #read({ name, log, first }: Segment): Promise<LogHead | undefined> {
    this.#readsLeft -= 1;
    const { signature } = parseSegment((await readSegmentText(this.#options.store, name)) ?? '');
    const head = signedHead(signature, this.#options.keys);
    // Ignore a signed segment that was copied to another name: it would hide newer segments.
    if (head?.log === log && head.n >= first) return head;
    this.#unsigned.add(name);
    return undefined;
  }

  /**
   * Reports that a log has unsigned segments after its last signed entry. Repeats the report only if such segments were
   * gone in the meantime.
   */
  #report(log: string, segments: readonly Segment[], last: LogHead | undefined): void {
    if (last === undefined || this.#readsLeft === 0) return;
    const unsigned = segments.filter(({ first }) => first > last.n);
    if (unsigned.length === 0) this.#reported.delete(log);
    else if (!this.#reported.has(log)) {
      this.#reported.add(log);
      this.#options.log.error({ log, segments: unsigned.length, object: unsigned.at(-1)?.name }, UNSIGNED);
    }
  }

  #forgetRemoved(segments: readonly Segment[]): void {
    const names = new Set(segments.map(({ name }) => name));
    for (const name of this.#unsigned) if (!names.has(name)) this.#unsigned.delete(name);
    const logs = new Set(segments.map(({ log }) => log));
    for (const log of this.#reported) if (!logs.has(log)) this.#reported.delete(log);
  }
}

/**
 * Sorts logs: first the logs with a known entry, then the other logs. Each group begins at a random log: an attacker
 * may add more logs than one pass reads, and each log must be read in some pass.
 */
function inOrder<T extends { readonly known: LogHead | undefined }>(logs: readonly T[]): readonly T[] {
  const groups = [
    logs.filter(({ known }) => known !== undefined),
    logs.filter(({ known }) => known === undefined),
  ];
  return groups.flatMap((group) => {
    const start = randomInt(group.length + 1);
    return [...group.slice(start), ...group.slice(0, start)];
  });
}

/** Returns the last entry of a segment, if one of the keys signed the segment. */
export function signedHead(
  signature: SegmentSignature | undefined,
  keys: ReadonlyMap<string, PublicKey>,
): LogHead | undefined {
  if (signature === undefined) return undefined;
  const { key, ed25519, ...head } = signature;
  return keys.get(key)?.verifies(headMessage(head), ed25519) === true ? head : undefined;
}

/** Reads a segment or tail. @returns undefined if the object is missing, or larger than any segment of a recorder */
export async function readSegmentText(
  store: Pick<DocumentStore, 'readDocument'>,
  name: string,
): Promise<string | undefined> {
  const content = await readLimited(store, name, MAX_SEGMENT_BYTES);
  return content === undefined || content === OVERSIZED ? undefined : Buffer.from(content).toString();
}
