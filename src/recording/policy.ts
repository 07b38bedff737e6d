/** Derives the recording policy of a caller from its grants. "Fail open" is decided only here. Pure. */

/** The fields about recording in a rule of a Kubernetes grant (see `tailnet/capabilities.ts`). */
export interface RecordingRule {
  /** Tags of recorder nodes, as the administrator wrote them. */
  readonly recorderTags: readonly string[];
  /** Addresses (`ip:port`) of recorders, which the control server filled in. */
  readonly recorderAddresses: readonly string[];
  readonly enforceRecorder: boolean;
  readonly enableEvents: boolean;
}

export type RecordingPolicy =
  | { readonly mode: 'off' }
  | {
      /** `failClosed`: unrecorded sessions are refused. `failOpen`: they run with a warning. */
      readonly mode: 'failOpen' | 'failClosed';
      /** Addresses (`ip:port`) in the order of the rules, without duplicates. */
      readonly recorders: readonly string[];
      /** Tags of rules without addresses. These tags must be resolved to recorders. */
      readonly recorderTags: readonly string[];
      /** Tags by address, if its rules also contain tags. The node of the address must have one of these tags. */
      readonly tagsOf?: Readonly<Record<string, readonly string[]>>;
      /** True if each request causes an event. */
      readonly events: boolean;
    };

/**
 * Combines all rules: the addresses of all rules count, one `enforceRecorder` enforces recording, and one
 * `enableEvents` enables events. If a rule enforces recording and no rule names a recorder, the caller cannot open a
 * session.
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

/** Returns the required tags of each address. An address in a rule without tags requires none. */
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
