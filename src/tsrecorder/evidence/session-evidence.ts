/** What a recorder does about evidence while sessions begin, end and are removed. */
import { createDurableMarks } from './durable-marks.ts';
import { createLostSessions, sha256, type LostSessions } from './lost-sessions.ts';
import type { HoldChange, LoggedHold } from './holds.ts';
import type { LineSeal, Seal } from './line-seal.ts';
import { EvidenceLog, type EvidenceLogOptions } from './evidence-log.ts';
import type { LogEvent, LogHead } from './log-entry.ts';
import { signSidecar, type SidecarEvidence } from './signed-sidecar.ts';
import type { SigningKey } from './signing-key.ts';

/** What the log says about the start of a session. */
export interface SessionStart {
  readonly recording: string;
  /** The stored header line, with its line feed. */
  readonly header: Uint8Array;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly address: string;
  /** So many bytes of the body are in the spool. */
  readonly durable: number;
  /** Set if another recorder began the session and this one took it over. */
  readonly adopted?: Adoption;
}

/** A session of another recorder that this one took over from a shared bucket. */
export interface Adoption {
  /** The log of the other recorder, and the number of the entry where the session began. */
  readonly log: string;
  readonly start: number;
  /** Id of the key that signed the copies. */
  readonly key: string;
  /** Bytes of the body that were durable, as that log says. */
  readonly durable: number;
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

export interface SessionEvidence extends Omit<LostSessions, 'short'> {
  /** Name of the log, and the key that signs it. */
  readonly log: string;
  readonly key: SigningKey;
  /** Entries of the log that the store does not have. */
  readonly unpublished: number;
  /** Number of the entry where an open session began, and SHA-256 of its header line; undefined if the log has none. */
  startOf(recording: string): { readonly n: number; readonly header: string } | undefined;
  /**
   * The first bytes of a session are in the spool. Resolves when that is durable, and in the store if that works: nothing of
   * the session may be acknowledged before.
   */
  started(start: SessionStart): Promise<void>;
  /**
   * The spool has a session that this recorder took over.
   *
   * @returns what is missing of it, a sentence; undefined if all that was durable is there.
   */
  adopted(session: SessionStart): string | undefined;
  /** More is in the spool. @returns what its acknowledgement has to wait for; undefined: for nothing. */
  grew(recording: string, durable: number): Promise<void> | undefined;
  /** Adds evidence and signature to a sidecar. A session of which the log knows no start gets one. */
  sign(start: SessionStart, files: SealedFiles, sidecar: string): Promise<string>;
  /** The store has the recording of a session, under `storedAs`. Resolves when that is durable. */
  ended(recording: string, storedAs: string, files: SealedFiles): Promise<void>;
  /** The last statement about each recording that was held, as the log of this recorder has it. */
  readonly holds: ReadonlyMap<string, LoggedHold>;
  /** True if this process began the log, so that `holds` lacks what an earlier log of this recorder had. */
  readonly isNewLog: boolean;
  /** Statements about holds were read. Resolves when they are in the store. */
  holding(changes: readonly HoldChange[]): Promise<void>;
  /** Recordings are about to be removed. Resolves when that is in the store. */
  removing(removals: readonly Removal[]): Promise<void>;
  /** A document is about to be stored. Resolves when that is durable. */
  documented(name: string, content: Uint8Array): Promise<void>;
  /** Documents are about to be removed. Resolves when that is in the store. */
  removingDocuments(names: readonly string[], reason: string): Promise<void>;
  /** The newest entry of another log that this recorder has seen, if a key that counts signed it. */
  witnessed(log: string): LogHead | undefined;
  /** Brings the log into the store. */
  publish(): Promise<void>;
  close(): Promise<void>;
}

/** How long an acknowledgement waits for a store that is slow. */
const ANNOUNCE_LIMIT_MS = 2000;

export interface SessionEvidenceOptions extends Omit<EvidenceLogOptions, 'tailMs'> {
  /** How often the log says how much of the sessions that grew is durable, and of all that are open. */
  readonly markMs: number;
  readonly markAllMs: number;
}

/** One per recorder. */
export async function openSessionEvidence(options: SessionEvidenceOptions): Promise<SessionEvidence> {
  const log = await EvidenceLog.open({ ...options, tailMs: options.markMs });
  const marks = createDurableMarks(log, options);
  const losses = createLostSessions(log, marks, options.log);
  const { key } = options;

  const start = (session: SessionStart): number => log.append(startEvent(session));

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
      marks.alive(session.recording);
      await log.sync();
      await log.announce(ANNOUNCE_LIMIT_MS);
    },
    startOf(recording) {
      const { n, header } = log.open.get(recording) ?? {};
      return n === undefined || header === undefined ? undefined : { n, header };
    },
    grew: (recording, durable) => marks.grew(recording, durable),
    ...losses,
    adopted(session) {
      const { recording, durable, adopted } = session;
      if (log.open.get(recording) === undefined) start(session);
      if (adopted === undefined || durable >= adopted.durable) return undefined;
      return losses.short(recording, adopted.durable, durable);
    },
    async sign(session, { cast, notes }, sidecar) {
      const n = log.open.get(session.recording)?.n ?? start(session);
      await log.sync();
      const files = {
        cast: withoutDigest(cast),
        ...(notes === undefined ? {} : { notes: withoutDigest(notes) }),
      };
      const evidence = { format: 1, log: log.id, start: n, ...originOf(session), ...files } as const;
      return signSidecar(sidecar, evidence, key);
    },
    async ended(recording, storedAs, { cast, notes }) {
      const n = log.open.get(recording)?.n;
      marks.forget(recording);
      if (n === undefined) return;
      const files = { cast: sealOf(cast), ...(notes === undefined ? {} : { notes: sealOf(notes) }) };
      log.append({ kind: 'end', start: n, recording: storedAs, ...files });
      await log.sync();
    },
    get holds() {
      return log.holds;
    },
    isNewLog: log.isNew,
    async holding(changes) {
      for (const { kind, recording, at, reason } of changes) log.append({ kind, recording, at, reason });
      await publish();
    },
    async removing(removals) {
      for (const removal of removals) log.append({ kind: 'removed', ...removal });
      await publish();
    },
    async documented(name, content) {
      log.append({ kind: 'document', name, bytes: content.length, sha256: sha256(content) });
      await log.sync();
    },
    async removingDocuments(names, reason) {
      for (const name of names) log.append({ kind: 'documentRemoved', name, reason });
      await publish();
    },
    witnessed: (id) => log.witnessed(id),
    publish,
    async close() {
      await marks.close();
      await log.close();
    },
  };
}

function startEvent({ header, adopted, ...about }: SessionStart): LogEvent {
  const from = adopted === undefined ? {} : { adopted: { log: adopted.log, start: adopted.start } };
  return { kind: 'start', ...about, header: sha256(header), ...from };
}

function originOf({ adopted }: SessionStart): Pick<SidecarEvidence, 'adopted'> {
  if (adopted === undefined) return {};
  const { log, start, key } = adopted;
  return { adopted: { log, start, key } };
}

function sealOf({ bytes, blockBytes, chain }: LineSeal): Seal {
  return { bytes, blockBytes, chain };
}

function withoutDigest({ bytes, blockBytes, chain, blocks }: LineSeal): LineSeal {
  return { bytes, blockBytes, chain, blocks };
}
