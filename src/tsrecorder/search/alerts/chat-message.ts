/** Messages of chat services: Slack, Microsoft Teams, Mattermost. Pure functions. */
import { safeLine } from '../../../safe-text.ts';

/** Formats of messages. `json` is signed JSON for programs. */
export const WEBHOOK_FORMATS = ['json', 'slack', 'teams', 'mattermost'] as const;
export type WebhookFormat = (typeof WEBHOOK_FORMATS)[number];
export type ChatFormat = Exclude<WebhookFormat, 'json'>;

/** A message for readers of a chat. */
export interface ChatText {
  /** Trusted text. */
  readonly title: string;
  /** Names and values. The values are untrusted. Facts with an empty value are left out. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  readonly link: string | undefined;
}

const MAX_VALUE = 600;
const LINK_TEXT = 'Open the page';

/** Returns the body of a message. */
export function chatBody(format: ChatFormat, { title, facts, link }: ChatText): object {
  const shown = facts
    .filter(([, value]) => value !== '')
    .map(([name, value]) => [name, safeLine(value.slice(0, MAX_VALUE))] as const);
  switch (format) {
    case 'slack': {
      const lines = shown.map(([name, value]) => `${name}: ${slackText(code(value))}`);
      const links = link === undefined ? [] : [`<${slackText(link).replaceAll('|', '%7C')}|${LINK_TEXT}>`];
      return { text: [`*${title}*`, ...lines, ...links].join('\n') };
    }
    case 'mattermost': {
      const lines = shown.map(([name, value]) => `- ${name}: ${code(value)}`);
      const target = link?.replaceAll('(', '%28').replaceAll(')', '%29');
      const links = target === undefined ? [] : ['', `[${LINK_TEXT}](${target})`];
      return { text: [`**${title}**`, '', ...lines, ...links].join('\n') };
    }
    case 'teams':
      return teamsBody(title, shown, link);
  }
}

/** Returns a code span. In a code span, Slack and Mattermost ignore mentions, links and markup. */
function code(value: string): string {
  return `\`${value.replaceAll('`', "'")}\``;
}

/** Escapes a text, because Slack parses `<…>` even in code spans. */
function slackText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** Returns an Adaptive Card. The card uses text runs, because text blocks may contain markup. */
function teamsBody(
  title: string,
  facts: readonly (readonly [string, string])[],
  link: string | undefined,
): object {
  const run = (text: string, isBold = false): object => ({
    type: 'TextRun',
    text,
    ...(isBold ? { weight: 'Bolder' } : {}),
  });
  const block = (...inlines: readonly object[]): object => ({ type: 'RichTextBlock', inlines });
  return {
    type: 'message',
    attachments: [
      {
        contentType: 'application/vnd.microsoft.card.adaptive',
        content: {
          $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
          type: 'AdaptiveCard',
          version: '1.4',
          body: [
            block(run(title, true)),
            ...facts.map(([name, value]) => block(run(`${name}: `, true), run(value))),
          ],
          ...(link === undefined
            ? {}
            : { actions: [{ type: 'Action.OpenUrl', title: LINK_TEXT, url: link }] }),
        },
      },
    ],
  };
}
