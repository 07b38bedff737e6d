/** Compares a stored recording with its signature, and reads the session facts from its sidecar. */
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { MAX_SIDECAR_BYTES, readText } from '../library/describe-stored.ts';
import type { Sidecar } from '../library/sidecar.ts';
import type { RecordingStore } from '../store/store.ts';
import type { CheckedEvidence } from '../../wire/recorder-api/checked-evidence.ts';
import type { Finding } from './finding.ts';
import { keyName, MAX_KEY_BYTES } from './log-entry.ts';
import { parsePublicKey, type PublicKey } from './signing-key.ts';
import type { SignedSidecar } from './signed-sidecar.ts';
import { checkSigned } from './verify-recording.ts';

/** Store methods that the check uses. */
export type EvidenceStore = Pick<RecordingStore, 'list' | 'stat' | 'read' | 'readDocument'>;

export interface CheckOptions {
  readonly store: EvidenceStore;
  /** Key of the recorder that runs the check; undefined outside a recorder. */
  readonly ownKey: PublicKey | undefined;
  /** Public keys of trusted recorders. Map keys: key id. Default: only `ownKey` is trusted. */
  readonly trusted?: ReadonlyMap<string, PublicKey>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Aborts the check. */
  readonly signal?: AbortSignal;
}

/** Result of the evidence check of a recording, and the annotations that describe its session. */
export interface DescribedEvidence {
  readonly evidence: CheckedEvidence;
  /** `session` annotation of the gateway. */
  readonly session?: unknown;
  readonly gaps: Sidecar['gaps'];
  readonly gapCount: number;
  readonly parts: number;
}

/** Describes and checks a recording. The check reads the complete recording. @throws the reason of `signal` */
export async function describeEvidence(
  entry: CatalogEntry,
  options: CheckOptions,
): Promise<DescribedEvidence> {
  const { evidence, sidecar } = await checkEvidence(entry, options);
  return {
    evidence,
    ...(sidecar?.session === undefined ? {} : { session: sidecar.session }),
    gaps: sidecar?.gaps ?? [],
    gapCount: sidecar?.gapCount ?? 0,
    parts: entry.pieces.length,
  };
}

/** Reads the key with this id from the store. */
async function readPublishedKey(
  store: Pick<RecordingStore, 'readDocument'>,
  id: string,
): Promise<PublicKey | undefined> {
  const pem = Buffer.from((await store.readDocument(keyName(id), MAX_KEY_BYTES)) ?? []).toString();
  const found = parsePublicKey(pem);
  return found?.id === id ? found : undefined;
}

/** Verdicts of parts, worst first. The worst verdict of all parts is the verdict of the session. */
const WORST_FIRST = ['failed', 'none', 'unverified'] as const;

/**
 * Checks each part of the recording. The result contains the signer of the first part, the worst verdict, and the
 * checked sidecar of the first part.
 */
async function checkEvidence(
  { key, live, parts = [key] }: CatalogEntry,
  options: CheckOptions,
): Promise<{ readonly evidence: CheckedEvidence; readonly sidecar?: Sidecar | undefined }> {
  const checkedAt = new Date(options.nowMs()).toISOString();
  if (live !== undefined) return { evidence: { verdict: 'running', checkedAt, findings: [] } };
  const checked: CheckedPart[] = [];
  for (const part of parts) checked.push(await checkPart(part, options));
  const verdict =
    WORST_FIRST.find((worst) => checked.some(({ evidence }) => evidence.verdict === worst)) ?? 'verified';
  const signedBy = checked[0]?.evidence.signedBy;
  const findings = checked.flatMap(({ evidence }) => evidence.findings);
  return {
    evidence: { verdict, checkedAt, findings, ...(signedBy === undefined ? {} : { signedBy }) },
    sidecar: checked[0]?.sidecar,
  };
}

interface CheckedPart {
  readonly evidence: Omit<CheckedEvidence, 'checkedAt'>;
  readonly sidecar: Sidecar | undefined;
}

async function checkPart(
  key: CatalogEntry['key'],
  { store, ownKey, trusted = new Map(), signal }: CheckOptions,
): Promise<CheckedPart> {
  const published = new Map<string, PublicKey>();
  const text = await readSidecarText(store, key);
  const id = /"signature": \{"key":"([0-9a-f]{32})"/.exec(text ?? '')?.[1];
  const found = id === undefined ? undefined : await readPublishedKey(store, id);
  if (found !== undefined) published.set(found.id, found);
  const byId = new Map([...published, ...trusted]);
  if (ownKey !== undefined) byId.set(ownKey.id, ownKey);
  const checked = await checkSigned(store, key, { trusted: true, byId }, signal);
  const { evidence, findings, signature, sidecar } = checked;
  const counts = new Set([...trusted.keys(), ...(ownKey === undefined ? [] : [ownKey.id])]);
  const verdict = evidence ? verdictOf(findings, counts.has(signature?.keyId ?? '')) : 'none';
  const signedBy =
    signature === undefined ? {} : { signedBy: describeSigner(signature, ownKey, trusted, published) };
  return {
    evidence: {
      verdict,
      findings: findings.map(({ severity, code, message }) => ({ severity, code, message })),
      ...signedBy,
    },
    sidecar,
  };
}

function verdictOf(findings: readonly Finding[], isTrusted: boolean): CheckedEvidence['verdict'] {
  if (findings.some(({ severity }) => severity === 'fault')) return 'failed';
  return isTrusted ? 'verified' : 'unverified';
}

function describeSigner(
  { keyId, evidence }: SignedSidecar,
  ownKey: PublicKey | undefined,
  trusted: ReadonlyMap<string, PublicKey>,
  published: ReadonlyMap<string, PublicKey>,
): NonNullable<CheckedEvidence['signedBy']> {
  const isOwn = keyId === ownKey?.id;
  const key = isOwn ? ownKey : (trusted.get(keyId) ?? published.get(keyId));
  const { adopted } = evidence;
  return {
    key: keyId,
    owner: isOwn
      ? 'this recorder'
      : trusted.has(keyId)
        ? 'trusted'
        : key === undefined
          ? 'unknown'
          : 'published',
    log: evidence.log,
    entry: evidence.start,
    ...(adopted === undefined
      ? {}
      : { adopted: { log: adopted.log, entry: adopted.start, key: adopted.key } }),
    ...(key === undefined ? {} : { pem: key.pem }),
  };
}

async function readSidecarText(store: EvidenceStore, key: CatalogEntry['key']): Promise<string | undefined> {
  if ((await store.stat(key, 'sidecar')) === undefined) return undefined;
  return readText(store, key, 'sidecar', MAX_SIDECAR_BYTES);
}
