/** Evidence of a recorder: log entries and signatures at the start, end and removal of sessions. */
import { hash } from 'node:crypto';
import { createDurableMarks } from './durable-marks.ts';
import { createLostSessions } from './lost-sessions.ts';
import type { HoldChange, LoggedHold } from './holds.ts';
import type { LineSeal, Seal } from './line-seal.ts';
import { EvidenceLog, type EvidenceLogOptions } from './evidence-log.ts';
import type { LogEvent, LogHead } from './log-entry.ts';
import { signSidecar, type SidecarEvidence } from './signed-sidecar.ts';

/** Data for the start entry of a session. */
export interface SessionStart {
  readonly recording: string;
  /** Stored header line with its line feed. */
  readonly header: Uint8Array;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly address: string;
  /** Number of body bytes in the spool. */
  readonly durable: number;
  /** Origin of the session, if this recorder took the session over. */
  readonly adopted?: Adoption;
}

/** A session of another recorder, taken over from a shared bucket. */
export interface Adoption {
  /** Evidence log of the other recorder, and number of the start entry there. */
  readonly log: string;
  readonly start: number;
  /** Id of the key that signed the copies in the bucket. */
  readonly key: string;
  /** Number of durable body bytes according to that evidence log. */
  readonly durable: number;
}

/** Seals of the files of a recording. */
export interface SealedFiles {
  readonly cast: LineSeal;
  /** Seal of the notes; undefined if there are no notes. */
  readonly notes: LineSeal | undefined;
}

/** A recording to remove, and the reason. */
export interface Removal {
  readonly recording: string;
  readonly reason: string;
  readonly bytes: number;
}

/** The evidence log and the signatures of one recorder. */
export type SessionEvidence = Awaited<ReturnType<typeof openSessionEvidence>>;

/** Maximum time that the first acknowledgement of a session waits for a slow store, in milliseconds. */
const ANNOUNCE_LIMIT_MS = 2000;

export interface SessionEvidenceOptions extends Omit<EvidenceLogOptions, 'tailMs'> {
  /**
   * Intervals between entries with durable bytes, in milliseconds: for sessions with new bytes (`markMs`), and for all
   * open sessions (`markAllMs`).
   */
  readonly markMs: number;
  readonly markAllMs: number;
}

/** Opens the evidence of one recorder. */
export async function openSessionEvidence(options: SessionEvidenceOptions) {
  const log = await EvidenceLog.open({ ...options, tailMs: options.markMs });
  const marks = createDurableMarks(log, options);
  const losses = createLostSessions(log, marks, options.log);

  const start = (session: SessionStart): number => log.append(startEvent(session));

  async function publish(): Promise<void> {
    await log.sync();
    await log.publish();
  }

  return {
    /** Name of the evidence log, and its signing key. */
    log: log.id,
    key: options.key,
    /** Last log entry that is in the store; undefined while the store has no log entry. */
    published: (): LogHead | undefined => log.published,
    /** Number of log entries that are not in the store. */
    get unpublished(): number {
      return log.unpublished;
    },
    /**
     * Called when the first bytes of a session are in the spool. Resolves when the start entry is durable and, if
     * possible, in the store. Until then, the recorder must not acknowledge bytes of the session.
     */
    async started(session: SessionStart): Promise<void> {
      start(session);
      marks.alive(session.recording);
      await log.sync();
      await log.announce(ANNOUNCE_LIMIT_MS);
    },
    /** Returns the number of the start entry of an open session and the SHA-256 of its header line, or undefined. */
    startOf(recording: string): { readonly n: number; readonly header: string } | undefined {
      const { n, header } = log.open.get(recording) ?? {};
      return n === undefined || header === undefined ? undefined : { n, header };
    },
    /**
     * Called when more bytes are in the spool.
     * @returns a promise that must resolve before the acknowledgement, or undefined
     */
    grew: (recording: string, durable: number): Promise<void> | undefined => marks.grew(recording, durable),
    ...losses,
    /**
     * Called when the spool has a session that this recorder took over.
     * @returns a sentence about missing bytes; undefined if all durable bytes are in the spool
     */
    adopted(session: SessionStart): string | undefined {
      const { recording, durable, adopted } = session;
      if (log.open.get(recording) === undefined) start(session);
      if (adopted === undefined || durable >= adopted.durable) return undefined;
      return losses.short(recording, adopted.durable, durable);
    },
    /** Adds evidence and a signature to a sidecar. Adds the start entry to the evidence log if it is missing. */
    async sign(session: SessionStart, { cast, notes }: SealedFiles, sidecar: string): Promise<string> {
      const n = log.open.get(session.recording)?.n ?? start(session);
      await log.sync();
      const files = { cast, ...(notes === undefined ? {} : { notes }) };
      const evidence = { format: 1, log: log.id, start: n, ...originOf(session), ...files } as const;
      return signSidecar(sidecar, evidence, options.key);
    },
    /**
     * Called when the recording is in the store under `storedAs`. Resolves when the end entry is durable.
     * @param session session mark, equal for all parts of the session
     */
    async ended(
      recording: string,
      storedAs: string,
      session: string,
      { cast, notes }: SealedFiles,
    ): Promise<void> {
      const n = log.open.get(recording)?.n;
      marks.forget(recording);
      if (n === undefined) return;
      const files = { cast: sealOf(cast), ...(notes === undefined ? {} : { notes: sealOf(notes) }) };
      log.append({ kind: 'end', start: n, recording: storedAs, session, ...files });
      await log.sync();
    },
    /** Last legal hold, or release from a hold, of each recording, from the evidence log of this recorder. */
    get holds(): ReadonlyMap<string, LoggedHold> {
      return log.holds;
    },
    /** Adds holds and releases to the evidence log. Resolves when the entries are in the store. */
    async holding(changes: readonly HoldChange[]): Promise<void> {
      for (const { kind, recording, at, reason } of changes) log.append({ kind, recording, at, reason });
      await publish();
    },
    /**
     * Adds removals of recordings to the evidence log before the recordings are removed. Resolves when the entries are
     * in the store.
     */
    async removing(removals: readonly Removal[]): Promise<void> {
      for (const removal of removals) log.append({ kind: 'removed', ...removal });
      await publish();
    },
    /** Adds a document to the evidence log before the document is stored. Resolves when the entry is durable. */
    async documented(name: string, content: Uint8Array): Promise<void> {
      log.append({ kind: 'document', name, bytes: content.length, sha256: hash('sha256', content) });
      await log.sync();
    },
    /**
     * Adds removals of documents to the evidence log before the documents are removed. Resolves when the entries are in
     * the store.
     */
    async removingDocuments(names: readonly string[], reason: string): Promise<void> {
      for (const name of names) log.append({ kind: 'documentRemoved', name, reason });
      await publish();
    },
    /** Newest known entry of another evidence log, if a trusted key signed it. */
    witnessed: (id: string): LogHead | undefined => log.witnessed(id),
    /** Publishes the evidence log to the store. */
    publish,
    close: (): Promise<void> => marks.close().then(() => log.close()),
  };
}

function startEvent({ header, adopted, ...about }: SessionStart): LogEvent {
  const from = adopted === undefined ? {} : { adopted: { log: adopted.log, start: adopted.start } };
  return { kind: 'start', ...about, header: hash('sha256', header), ...from };
}

function originOf({ adopted }: SessionStart): Pick<SidecarEvidence, 'adopted'> {
  if (adopted === undefined) return {};
  const { log, start, key } = adopted;
  return { adopted: { log, start, key } };
}

function sealOf({ bytes, blockBytes, chain }: LineSeal): Seal {
  return { bytes, blockBytes, chain };
}
