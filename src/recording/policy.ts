/**
 * Derives the recording policy of a caller from the caller's grants. Only this module decides whether unrecorded
 * sessions are allowed. Pure.
 */

/** Fields about recording in a rule of a Kubernetes grant, see `tailnet/capabilities.ts`. */
export interface RecordingRule {
  /** Tags of recorder nodes, as written in the tailnet policy. */
  readonly recorderTags: readonly string[];
  /** Addresses (`ip:port`) of recorders, added by the control server of the tailnet. */
  readonly recorderAddresses: readonly string[];
  readonly enforceRecorder: boolean;
  readonly enableEvents: boolean;
}

export type RecordingPolicy =
  | { readonly mode: 'off' }
  | {
      /**
       * `failClosed`: sessions without a recorder are refused. `failOpen`: sessions without a recorder run unrecorded,
       * with a warning.
       */
      readonly mode: 'failOpen' | 'failClosed';
      /** Addresses (`ip:port`) in the order of the rules, without duplicates. */
      readonly recorders: readonly string[];
      /** Tags of rules without addresses. The gateway must resolve these tags to recorders. */
      readonly recorderTags: readonly string[];
      /**
       * Required tags of each address, from rules with addresses and tags. The node of an address must have one of its
       * tags.
       */
      readonly tagsOf?: Readonly<Record<string, readonly string[]>>;
      /** True if every request of the caller causes an event. */
      readonly events: boolean;
    };

/**
 * Combines all rules of a caller. All addresses are used. One rule with `enforceRecorder` is sufficient to enforce
 * recording. One rule with `enableEvents` is sufficient to enable events. If recording is enforced and no rule names a
 * recorder, the caller cannot open a session.
 */
export function decideRecording(rules: readonly RecordingRule[]): RecordingPolicy {
  const recorders = unique(rules.flatMap((rule) => rule.recorderAddresses));
  const recorderTags = unique(
    rules.flatMap((rule) => (rule.recorderAddresses.length === 0 ? rule.recorderTags : [])),
  );
  const enforce = rules.some((rule) => rule.enforceRecorder);
  if (!enforce && recorders.length === 0 && recorderTags.length === 0) return { mode: 'off' };
  const tagsOf = tagsOfRecorders(rules);
  return {
    mode: enforce ? 'failClosed' : 'failOpen',
    recorders,
    recorderTags,
    ...(Object.keys(tagsOf).length === 0 ? {} : { tagsOf }),
    events: rules.some((rule) => rule.enableEvents),
  };
}

/**
 * Returns the required tags of each address. An address that is also in a rule without tags requires no tag.
 */
function tagsOfRecorders(rules: readonly RecordingRule[]): Readonly<Record<string, readonly string[]>> {
  const tagless = new Set(
    rules.flatMap(({ recorderTags, recorderAddresses }) =>
      recorderTags.length === 0 ? recorderAddresses : [],
    ),
  );
  const pairs = rules.flatMap(({ recorderTags, recorderAddresses }) =>
    recorderAddresses.map((address) => ({ address, recorderTags })),
  );
  return Object.fromEntries(
    unique(pairs.map(({ address }) => address))
      .filter((address) => !tagless.has(address))
      .map((address) => [
        address,
        unique(pairs.flatMap((pair) => (pair.address === address ? pair.recorderTags : []))),
      ]),
  );
}

function unique(values: readonly string[]): readonly string[] {
  return [...new Set(values)];
}
