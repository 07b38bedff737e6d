/** Whether a stored recording is what its recorder signed, for whoever looks at it; and what its sidecar says of the session. */
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { parseSidecar, type Sidecar } from '../library/sidecar.ts';
import type { RecordingStore } from '../store/store.ts';
import type { Finding } from './finding.ts';
import { keyName } from './log-entry.ts';
import { parsePublicKey, type PublicKey } from './signing-key.ts';
import type { SignedSidecar } from './signed-sidecar.ts';
import { checkSigned } from './verify-recording.ts';

/** What is read for it. */
export type EvidenceStore = Pick<RecordingStore, 'list' | 'stat' | 'read' | 'readDocument'>;

export interface CheckOptions {
  readonly store: EvidenceStore;
  /** Of the recorder that answers; undefined where none does. */
  readonly ownKey: PublicKey | undefined;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
}

/** What was checked, and how that ended. */
export interface CheckedEvidence {
  /** `sound`: it is what the key signed. `none`: there is nothing to hold it against. `running`: it is not over. */
  readonly verdict: 'sound' | 'faulty' | 'none' | 'running';
  /** RFC 3339, UTC. */
  readonly checkedAt: string;
  readonly findings: readonly Pick<Finding, 'severity' | 'code' | 'message'>[];
  readonly signedBy?: {
    readonly key: string;
    /** Which key it is: of the recorder that answers, one published in the store, or none that is known. */
    readonly whose: 'this recorder' | 'published' | 'unknown';
    readonly log: string;
    readonly entry: number;
    /** The key itself, if it is known: SubjectPublicKeyInfo, PEM. */
    readonly pem?: string;
  };
}

/** What is known about a recording beside what it shows. */
export interface DescribedEvidence {
  readonly evidence: CheckedEvidence;
  /** As the gateway wrote it down. */
  readonly session?: unknown;
  readonly gaps: Sidecar['gaps'];
  readonly gapCount: number;
  readonly parts: number;
}

/** Checks the recording, which reads all of it. */
export async function describeEvidence(
  entry: CatalogEntry,
  options: CheckOptions,
): Promise<DescribedEvidence> {
  const [evidence, sidecar] = await Promise.all([
    checkEvidence(entry, options),
    readSidecar(entry, options.store),
  ]);
  return {
    evidence,
    ...(sidecar?.session === undefined ? {} : { session: sidecar.session }),
    gaps: sidecar?.gaps ?? [],
    gapCount: sidecar?.gapCount ?? 0,
    parts: entry.pieces.length,
  };
}

/** The key of this id as it is published in the store. */
async function readPublishedKey(
  store: Pick<RecordingStore, 'readDocument'>,
  id: string,
): Promise<PublicKey | undefined> {
  const pem = Buffer.from((await store.readDocument(keyName(id))) ?? []).toString();
  const found = parsePublicKey(pem);
  return found?.id === id ? found : undefined;
}

async function checkEvidence(
  { key, live, pieces }: CatalogEntry,
  { store, ownKey, nowMs }: CheckOptions,
): Promise<CheckedEvidence> {
  const checkedAt = new Date(nowMs()).toISOString();
  if (live !== undefined) return { verdict: 'running', checkedAt, findings: [] };
  const published = new Map<string, PublicKey>();
  const text = await readText(store, key);
  const id = /"signature": \{"key":"([0-9a-f]{32})"/.exec(text ?? '')?.[1];
  const found = id === undefined ? undefined : await readPublishedKey(store, id);
  if (found !== undefined) published.set(found.id, found);
  const byId = new Map(published);
  if (ownKey !== undefined) byId.set(ownKey.id, ownKey);
  const { evidence, findings, signature } = await checkSigned(store, key, { trusted: true, byId });
  const partial =
    pieces.length > 1
      ? [
          {
            severity: 'notice' as const,
            code: 'unfinished' as const,
            message: 'only the first part was checked',
          },
        ]
      : [];
  const verdict = !evidence
    ? 'none'
    : findings.some(({ severity }) => severity === 'fault')
      ? 'faulty'
      : 'sound';
  return {
    verdict,
    checkedAt,
    findings: [...findings, ...partial].map(({ severity, code, message }) => ({ severity, code, message })),
    ...(signature === undefined ? {} : { signedBy: describeSigner(signature, ownKey, published) }),
  };
}

function describeSigner(
  { keyId, evidence }: SignedSidecar,
  ownKey: PublicKey | undefined,
  published: ReadonlyMap<string, PublicKey>,
): NonNullable<CheckedEvidence['signedBy']> {
  const isOwn = keyId === ownKey?.id;
  const key = isOwn ? ownKey : published.get(keyId);
  return {
    key: keyId,
    whose: isOwn ? 'this recorder' : key === undefined ? 'unknown' : 'published',
    log: evidence.log,
    entry: evidence.start,
    ...(key === undefined ? {} : { pem: key.pem }),
  };
}

async function readSidecar({ key, live }: CatalogEntry, store: EvidenceStore): Promise<Sidecar | undefined> {
  return live === undefined ? parseSidecar((await readText(store, key)) ?? '') : undefined;
}

async function readText(store: EvidenceStore, key: CatalogEntry['key']): Promise<string | undefined> {
  if ((await store.stat(key, 'sidecar')) === undefined) return undefined;
  const parts: Uint8Array[] = [];
  for await (const part of store.read(key, 'sidecar')) parts.push(part);
  return Buffer.concat(parts).toString();
}
