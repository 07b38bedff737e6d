/** An alert: a rule matched a session, or a step of an access request. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { printQuery, type Query } from '../../../search/query.ts';
import type { Hit } from '../../../search/search-index.ts';
import { ACCESS_NOTICE, type AccessNotice } from './access-notice.ts';

/** An alert in the journal. Plain data. */
export interface Alert {
  /** Equal for every process and every recorder that finds the match. */
  readonly id: string;
  readonly rule: string;
  /** Query at the time of the match; empty for a step of an access request. */
  readonly query: string;
  readonly webhook: string;
  /** Id of the recording, or `session` of a notice. */
  readonly session: string;
  /** Milliseconds since the epoch. */
  readonly firedAtMs: number;
  /** Position of the match in seconds, if it has one. */
  readonly at?: number;
  /** Access marks of the recording at the time of the match, see `scope.ts`. */
  readonly marks: readonly string[];
  /** Matched text; only for webhooks with text. */
  readonly hit?: Omit<Hit, 'at'>;
  /** The step of an access request. */
  readonly access?: AccessNotice;
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
  access: ACCESS_NOTICE.exactOptional(),
}) satisfies z.ZodType<Alert>;

/** Returns the id of a rule. Another query gives another id. @param query undefined: access requests */
export function ruleIdOf(name: string, query: Query | undefined): string {
  return digest(query === undefined ? `${name}\0access\0` : `${name}\0${printQuery(query)}`).slice(0, 16);
}

/** Returns the id of an alert. @param key id of the session, or key of the notice */
export function alertIdOf(ruleId: string, key: string): string {
  return `alert_${digest(`${ruleId}\0${key}`).slice(0, 32)}`;
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
