import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { loadPlayerViews, playerViews, type PlayerViews } from './load-player-views.ts';
import { RecorderProblem } from './problem-view.tsx';

/** Shows a view with a terminal as soon as its script is loaded. */
export function WithPlayerViews({
  show,
  isPreview = false,
}: {
  readonly show: (views: PlayerViews) => JSX.Element;
  /** True if nothing is shown while the script loads, and if it cannot be loaded. */
  readonly isPreview?: boolean;
}): JSX.Element | null {
  const [views, setViews] = useState(playerViews);
  const [problem, setProblem] = useState<Error>();
  useEffect(() => {
    loadPlayerViews().then(setViews, setProblem);
  }, []);
  if (views !== undefined) return show(views);
  if (isPreview) return null;
  return problem === undefined ? <p class="notice">Loading…</p> : <RecorderProblem problem={problem} />;
}
