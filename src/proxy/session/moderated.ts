/**
 * Prepares a session that cannot start immediately, because it needs a reason from the user, a moderator, or both. The
 * client gets its 101 response immediately. The API server gets the request when the session starts.
 */
import { addAbortSignal } from 'node:stream';
import { readBounded } from '../../async/read-bounded.ts';
import { errorText, TailcastError } from '../../errors.ts';
import { SUBPROTOCOL_HEADER, type StreamProtocol } from '../../recording/stream-plan.ts';
import { safeLine } from '../../safe-text.ts';
import type { ModerationRule } from '../../tailnet/access-rules.ts';
import { callerName, type Identity } from '../../tailnet/identity.ts';
import { jsonField, parseJsonObject } from '../../wire/json-value.ts';
import { parseSubprotocol } from '../../wire/remotecommand/channel.ts';
import { bearerSubprotocols, headerLines, withoutHeader } from '../../kube/headers.ts';
import type { Admission } from '../gate/gate.ts';
import type { UpgradeAnswer, UpgradeDial } from './dial.ts';
import { earlyHandshake, type EarlyHandshake } from './exec-upstream.ts';
import { MAX_WAIT_MS, Moderation, moderatorText } from './moderation.ts';
import type { RecordingSession } from '../../recording/session.ts';
import { WaitingRoom } from './waiting-room.ts';

type Switched = Extract<UpgradeAnswer, { kind: 'switched' }>;

export interface HeldDial {
  readonly admission: Pick<Admission, 'exec' | 'identity' | 'recording'>;
  /** Moderation rules of the session; empty if it needs no moderator. */
  readonly rules: readonly ModerationRule[];
  /** True if the user of a terminal must type a reason first. */
  readonly asksReason: boolean;
  readonly protocol: StreamProtocol;
  /** Request of the client, not translated to SPDY. */
  readonly dial: UpgradeDial;
  /** True if the API server gets SPDY, which proves the end of the output. */
  readonly isTranslated: boolean;
  /** Sends the request to the API server. @param over aborts when the session has ended */
  readonly ask: (dial: UpgradeDial, over: AbortSignal) => Promise<UpgradeAnswer>;
}

/**
 * Starts the wait. The session starts when the user has typed a reason (if required) and each rule has a
 * moderator who watches.
 * @param end called to end the session; the error contains the text for the user
 * @returns undefined if the session needs only a reason and no moderator
 */
export type StartModeration = (
  session: Pick<RecordingSession, 'order'>,
  end: (error: TailcastError) => void,
) => Moderation | undefined;

/** Delays a session, see {@link holdSession}. */
export type HoldSession = typeof holdSession;

/**
 * Returns the 101 response for the client, and the function that starts the wait.
 * @throws TailcastError `UPGRADE_REFUSED` if the client offers no protocol that the gateway can speak itself
 */
export function holdSession(held: HeldDial): {
  readonly answer: Switched;
  readonly moderate: StartModeration;
} {
  const { admission, rules, protocol, dial, isTranslated } = held;
  const { exec, identity } = admission;
  const handshake = protocol === 'spdy' ? spdyHandshake(dial) : earlyHandshake(dial.headers);
  if (handshake === undefined)
    throw new TailcastError('UPGRADE_REFUSED', 'a session that waits needs a newer version of the protocol');
  const { name, version, rawHeaders } = handshake;
  const left = Promise.withResolvers<never>();
  const reason = Promise.withResolvers<string>();
  const room = new WaitingRoom({
    protocol,
    version,
    exec,
    text: rules.length === 0 ? undefined : waitText(rules, identity),
    question: held.asksReason ? { text: REASON_QUESTION, answered: reason.resolve } : undefined,
    left: () => left.reject(new TailcastError('SESSION_ENDED', 'you cancelled it')),
  });
  const header = SUBPROTOCOL_HEADER[protocol];
  // In `noauth` mode, a browser sends its token as a subprotocol, which the API server must still get.
  const credentials = headerLines(dial.headers, header).flatMap(bearerSubprotocols);
  const only: UpgradeDial = {
    ...dial,
    headers: [...withoutHeader(dial.headers, header), header, [...credentials, name].join(', ')],
    subprotocol: { header, offered: [name] },
  };
  const over = new AbortController();
  room.once('close', () => over.abort(new TailcastError('SESSION_ENDED', 'before the API server responded')));
  const start = async (): Promise<void> => {
    await room.ready;
    const answer = await held.ask(only, over.signal);
    if (answer.kind === 'refused') {
      addAbortSignal(
        AbortSignal.any([over.signal, AbortSignal.timeout(dial.responseTimeoutMs)]),
        answer.body,
      );
      throw new TailcastError('SESSION_REFUSED', await reasonOf(answer));
    }
    if (answer.subprotocol !== name) {
      answer.socket.destroy();
      throw new TailcastError('UPSTREAM_BROKEN', `it did not choose ${name}`);
    }
    room.enter(answer.socket, answer.head);
  };
  return {
    answer: {
      kind: 'switched',
      socket: room,
      head: Buffer.alloc(0),
      statusMessage: 'Switching Protocols',
      rawHeaders,
      subprotocol: name,
      provesEnd: isTranslated,
    },
    moderate(session, end) {
      const fail = (error: unknown): void =>
        end(
          error instanceof TailcastError ? error : new TailcastError('INTERNAL', undefined, { cause: error }),
        );
      left.promise.catch(fail);
      const by = callerName(identity);
      void reason.promise.then((text) => session.order({ id: 'reason', action: 'reason', by, reason: text }));
      const begin = (): void => void start().catch(fail);
      if (rules.length > 0) return new Moderation({ rules, owner: identity, session, end, start: begin });
      begin();
      const noReason = (): void => fail(new TailcastError('SESSION_ENDED', 'you gave no reason'));
      const late = setTimeout(noReason, MAX_WAIT_MS);
      const stop = (): void => clearTimeout(late);
      void room.ready.then(stop);
      room.once('close', stop);
      return undefined;
    },
  };
}

const REASON_QUESTION = 'Reason for this session: ';
function waitText(rules: readonly ModerationRule[], owner: Identity): string {
  return safeLine(
    `tailcast: this session starts when ${moderatorText(rules, owner)} watches it ` +
      `(kubectl tailcast sessions --user ${callerName(owner)}); Ctrl-C cancels.`,
  );
}

/**
 * Chooses the channel-protocol version as the API server does: the first offered version that it supports. Version 5
 * does not exist over SPDY.
 */
function spdyHandshake({ subprotocol }: UpgradeDial): EarlyHandshake | undefined {
  for (const name of subprotocol?.offered ?? []) {
    const version = parseSubprotocol(name)?.version;
    if (version !== undefined && version < 5)
      return { name, version, rawHeaders: ['X-Stream-Protocol-Version', name] };
  }
  return undefined;
}

const MAX_REASON_BYTES = 16 * 1024;

/** Returns the error message in a refusal of the API server. */
async function reasonOf({ status, body }: Extract<UpgradeAnswer, { kind: 'refused' }>): Promise<string> {
  try {
    const text = await readBounded(body, MAX_REASON_BYTES, () => new Error('its reason is too long'));
    const message = jsonField(parseJsonObject(text.toString()), 'message');
    return typeof message === 'string' ? safeLine(message) : `status ${status}`;
  } catch (error) {
    return `status ${status} (${errorText(error)})`;
  }
}
