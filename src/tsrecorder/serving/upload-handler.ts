/** Uploads with acknowledgements (`/v2/record`), independent of their transport. */
import type { TailcastError } from '../../errors.ts';
import { encodeAck, type Ack } from '../../wire/recorder-api/ack.ts';
import {
  encodeDurableOffset,
  FROM_START,
  type UploadFields,
} from '../../wire/recorder-api/upload-headers.ts';
import type { SessionOrder } from '../../wire/recorder-api/session-order.ts';
import type { Ingest } from '../intake/ingest.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import type { UploadOrigin } from '../intake/upload-session.ts';

/** The connection of one upload. */
export interface UploadTransport {
  /** True if an acknowledgement can be sent. */
  readonly open: boolean;
  /** Sends a success response with these headers. Only the first call has an effect. */
  accept(fields: Readonly<Record<string, string>>): void;
  /** Starts reading the body. */
  receive(events: UploadReceiver): void;
  pause(): void;
  resume(): void;
  /** Sends acknowledgements. @returns false if the next call must wait for `drained` */
  write(acks: string): boolean;
  onDrained(drained: () => void): void;
  /** Ends the response. If `kept` is true, the response ends with the confirmation that the store has the upload. */
  end(acks: string, kept: boolean): void;
}

/** Receives the body of an upload. */
export interface UploadReceiver {
  /** Called with a piece of the body. The piece is valid only during the call. */
  data(piece: Uint8Array): void;
  /** Called when the body is complete. */
  end(): void;
  /** Called when the body is malformed. No further pieces follow. */
  broken(error: TailcastError): void;
  /** Called when the connection closed. */
  closed(): void;
}

export interface RecordUploadDeps {
  readonly ingest: Pick<Ingest, 'begin'>;
  readonly metrics: Pick<RecorderMetrics, 'receivedBytes' | 'uploadsFailed'>;
  /** Maximum time between two acknowledgements, in milliseconds. */
  readonly idleAckMs: number;
}

const LOST = 'the connection was lost';

/**
 * Passes the body to a session, and sends acknowledgements.
 * @param fields headers of the request, if the upload consists of frames. An upload without these headers consists of
 * lines, and cannot be continued after an interruption
 * @throws TailcastError before the upload is accepted
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
    order: fields?.orders === true ? (order) => acks.order(order) : undefined,
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

/**
 * Sends an acknowledgement after each commit and after each idle interval. If the peer does not read, only the newest
 * acknowledgement is kept.
 */
function createAckWriter(transport: UploadTransport, idleMs: number) {
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
    /** Sends the first acknowledgement immediately. */
    start(first: Ack): void {
      started = true;
      latest = first;
      timer = setInterval(write, idleMs);
      write();
    },
    ack(next: Ack): void {
      latest = next;
      write();
    },
    order(order: SessionOrder): void {
      if (started && transport.open) blocked = !transport.write(encodeAck({ ...latest, order })) || blocked;
    },
    finish: (last: Ack): void => end(encodeAck(last), true),
    fail: (error: TailcastError): void => end(encodeAck({ error: error.message }), false),
    stop,
  };
}
