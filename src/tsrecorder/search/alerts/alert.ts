/** An alert: a rule matched a session. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { printQuery, type Query } from '../../../search/query.ts';
import type { Hit } from '../../../search/search-index.ts';

/** An alert in the journal. Plain data. */
export interface Alert {
  /** Equal for every process and every recorder that finds the match. */
  readonly id: string;
  readonly rule: string;
  /** Query at the time of the match. */
  readonly query: string;
  readonly webhook: string;
  /** Id of the recording. */
  readonly session: string;
  /** Milliseconds since the epoch. */
  readonly firedAtMs: number;
  /** Position of the match in seconds, if it has one. */
  readonly at?: number;
  /** Access marks of the recording at the time of the match, see `scope.ts`. */
  readonly marks: readonly string[];
  /** Matched text; only for webhooks with text. */
  readonly hit?: Omit<Hit, 'at'>;
}

/** Schema of an alert in the journal. */
export const ALERT = z.object({
  id: z.string(),
  rule: z.string(),
  query: z.string(),
  webhook: z.string(),
  session: z.string(),
  firedAtMs: z.number(),
  at: z.number().exactOptional(),
  marks: z.array(z.string()).readonly(),
  hit: z
    .object({
      text: z.string(),
      marks: z.array(z.tuple([z.number(), z.number()]).readonly()).readonly(),
      isCommand: z.boolean(),
    })
    .exactOptional(),
}) satisfies z.ZodType<Alert>;

/** Returns the id of a rule. Another query gives another id. */
export function ruleIdOf(name: string, query: Query): string {
  return digest(`${name}\0${printQuery(query)}`).slice(0, 16);
}

/** Returns the id of the alert for a rule and a session. */
export function alertIdOf(ruleId: string, session: string): string {
  return `alert_${digest(`${ruleId}\0${session}`).slice(0, 32)}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
