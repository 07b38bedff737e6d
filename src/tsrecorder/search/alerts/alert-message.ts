/** Messages to webhooks. Pure functions. */
import { recordingLink } from '../../../search/recording-link.ts';
import { replaceSecrets } from '../../../secrets.ts';
import type { Recording } from '../../../wire/recorder-api/recording.ts';
import type { Alert } from './alert.ts';
import type { WebhookMessage } from './webhook-request.ts';

/** Content that a webhook gets. */
export interface AlertWebhookView {
  /** True if messages contain rows of the screen and commands. */
  readonly text: boolean;
  /** Address of the page with recordings. */
  readonly player?: string;
}

/**
 * Returns the message of an alert.
 *
 * @param recording current description; `changed` if it was changed, so that its viewer may no longer see it; undefined
 *   if removed. Without a description, the message contains only its id
 */
export function alertMessage(
  { id, rule, query, session, firedAtMs, at, hit }: Alert,
  recording: Recording | 'changed' | undefined,
  { text, player }: AlertWebhookView,
): WebhookMessage {
  const body = {
    type: 'tailcast.alert',
    timestamp: new Date(firedAtMs).toISOString(),
    data: {
      id,
      rule,
      query,
      recording: typeof recording === 'object' ? describe(recording, text) : withoutFacts(session, recording),
      ...(at === undefined ? {} : { at }),
      ...(recording === undefined || hit === undefined || !text ? {} : { hit }),
      ...(player === undefined ? {} : { link: recordingLink(player, session, at) }),
    },
  };
  return { id, body: JSON.stringify(body) };
}

function withoutFacts(id: string, reason: 'changed' | undefined): Record<string, unknown> {
  return { id, ...(reason === 'changed' ? { isChanged: true } : { isRemoved: true }) };
}

/** Returns a test message that does not depend on any session. */
export function testMessage(id: string, rules: readonly string[], nowMs: number): WebhookMessage {
  const body = {
    type: 'tailcast.alert.test',
    timestamp: new Date(nowMs).toISOString(),
    data: { id, rules },
  };
  return { id, body: JSON.stringify(body) };
}

function describe(
  {
    id,
    state,
    result,
    trust,
    startedAt,
    kind,
    source,
    cluster,
    kubernetes,
    durationSeconds,
    command,
  }: Recording,
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
    ...(cluster === undefined ? {} : { cluster }),
    ...(kubernetes === undefined ? {} : { kubernetes }),
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    ...(command === undefined || !text ? {} : { command: replaceSecrets(command) }),
  };
}
