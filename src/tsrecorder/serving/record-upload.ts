/** Uploads with acknowledgements (`/v2/record`): from the yes to the last word, whatever they travel over. */
import type { TailcastError } from '../../errors.ts';
import { encodeAck, type Ack } from '../../wire/recorder-api/ack.ts';
import {
  encodeDurableOffset,
  FROM_START,
  type UploadFields,
} from '../../wire/recorder-api/upload-headers.ts';
import type { Ingest } from '../intake/ingest.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import type { UploadOrigin } from '../intake/upload-session.ts';

/** One upload's connection, there and back. */
export interface UploadTransport {
  /** An acknowledgement can still be sent. */
  readonly open: boolean;
  /** Says yes, with these fields. Only the first call counts. */
  accept(fields: Readonly<Record<string, string>>): void;
  /** Reads from now on. */
  receive(events: UploadReceiver): void;
  pause(): void;
  resume(): void;
  /** @returns false: nothing more before `drained` */
  write(acks: string): boolean;
  onDrained(drained: () => void): void;
  /** The last word. `kept`: it is the proper end of an upload that is in the store. */
  end(acks: string, kept: boolean): void;
}

export interface UploadReceiver {
  /** A piece of the body, only valid during the call. */
  data(piece: Uint8Array): void;
  /** The body is whole. */
  end(): void;
  /** What came cannot be read; nothing of it follows. */
  broken(error: TailcastError): void;
  /** The connection is gone. */
  closed(): void;
}

export interface RecordUploadDeps {
  readonly ingest: Pick<Ingest, 'begin'>;
  readonly metrics: Pick<RecorderMetrics, 'receivedBytes' | 'uploadsFailed'>;
  /** Longest silence between two ack frames. */
  readonly idleAckMs: number;
}

const LOST = 'the connection was lost';

/**
 * Brings the body into a session while acks flow back.
 * @param fields of an upload of frames; without them it is lines, and a session that cannot be continued
 * @throws TailcastError before the yes
 */
export async function takeRecording(
  { ingest, metrics, idleAckMs }: RecordUploadDeps,
  uploader: Pick<UploadOrigin, 'nodeId' | 'nodeName' | 'address'>,
  transport: UploadTransport,
  fields?: UploadFields,
): Promise<void> {
  const { session: token, neighbours } = fields ?? {};
  const at = fields?.at ?? FROM_START;
  const waits = fields?.waits === true;
  const acks = createAckWriter(transport, idleAckMs);
  const origin = {
    ...uploader,
    protocol: 'v2',
    token,
    ...(neighbours === undefined ? {} : { neighbours }),
  } as const;
  const failed = (error: TailcastError): void => {
    metrics.uploadsFailed.inc({ code: error.code });
    acks.fail(error);
  };
  const upload = await ingest.begin(origin, at, {
    waits,
    durable: (acknowledged) => acks.ack(acknowledged),
    drain: () => transport.resume(),
    failed,
  });
  if (!transport.open) {
    upload.cut(LOST);
    return;
  }
  transport.accept(token === undefined ? {} : encodeDurableOffset(upload.durableBytes));
  acks.start(upload.acknowledged);
  transport.receive({
    data(piece) {
      metrics.receivedBytes.inc(piece.length);
      if (!upload.push(piece)) transport.pause();
    },
    end() {
      void upload.end().then((kept) => {
        if (kept) acks.finish(upload.acknowledged);
      });
    },
    broken(error) {
      failed(error);
      upload.cut(error.message);
    },
    closed() {
      acks.stop();
      upload.cut(LOST);
    },
  });
}

interface AckWriter {
  /** The first frame, at once. */
  start(first: Ack): void;
  ack(next: Ack): void;
  finish(last: Ack): void;
  fail(error: TailcastError): void;
  stop(): void;
}

/** Never late: a frame for every commit and for every silence. Never a queue: while the peer does not read, one waits. */
function createAckWriter(transport: UploadTransport, idleMs: number): AckWriter {
  let timer: NodeJS.Timeout | undefined;
  let latest: Ack = { ack: 0 };
  let started = false;
  let blocked = false;

  function write(): void {
    if (!started || !transport.open) return;
    timer?.refresh();
    if (blocked) return;
    blocked = !transport.write(encodeAck(latest));
  }

  function end(frame: string, kept: boolean): void {
    stop();
    if (transport.open) transport.end(frame, kept);
  }

  function stop(): void {
    clearInterval(timer);
  }

  transport.onDrained(() => {
    blocked = false;
    write();
  });
  return {
    start(first) {
      started = true;
      latest = first;
      timer = setInterval(write, idleMs);
      write();
    },
    ack(next) {
      latest = next;
      write();
    },
    finish: (last) => end(encodeAck(last), true),
    fail: (error) => end(encodeAck({ error: error.message }), false),
    stop,
  };
}
