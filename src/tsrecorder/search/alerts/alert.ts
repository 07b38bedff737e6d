/** An alert: a rule was true of a session. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { printQuery, type Query } from '../../../search/query.ts';
import type { Hit } from '../../../search/search-index.ts';

/** As it is kept until somebody has taken it. Plain data. */
export interface Alert {
  /** The same whichever process, and whichever recorder, finds it. */
  readonly id: string;
  readonly rule: string;
  /** As it was when the rule was true. */
  readonly query: string;
  readonly webhook: string;
  /** Id of the recording. */
  readonly session: string;
  /** Milliseconds since the epoch. */
  readonly firedAtMs: number;
  /** Second of the session, where there is one. */
  readonly at?: number;
  /** Only for webhooks that are given text. */
  readonly hit?: Omit<Hit, 'at'>;
}

export const ALERT = z.object({
  id: z.string(),
  rule: z.string(),
  query: z.string(),
  webhook: z.string(),
  session: z.string(),
  firedAtMs: z.number(),
  at: z.number().exactOptional(),
  hit: z
    .object({
      text: z.string(),
      marks: z.array(z.tuple([z.number(), z.number()]).readonly()).readonly(),
      isCommand: z.boolean(),
    })
    .exactOptional(),
}) satisfies z.ZodType<Alert>;

/** Of a rule with this query: with another one it is another rule. */
export function ruleIdOf(name: string, query: Query): string {
  return digest(`${name}\0${printQuery(query)}`).slice(0, 16);
}

/** Of a rule that is true of a session. */
export function alertIdOf(ruleId: string, session: string): string {
  return `alert_${digest(`${ruleId}\0${session}`).slice(0, 32)}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
