/** An alert: a rule matched a session, or a step of an access request. */
import { hash } from 'node:crypto';
import { z } from 'zod';
import { printQuery, type Query } from '../../../search/query.ts';
import type { RulePattern } from '../../../search/patterns.ts';
import { ACCESS_NOTICE } from './access-notice.ts';

/** Schema of an alert in the journal. */
export const ALERT = z.object({
  /** Id of the alert. The id is equal on every recorder that finds the match. */
  id: z.string(),
  rule: z.string(),
  /** Query and pattern at the time of the match; empty for a step of an access request. */
  query: z.string(),
  webhook: z.string(),
  /** Id of the recording, or the `session` field of a notice. */
  session: z.string(),
  /** Time of the match or step, in milliseconds since the epoch. */
  firedAtMs: z.number(),
  /** Position of the match in the recording, in seconds. Undefined for matches without a position. */
  at: z.number().exactOptional(),
  /** Access marks of the recording at the time of the match, see `scope.ts`. */
  marks: z.array(z.string()).readonly(),
  /** Matched text; only present for webhooks whose messages contain text. */
  hit: z
    .object({
      text: z.string(),
      marks: z.array(z.tuple([z.number(), z.number()]).readonly()).readonly(),
      isCommand: z.boolean(),
    })
    .exactOptional(),
  /** The step of an access request. */
  access: ACCESS_NOTICE.exactOptional(),
});
/** An alert in the journal. Plain data. */
export type Alert = z.infer<typeof ALERT>;

/**
 * Returns the id of a rule. A rule with a different query or pattern has a different id. The query is undefined for
 * rules about access requests.
 */
export function ruleIdOf({ name, query, pattern }: RuleTerms & { readonly name: string }): string {
  const text = query === undefined ? 'access\0' : printTerms({ query, pattern });
  return hash('sha256', `${name}\0${text}`).slice(0, 16);
}

/** Query and pattern of a rule. */
export interface RuleTerms {
  readonly query: Query | undefined;
  readonly pattern?: RulePattern | undefined;
}

/** Returns query and pattern as text for messages. */
export function printTerms({ query, pattern }: RuleTerms): string {
  const printed = query === undefined ? '' : printQuery(query);
  return pattern === undefined ? printed : `${printed} ${pattern.in}=/${pattern.source}/`.trimStart();
}

/** Returns the id of an alert. @param key id of the session, or key of the notice */
export function alertIdOf(ruleId: string, key: string): string {
  return `alert_${hash('sha256', `${ruleId}\0${key}`).slice(0, 32)}`;
}
