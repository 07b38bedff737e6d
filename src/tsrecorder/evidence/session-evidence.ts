/** What a recorder does about evidence while sessions begin, end and are removed. */
import { createHash } from 'node:crypto';
import type { LineSeal, Seal } from './line-seal.ts';
import { EvidenceLog, type EvidenceLogOptions } from './evidence-log.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import { signSidecar } from './signed-sidecar.ts';
import type { SigningKey } from './signing-key.ts';

/** What the log says about the start of a session. */
export interface SessionStart {
  readonly recording: string;
  /** The stored header line, with its line feed. */
  readonly header: Uint8Array;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly address: string;
}

export interface SealedFiles {
  readonly cast: LineSeal;
  /** Undefined when there are no notes. */
  readonly notes: LineSeal | undefined;
}

/** A recording that may go, and why. */
export interface Removal {
  readonly recording: string;
  readonly reason: string;
  readonly bytes: number;
}

export interface SessionEvidence {
  /** Name of the log, and the key that signs it. */
  readonly log: string;
  readonly key: SigningKey;
  /** Entries of the log that the store does not have. */
  readonly unpublished: number;
  /** A session begins. Resolves when that is durable: nothing of it may be acknowledged before. */
  started(start: SessionStart): Promise<void>;
  /** Adds evidence and signature to a sidecar. A session of which the log knows no start gets one. */
  sign(start: SessionStart, files: SealedFiles, sidecar: string): Promise<string>;
  /** The store has the recording of a session, under `storedAs`. Resolves when that is durable. */
  ended(recording: string, storedAs: string, files: SealedFiles): Promise<void>;
  /** Nothing of a session was durable. */
  voided(recording: string): void;
  /** After a crash: of the sessions that the log says are open, only these are. */
  settle(open: readonly RecordingKey[]): Promise<void>;
  /** Recordings are about to be removed. Resolves when that is in the store. */
  removing(removals: readonly Removal[]): Promise<void>;
  /** A document is about to be stored. Resolves when that is durable. */
  documented(name: string, content: Uint8Array): Promise<void>;
  /** Documents are about to be removed. Resolves when that is in the store. */
  removingDocuments(names: readonly string[], reason: string): Promise<void>;
  /** Brings the log into the store. */
  publish(): Promise<void>;
  close(): Promise<void>;
}

const NOTHING_DURABLE = 'nothing of it was durable';

/** One per recorder. */
export async function openSessionEvidence(options: EvidenceLogOptions): Promise<SessionEvidence> {
  const log = await EvidenceLog.open(options);
  const { key } = options;

  function start({ recording, header, nodeId, nodeName, address }: SessionStart): number {
    const digest = createHash('sha256').update(header).digest('hex');
    return log.append({ kind: 'start', recording, header: digest, nodeId, nodeName, address });
  }

  async function publish(): Promise<void> {
    await log.sync();
    await log.publish();
  }

  return {
    log: log.id,
    key,
    get unpublished() {
      return log.unpublished;
    },
    async started(session) {
      start(session);
      await log.sync();
    },
    async sign(session, { cast, notes }, sidecar) {
      const n = log.open.get(session.recording) ?? start(session);
      await log.sync();
      const files = {
        cast: withoutDigest(cast),
        ...(notes === undefined ? {} : { notes: withoutDigest(notes) }),
      };
      return signSidecar(sidecar, { format: 1, log: log.id, start: n, ...files }, key);
    },
    async ended(recording, storedAs, { cast, notes }) {
      const n = log.open.get(recording);
      if (n === undefined) return;
      const files = { cast: sealOf(cast), ...(notes === undefined ? {} : { notes: sealOf(notes) }) };
      log.append({ kind: 'end', start: n, recording: storedAs, ...files });
      await log.sync();
    },
    voided(recording) {
      const n = log.open.get(recording);
      if (n !== undefined) log.append({ kind: 'void', start: n, recording, reason: NOTHING_DURABLE });
    },
    async settle(keys) {
      const open = new Set(keys.map(recordingId));
      for (const [recording, n] of log.open) {
        if (!open.has(recording)) log.append({ kind: 'void', start: n, recording, reason: NOTHING_DURABLE });
      }
      await log.sync();
    },
    async removing(removals) {
      for (const removal of removals) log.append({ kind: 'removed', ...removal });
      await publish();
    },
    async documented(name, content) {
      const sha256 = createHash('sha256').update(content).digest('hex');
      log.append({ kind: 'document', name, bytes: content.length, sha256 });
      await log.sync();
    },
    async removingDocuments(names, reason) {
      for (const name of names) log.append({ kind: 'documentRemoved', name, reason });
      await publish();
    },
    publish,
    close: () => log.close(),
  };
}

function sealOf({ bytes, blockBytes, chain }: LineSeal): Seal {
  return { bytes, blockBytes, chain };
}

function withoutDigest({ bytes, blockBytes, chain, blocks }: LineSeal): LineSeal {
  return { bytes, blockBytes, chain, blocks };
}
