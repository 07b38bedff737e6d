/** Matches of a search in the open recording, and navigation between them. */
import { ChevronDown, ChevronUp } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useMemo, useState } from 'preact/hooks';
import type { Playback } from '../screen/playback.ts';
import type { Hit } from '../search/search-index.ts';
import { readHits } from './archive.ts';
import { Icon } from './icon.tsx';
import { Recorder } from './recorder-context.ts';
import { searchAddress } from './route.ts';
import type { TimelineMark } from './timeline.tsx';

/** Delay between a match and the moment at which the screen shows its row, in seconds. */
const AFTER_SECONDS = 0.05;
const NO_HITS: readonly TimelineMark[] = [];

export interface SearchHits {
  readonly marks: readonly TimelineMark[];
  /** Matched texts, in lower case. */
  readonly texts: readonly string[];
  /** True if there are more matches than marks. */
  readonly more: boolean;
  readonly problem: string | undefined;
}

const NOTHING_FOUND: SearchHits = { marks: NO_HITS, texts: [], more: false, problem: undefined };
const MAX_TEXTS = 20;

function matchedTexts(hits: readonly Hit[]): readonly string[] {
  const texts = new Set<string>();
  for (const { text, marks } of hits)
    for (const [from, to] of marks) if (texts.size < MAX_TEXTS) texts.add(text.slice(from, to).toLowerCase());
  texts.delete('');
  return [...texts];
}

/** @param query may be empty */
export function useSearchHits(id: string, query: string): SearchHits {
  const { ask } = useContext(Recorder);
  const [found, setFound] = useState(NOTHING_FOUND);
  useEffect(() => {
    if (query === '') return undefined;
    const gone = new AbortController();
    readHits(ask, id, query, gone.signal).then(
      ({ hits, more }) =>
        setFound({
          marks: hits.map(({ at, text }) => ({ at, kind: 'hit', text })),
          texts: matchedTexts(hits),
          more,
          problem: undefined,
        }),
      (error: unknown) => {
        if (!gone.signal.aborted)
          setFound({ ...NOTHING_FOUND, problem: error instanceof Error ? error.message : String(error) });
      },
    );
    return () => gone.abort();
  }, [id, query]);
  return found;
}

/** Seeks to the match after or before the current position. */
export function seekHit(playback: Playback | undefined, marks: readonly TimelineMark[], by: 1 | -1): void {
  const now = playback?.state.position ?? 0;
  const times = marks.map(({ at }) => at + AFTER_SECONDS);
  // less than a second after a match, going back selects the previous match
  const next = by === 1 ? times.find((at) => at > now + 0.01) : times.findLast((at) => at < now - 1);
  if (next !== undefined) void playback?.seek(next);
}

export interface HitsBarProps {
  readonly query: string;
  readonly hits: SearchHits;
  readonly position: number;
  readonly onStep: (by: 1 | -1) => void;
}

/** Shows the query and the number of the current match. */
export function HitsBar({ query, hits, position, onStep }: HitsBarProps): JSX.Element | null {
  const passed = useMemo(() => hits.marks.map(({ at }) => at), [hits]).filter(
    (at) => at <= position + AFTER_SECONDS,
  ).length;
  if (query === '') return null;
  const count = hits.marks.length;
  const total = `${count}${hits.more ? '+' : ''}`;
  const which = passed === 0 ? `${total} match${count === 1 ? '' : 'es'}` : `Match ${passed} of ${total}`;
  return (
    <div class="controls hits-bar" role="group" aria-label="Matches of the search">
      <span role="status">{hits.problem ?? (count === 0 ? 'No match on the screen' : which)}</span>
      <code>{query}</code>
      <button type="button" disabled={count === 0} title="Previous match (N)" onClick={() => onStep(-1)}>
        <Icon icon={ChevronUp} /> Previous
      </button>
      <button type="button" disabled={count === 0} title="Next match (n)" onClick={() => onStep(1)}>
        <Icon icon={ChevronDown} /> Next
      </button>
      <a href={searchAddress(query)}>All matching recordings</a>
    </div>
  );
}
