/**
 * The rows of a list that may be very long. They come in chunks; of those that are far from what is in sight only the height
 * stays, so the page is as quick with 100,000 recordings as with 100.
 */
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { durationText, hiddenMatch, sizeText, stateText, whereText, whoText } from './format.ts';
import { formatRoute } from './route.ts';
import { wallText } from './wall-text.ts';

const CHUNK = 50;
/** How near to what is in sight rows are there, above and below. */
const NEAR = '1200px 0px';

export interface RecordingTableProps {
  readonly recordings: readonly ListedRecording[];
  /** There are more than these. */
  readonly goesOn: boolean;
  /** What was looked for. */
  readonly text: string;
  /** Pixels of each chunk, once it was in the page. Kept by whoever keeps the list. */
  readonly heights: Map<number, number>;
}

export function RecordingTable({ recordings, goesOn, text, heights }: RecordingTableProps): JSX.Element {
  const chunks = Array.from({ length: Math.ceil(recordings.length / CHUNK) }, (_, number) => number);
  return (
    <table aria-rowcount={goesOn ? -1 : recordings.length + 1}>
      <thead>
        <tr aria-rowindex={1}>
          {['Started', 'Who', 'Where', 'Command'].map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
          {['Length', 'Size'].map((name) => (
            <th key={name} scope="col" class="number">
              {name}
            </th>
          ))}
          <th scope="col">State</th>
        </tr>
      </thead>
      {chunks.map((number) => (
        <Chunk key={number} number={number} recordings={recordings} text={text} heights={heights} />
      ))}
    </table>
  );
}

type ChunkProps = Omit<RecordingTableProps, 'goesOn'> & { readonly number: number };

function Chunk({ number, recordings, text, heights }: ChunkProps): JSX.Element {
  const body = useRef<HTMLTableSectionElement>(null);
  const height = heights.get(number);
  const [isNear, setNear] = useState(height === undefined);
  useEffect(() => {
    const element = body.current;
    if (element === null) return undefined;
    const observer = new IntersectionObserver(
      (entries) => {
        const last = entries.at(-1);
        if (last === undefined) return;
        setNear(last.isIntersecting);
      },
      { rootMargin: NEAR },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, [heights]);
  // for whoever comes back: when the list is taken down, nothing in it has a height any more
  useLayoutEffect(() => {
    if (isNear && body.current !== null) heights.set(number, body.current.getBoundingClientRect().height);
  });
  if (!isNear)
    return (
      <tbody ref={body} class="far">
        <tr style={{ height: `${height ?? 0}px` }} aria-hidden="true">
          <td colSpan={7} />
        </tr>
      </tbody>
    );
  return (
    <tbody ref={body}>
      {recordings.slice(number * CHUNK, (number + 1) * CHUNK).map((recording, index) => (
        <RecordingRow
          key={recording.id}
          recording={recording}
          text={text}
          rowIndex={number * CHUNK + index + 2}
        />
      ))}
    </tbody>
  );
}

function RecordingRow({
  recording,
  text,
  rowIndex,
}: {
  readonly recording: ListedRecording;
  readonly text: string;
  readonly rowIndex: number;
}): JSX.Element {
  const address = formatRoute({ view: 'recording', id: recording.id, at: undefined });
  const why = hiddenMatch(recording, text);
  const state = stateText(recording);
  return (
    <tr class={`state-${recording.state}`} aria-rowindex={rowIndex}>
      <td>
        <a href={address}>
          <time dateTime={recording.startedAt}>{wallText(new Date(recording.startedAt), 'local')}</time>
        </a>
      </td>
      <td>{whoText(recording)}</td>
      <td>{whereText(recording)}</td>
      <td>
        <code>{recording.command ?? recording.kind}</code>
        {why === undefined ? null : <span class="why">{why}</span>}
      </td>
      <td class="number">{durationText(recording.durationSeconds)}</td>
      <td class="number">{sizeText(recording.bytes)}</td>
      <td title={recording.exitMessage ?? recording.problem}>
        <span class={`badge${state === 'failed' ? ' failed' : ''}`}>{state}</span>
      </td>
    </tr>
  );
}
