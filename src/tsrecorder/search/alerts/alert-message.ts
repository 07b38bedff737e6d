/** Messages to webhooks. Pure functions. */
import { accessLink, recordingLink } from '../../../search/recording-link.ts';
import { replaceSecrets } from '../../../secrets.ts';
import type { Recording } from '../../../wire/recorder-api/recording.ts';
import type { AccessNotice } from './access-notice.ts';
import type { Alert } from './alert.ts';
import { chatBody, type ChatText, type WebhookFormat } from './chat-message.ts';
import type { WebhookMessage } from './webhook-request.ts';

/** Settings for the content of the messages to a webhook. */
export interface AlertWebhookView {
  readonly format: WebhookFormat;
  /** True if messages contain commands and screen rows. */
  readonly text: boolean;
  /** Address of the page with recordings. */
  readonly player?: string;
}

/**
 * Returns the message of an alert.
 *
 * @param recording current description. The value is `changed` if a change hides the recording from the viewer of the
 * webhook, and undefined if the recording was removed. Without a description, the message contains only the id
 */
export function alertMessage(
  alert: Alert,
  recording: Recording | 'changed' | undefined,
  view: AlertWebhookView,
): WebhookMessage {
  const { id, rule, firedAtMs, access } = alert;
  const { data, chat } =
    access === undefined ? sessionMessage(alert, recording, view) : accessMessage(access, view);
  const body =
    view.format === 'json'
      ? {
          type: access === undefined ? 'tailcast.alert' : 'tailcast.access',
          timestamp: new Date(firedAtMs).toISOString(),
          data: { id, rule, ...data },
        }
      : chatBody(view.format, chat);
  return { id, body: JSON.stringify(body) };
}

/** Content of a message in two forms: `data` for programs, as JSON, and `chat` for chat services. */
interface Content {
  readonly data: Record<string, unknown>;
  readonly chat: ChatText;
}

function sessionMessage(
  { rule, query, session, at, hit: matched }: Alert,
  recording: Recording | 'changed' | undefined,
  { text, player }: AlertWebhookView,
): Content {
  const hit = recording === undefined || !text ? undefined : matched;
  const link = player === undefined ? undefined : recordingLink(player, session, at);
  const described =
    typeof recording === 'object' ? describe(recording, text) : withoutFacts(session, recording);
  return {
    data: {
      query,
      recording: described,
      at,
      hit,
      link,
    },
    chat: {
      title: `Alert ${rule}`,
      facts: [
        ['Query', query],
        ...(typeof recording === 'object' ? factsOf(recording, text) : []),
        ['Match', hit?.text ?? ''],
        ['Recording', session],
      ],
      link,
    },
  };
}

function factsOf(
  { source, kubernetes, state, command }: Recording,
  text: boolean,
): readonly (readonly [string, string])[] {
  return [
    ['User', source.user ?? source.tags?.join(', ') ?? ''],
    ['Node', source.node],
    ['Pod', kubernetes === undefined ? '' : `${kubernetes.namespace}/${kubernetes.pod}`],
    ['State', state],
    ['Command', command === undefined || !text ? '' : replaceSecrets(command)],
  ];
}

const TITLES: Readonly<Record<AccessNotice['step'], string>> = {
  requested: 'Access is requested',
  granted: 'Access is granted',
  approved: 'Access has an approval and needs more',
  denied: 'Access is denied',
  revoked: 'Access is revoked',
  expired: 'Access request has expired',
  approvalFailed: 'An approval has no effect',
  requestFailed: 'Access request has failed',
};

function accessMessage(notice: AccessNotice, { player }: AlertWebhookView): Content {
  const { step, request, requester, groups, user, writes, namespaces, reason, durationSeconds } = notice;
  const link = player === undefined ? undefined : accessLink(player, request);
  const named = [groups.join(', '), user].filter((part) => part !== '').join(' as user ');
  const isOver = step === 'denied' || step === 'revoked' || step === 'expired';
  return {
    data: { ...notice, link },
    chat: {
      title: TITLES[step],
      facts: [
        ['Requester', requester],
        ['Node', notice.node],
        ['Access', writes ? 'writes' : named],
        ['Cluster', notice.cluster ?? ''],
        ['Namespaces', namespaces.join(', ')],
        ['First call', notice.call],
        ['Reason', reason],
        ['Duration', isOver ? '' : `${Math.round(durationSeconds / 60)} min`],
        ['Until', step === 'granted' ? notice.expires : ''],
        ['Approvals needed', notice.approvalsMissing === 0 || isOver ? '' : String(notice.approvalsMissing)],
        ['Approved by', notice.approvers.join(', ')],
        ['By', step === 'denied' || step === 'revoked' || step === 'approvalFailed' ? notice.by : ''],
        ['Comment', notice.comment],
        ['Request', request],
      ],
      link,
    },
  };
}

function withoutFacts(id: string, reason: 'changed' | undefined): Record<string, unknown> {
  return { id, ...(reason === 'changed' ? { isChanged: true } : { isRemoved: true }) };
}

/** Returns a test message that does not depend on any session. */
export function testMessage(
  id: string,
  rules: readonly string[],
  nowMs: number,
  { format, player }: Pick<AlertWebhookView, 'format' | 'player'>,
): WebhookMessage {
  if (format !== 'json') {
    const facts = [['Rules', rules.join(', ')]] as const;
    return { id, body: JSON.stringify(chatBody(format, { title: 'Test of tailcast', facts, link: player })) };
  }
  const body = {
    type: 'tailcast.alert.test',
    timestamp: new Date(nowMs).toISOString(),
    data: { id, rules },
  };
  return { id, body: JSON.stringify(body) };
}

/** Fields of a recording in a message. */
const DESCRIBED = [
  'id',
  'state',
  'result',
  'trust',
  'startedAt',
  'kind',
  'source',
  'cluster',
  'kubernetes',
  'durationSeconds',
] as const;

function describe(recording: Recording, text: boolean): Record<string, unknown> {
  const { command } = recording;
  return {
    ...Object.fromEntries(DESCRIBED.map((name) => [name, recording[name]])),
    command: command === undefined || !text ? undefined : replaceSecrets(command),
  };
}
