/** State, result and trust of a recording as badges, with the same words and colours in every view. */
import {
  Ban,
  CircleCheck,
  CircleX,
  Radio,
  ShieldAlert,
  ShieldCheck,
  ShieldQuestionMark,
  Unplug,
} from 'lucide';
import type { JSX } from 'preact';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { exitCodeOf, resultKind } from '../wire/recorder-api/recording-status.ts';
import { Icon, type IconShape } from './icon.tsx';

const STATE_ICONS: Readonly<Record<string, IconShape>> = {
  running: Radio,
  interrupted: Unplug,
  violated: Ban,
  damaged: CircleX,
};
const RESULT_ICONS: Readonly<Record<string, IconShape>> = {
  'exit 0': CircleCheck,
  'client disconnected': Unplug,
};
const TRUST = {
  verified: { icon: ShieldCheck, text: 'verified' },
  unverified: { icon: ShieldQuestionMark, text: 'unverified' },
  failed: { icon: ShieldAlert, text: 'trust failed' },
} as const;

/** @param isDetailed true if verified recordings also get a badge */
export function StatusBadges({
  recording,
  isDetailed = false,
}: {
  readonly recording: ListedRecording;
  readonly isDetailed?: boolean;
}): JSX.Element {
  const { state, problem, result, resultMessage, trust, trustReason } = recording;
  const kind = resultKind(result);
  return (
    <span class="badges">
      {state === 'completed' && result !== undefined ? null : (
        <span class={`badge state-${state}`} title={problem}>
          <Icon icon={STATE_ICONS[state] ?? CircleCheck} size={13} />
          {state}
        </span>
      )}
      {result === undefined ? null : (
        <span class={`badge result-${kind.replaceAll(' ', '-')}`} title={resultMessage ?? problem}>
          <Icon icon={RESULT_ICONS[kind] ?? CircleX} size={13} />
          {exitCodeOf(result) === undefined ? result : `exit ${result}`}
        </span>
      )}
      {trust === undefined || (trust === 'verified' && !isDetailed) ? null : (
        <span class={`badge trust-${trust}`} title={trustReason}>
          <Icon icon={TRUST[trust].icon} size={13} />
          {TRUST[trust].text}
        </span>
      )}
    </span>
  );
}
