/** Compares the batches of events in a store with the evidence logs. */
import { hash } from 'node:crypto';
import { fault, notice, type Finding } from './finding.ts';
import type { Index } from './log-index.ts';
import { batchPrefix, MAX_BATCH_BYTES, readBatch } from './signed-batch.ts';
import type { DocumentReader, KeyRing, ReadLog } from './verify-logs.ts';

interface DocumentCheck {
  readonly store: DocumentReader;
  /** Aborts the check. */
  readonly signal?: AbortSignal;
}

/** True if the evidence logs are the same log, or one key signed both logs. */
export function sharesKey(logs: ReadonlyMap<string, ReadLog>, left: string, right: string): boolean {
  const keys = logs.get(left)?.keyIds ?? new Set();
  return left === right || [...keys].some((key) => logs.get(right)?.keyIds.has(key) === true);
}

/**
 * Checks that each document in the evidence logs is unchanged, and that each batch of events in the store is in a log.
 */
export async function checkDocuments(
  check: DocumentCheck,
  index: Index,
  keys: KeyRing,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const [name, { log, n, bytes, sha256 }] of index.documents) {
    check.signal?.throwIfAborted();
    const removals = index.documentRemovals.get(name) ?? [];
    if (keys.trusted && removals.length > 0) continue;
    if (removals.some((removal) => sharesKey(index.logs, removal.log, log))) continue;
    const where = { object: name, log, entry: n };
    const content = await check.store.readDocument(name, bytes + 1);
    if (content === undefined && removals.length > 0) {
      const message =
        'another recorder’s log contains the removal of the document; if that is expected, name the keys of both';
      findings.push(fault('removal-untrusted', message, where));
      continue;
    }
    if (content === undefined) findings.push(fault('document-missing', 'the document is missing', where));
    else if (hash('sha256', content) !== sha256)
      findings.push(fault('document-changed', 'the document was changed after it was stored', where));
  }
  for (const name of await check.store.listDocuments(batchPrefix())) {
    check.signal?.throwIfAborted();
    if (!index.documents.has(name)) findings.push(...(await checkUnknownBatch(check, name, keys)));
  }
  return findings;
}

/** Checks a batch that is in no evidence log. A recorder may have stored the batch after the logs were read. */
async function checkUnknownBatch(
  { store }: DocumentCheck,
  name: string,
  { byId }: KeyRing,
): Promise<readonly Finding[]> {
  const content = await store.readDocument(name, MAX_BATCH_BYTES + 1);
  // A missing batch is no fault, because retention may have removed it after the evidence logs were read.
  if (content === undefined) return [];
  const where = { object: name };
  if (readBatch(name, content, byId).trust.trust !== 'verified')
    return [
      fault('document-unknown', 'no log has this batch of events, and no trusted key signed it', where),
    ];
  return [notice('document-unknown', 'no log has this batch of events yet; a trusted key signed it', where)];
}
