/** Warnings about a recording. */
import { TriangleAlert } from 'lucide';
import type { JSX } from 'preact';
import { stoppedText } from '../screen/clock-text.ts';
import { hiddenText } from '../search/transcript-document.ts';
import { Icon } from './icon.tsx';
import type { Played } from './use-playback.ts';

/** Shows warnings about the recording above the screen. */
export function Notices({
  played,
  onHidden,
}: {
  readonly played: Played;
  readonly onHidden: () => void;
}): JSX.Element {
  const { state, index } = played;
  return (
    <>
      {state.problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {state.problem}
        </p>
      )}
      {warningsOf(played).map(([name, text]) => (
        <p key={name} class="notice warning" data-notice={name}>
          <Icon icon={TriangleAlert} /> {text}
        </p>
      ))}
      {index !== undefined && index.hidden > 0 ? (
        <p class="notice warning" data-notice="hidden">
          <Icon icon={TriangleAlert} /> {hiddenText(index.hidden)}.
          <button type="button" onClick={onHidden}>
            Show them
          </button>
        </p>
      ) : null}
      {index?.characters === 0 ? (
        <p class="notice" data-notice="silent">
          This session has no output.
        </p>
      ) : null}
    </>
  );
}

function warningsOf({ state, index }: Played): readonly (readonly [name: string, text: string])[] {
  const stoppedAt = state.stoppedAt ?? index?.stoppedAt;
  const gaps = index?.marks.filter(({ kind }) => kind === 'gap').length ?? 0;
  const bad = index?.badLines ?? state.badLines;
  const warnings: (readonly [boolean, string, string])[] = [
    [gaps > 0, 'gap', `Output is missing in ${counted(gaps, 'place')}, marked on the time line.`],
    [
      bad > 0,
      'damage',
      `This recording is damaged: ${counted(bad, 'line')} cannot be read. The player shows the other lines.`,
    ],
    [
      index?.isCut ?? state.isCut,
      'cut',
      'This recording is cut off inside a line. The player shows everything before the cut.',
    ],
    [
      index?.tinySize !== undefined,
      'size',
      `This session reported a terminal of ${index?.tinySize}. The player shows that size; transcript, search ` +
        'and alerts read the session as 80x24.',
    ],
    [
      index?.isBinary === true,
      'binary',
      'The output of this session is binary. The screen shows how a terminal renders it.',
    ],
    [stoppedAt !== undefined, 'stopped', stoppedText(stoppedAt ?? 0)],
  ];
  return warnings.filter(([holds]) => holds).map(([, name, text]) => [name, text]);
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
