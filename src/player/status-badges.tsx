/** State, result and trust of a recording as badges, with the same words and colours in every view. */
import type { JSX } from 'preact';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { exitCodeOf, resultKind } from '../wire/recorder-api/recording-status.ts';

export function StatusBadges({ recording }: { readonly recording: ListedRecording }): JSX.Element {
  const { state, problem, result, resultMessage, trust, trustReason } = recording;
  return (
    <>
      {state === 'completed' && result !== undefined ? null : (
        <span class={`badge state-${state}`} title={problem}>
          {state}
        </span>
      )}
      {result === undefined ? null : (
        <span
          class={`badge result-${resultKind(result).replaceAll(' ', '-')}`}
          title={resultMessage ?? problem}
        >
          {exitCodeOf(result) === undefined ? result : `exit ${result}`}
        </span>
      )}
      {trust === undefined || trust === 'verified' ? null : (
        <span class={`badge trust-${trust}`} title={trustReason}>
          {trust === 'failed' ? 'trust failed' : trust}
        </span>
      )}
    </>
  );
}
