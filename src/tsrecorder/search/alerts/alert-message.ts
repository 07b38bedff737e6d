/** What a webhook is told. Pure. */
import { recordingLink } from '../../../search/recording-link.ts';
import { replaceSecrets } from '../../../secrets.ts';
import type { Recording } from '../../../wire/recorder-api/recording.ts';
import type { Alert } from './alert.ts';
import type { WebhookMessage } from './webhook-request.ts';

export interface AlertWebhookView {
  /** Rows of the screen and commands are told. */
  readonly text: boolean;
  /** Where people look at recordings. */
  readonly player?: string;
}

/**
 * @param recording as it is now; undefined when it is gone: then nothing is told of it but its id
 */
export function alertMessage(
  { id, rule, query, session, firedAtMs, at, hit }: Alert,
  recording: Recording | undefined,
  { text, player }: AlertWebhookView,
): WebhookMessage {
  const body = {
    type: 'tailcast.alert',
    timestamp: new Date(firedAtMs).toISOString(),
    data: {
      id,
      rule,
      query,
      recording: recording === undefined ? { id: session, isRemoved: true } : describe(recording, text),
      ...(at === undefined ? {} : { at }),
      ...(recording === undefined || hit === undefined || !text ? {} : { hit }),
      ...(player === undefined ? {} : { link: recordingLink(player, session, at) }),
    },
  };
  return { id, body: JSON.stringify(body) };
}

/** The same for a rule of which nothing is true: to see whether a webhook takes it. */
export function testMessage(id: string, rules: readonly string[], nowMs: number): WebhookMessage {
  const body = {
    type: 'tailcast.alert.test',
    timestamp: new Date(nowMs).toISOString(),
    data: { id, rules },
  };
  return { id, body: JSON.stringify(body) };
}

function describe(
  { id, state, result, trust, startedAt, kind, source, kubernetes, durationSeconds, command }: Recording,
  text: boolean,
): Record<string, unknown> {
  return {
    id,
    state,
    ...(result === undefined ? {} : { result }),
    ...(trust === undefined ? {} : { trust }),
    startedAt,
    kind,
    source,
    ...(kubernetes === undefined ? {} : { kubernetes }),
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    ...(command === undefined || !text ? {} : { command: replaceSecrets(command) }),
  };
}
