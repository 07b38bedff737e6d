/**
 * What the grants of a caller say about recording. Pure: no clock, no network, no logger.
 *
 * This is the only place where "fail open" is decided; everything after it obeys.
 */

/** The part of a Kubernetes grant rule that speaks of recording (see `tailnet/capabilities.ts`). */
export interface RecordingRule {
  /** Tags of recorder nodes, as the administrator wrote them. */
  readonly recorderTags: readonly string[];
  /** `ip:port` of recorders, as the control server filled them in. */
  readonly recorderAddresses: readonly string[];
  readonly enforceRecorder: boolean;
  readonly enableEvents: boolean;
}

export type RecordingPolicy =
  | { readonly mode: 'off' }
  | {
      /** `failClosed`: what cannot be recorded does not run. `failOpen`: it runs, and says that it is not recorded. */
      readonly mode: 'failOpen' | 'failClosed';
      /** `ip:port` in the order of the rules, without repetitions. */
      readonly recorders: readonly string[];
      /** Tags of rules for which the control server named no address; to be resolved by whoever can. */
      readonly recorderTags: readonly string[];
      /** Of addresses whose rules name tags as well: the tags of which the address's node must carry one. */
      readonly tagsOf?: Readonly<Record<string, readonly string[]>>;
      /** Whether every request is reported to a recorder as an event. */
      readonly events: boolean;
    };

/**
 * Joins all rules: addresses of every rule count, one `enforceRecorder` enforces all, one `enableEvents` enables events.
 * A rule that only enforces therefore makes a caller without any recorder unable to open a session.
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

/** A rule that names an address and no tag asks for nothing more than the address. */
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
