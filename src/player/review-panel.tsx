/** Comments, tags and reviewer of a recording. */
import { BadgeCheck, MessageSquarePlus, Tag, X } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { clockText } from '../screen/clock-text.ts';
import type { Review, ReviewChange, ReviewSummary } from '../wire/recorder-api/review.ts';
import { changeReview, readReview, type ShownReview } from './archive.ts';
import { ageText } from './format.ts';
import { Icon } from './icon.tsx';
import { Recorder } from './recorder-context.ts';

export interface ReviewState {
  /** The review; undefined while it loads, and in an exported file. */
  readonly review: ShownReview | undefined;
  readonly problem: string | undefined;
  readonly change: (change: ReviewChange) => Promise<void>;
}

/** Loads the review of a recording. */
export function useReview(id: string): ReviewState {
  const { ask, exportRecording } = useContext(Recorder);
  const [review, setReview] = useState<ShownReview>();
  const [problem, setProblem] = useState<string>();
  const fail = (error: unknown): void => setProblem(error instanceof Error ? error.message : String(error));
  useEffect(() => {
    if (exportRecording === undefined) return undefined;
    const gone = new AbortController();
    readReview(ask, id, gone.signal).then(setReview, (error: unknown) => {
      if (!gone.signal.aborted) fail(error);
    });
    return () => gone.abort();
  }, [id]);
  return {
    review,
    problem,
    async change(change) {
      try {
        setReview(await changeReview(ask, id, change));
        setProblem(undefined);
      } catch (error) {
        fail(error);
      }
    },
  };
}

export interface ReviewPanelProps {
  readonly state: ReviewState;
  readonly position: number;
  readonly onSeek: (seconds: number) => void;
}

export function ReviewPanel({ state, position, onSeek }: ReviewPanelProps): JSX.Element {
  const { review, problem, change } = state;
  return (
    <div class="review">
      {problem === undefined ? null : (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {review === undefined ? (
        problem === undefined ? (
          <p class="soft">Loading…</p>
        ) : null
      ) : (
        <>
          <Reviewer review={review} onChange={change} />
          <Tags review={review} onChange={change} />
          <Comments review={review} onSeek={onSeek} />
          {review.mayWrite ? (
            <CommentForm position={position} onChange={change} />
          ) : (
            <p class="soft">
              To write comments and tags, open the recorder directly. You need its viewer right{' '}
              <code>review</code>.
            </p>
          )}
        </>
      )}
    </div>
  );
}

interface PartProps {
  readonly review: ShownReview;
  readonly onChange: ReviewState['change'];
}

function Reviewer({ review: { reviewed, mayWrite }, onChange }: PartProps): JSX.Element | null {
  if (reviewed === undefined)
    return mayWrite ? (
      <button type="button" onClick={() => void onChange({ kind: 'reviewed' })}>
        <Icon icon={BadgeCheck} /> Mark as reviewed
      </button>
    ) : (
      <p class="soft">Not reviewed</p>
    );
  return (
    <p class="reviewer">
      <Icon icon={BadgeCheck} />
      <span>
        Reviewed by {reviewed.by}, {ageText(reviewed.at, Date.now())}
      </span>
      {mayWrite ? (
        <button type="button" class="quiet" onClick={() => void onChange({ kind: 'unreviewed' })}>
          Undo
        </button>
      ) : null}
    </p>
  );
}

function Tags({ review: { tags, mayWrite }, onChange }: PartProps): JSX.Element | null {
  const [typed, setTyped] = useState('');
  const add = (): void => {
    const text = typed.trim().replaceAll(/\s+/g, '-');
    if (text === '') return;
    setTyped('');
    void onChange({ kind: 'tag', text });
  };
  if (tags.length === 0 && !mayWrite) return null;
  return (
    <div class="tags">
      {tags.map((tag) =>
        mayWrite ? (
          <button
            key={tag}
            type="button"
            class="chip"
            aria-label={`Remove tag ${tag}`}
            onClick={() => void onChange({ kind: 'untag', text: tag })}
          >
            <Icon icon={Tag} size={13} /> {tag} <Icon icon={X} size={13} />
          </button>
        ) : (
          <span key={tag} class="chip">
            <Icon icon={Tag} size={13} /> {tag}
          </span>
        ),
      )}
      {mayWrite ? (
        <input
          aria-label="Add a tag"
          placeholder="Add a tag"
          size={10}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter') add();
          }}
        />
      ) : null}
    </div>
  );
}

function Comments({
  review: { comments },
  onSeek,
}: {
  readonly review: Review;
  readonly onSeek: (seconds: number) => void;
}): JSX.Element {
  if (comments.length === 0) return <p class="soft">No comments</p>;
  return (
    <ol class="comments">
      {comments.map(({ at, by, text, seconds }, index) => (
        <li key={index}>
          <p class="soft">
            {seconds === undefined ? null : (
              <button type="button" class="chip" onClick={() => onSeek(seconds)}>
                {clockText(seconds)}
              </button>
            )}{' '}
            {by}, <time dateTime={at}>{ageText(at, Date.now())}</time>
          </p>
          <p class="text">{text}</p>
        </li>
      ))}
    </ol>
  );
}

const MAX_COMMENT = 2000;

function CommentForm({
  position,
  onChange,
}: {
  readonly position: number;
  readonly onChange: ReviewState['change'];
}): JSX.Element {
  const [typed, setTyped] = useState('');
  /**
   * Position of the playback when the reviewer started to type. The comment gets this position, because it refers to
   * the screen at this position.
   */
  const [seconds, setSeconds] = useState<number>();
  const add = (): void => {
    const text = typed.trim();
    if (text === '') return;
    setTyped('');
    setSeconds(undefined);
    void onChange({ kind: 'comment', text, seconds: Math.round((seconds ?? position) * 10) / 10 });
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        add();
      }}
    >
      <textarea
        rows={2}
        maxLength={MAX_COMMENT}
        aria-label="Comment"
        placeholder={`Comment at ${clockText(seconds ?? position)}`}
        value={typed}
        onInput={(event) => {
          if (typed === '') setSeconds(position);
          setTyped(event.currentTarget.value);
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) add();
        }}
      />
      <button type="submit" class="primary" disabled={typed.trim() === ''}>
        <Icon icon={MessageSquarePlus} /> Add comment
      </button>
    </form>
  );
}

/** Tags, reviewer and number of comments of a recording in a list. */
export function ReviewChips({ review }: { readonly review: ReviewSummary | undefined }): JSX.Element | null {
  if (review === undefined) return null;
  const { tags, reviewedBy, comments } = review;
  return (
    <span class="review-chips">
      {reviewedBy === undefined ? null : (
        <span title={`Reviewed by ${reviewedBy}`}>
          <Icon icon={BadgeCheck} size={13} /> reviewed
        </span>
      )}
      {comments === 0 ? null : (
        <span>
          <Icon icon={MessageSquarePlus} size={13} /> {comments} comment{comments === 1 ? '' : 's'}
        </span>
      )}
      {tags.map((tag) => (
        <span key={tag}>
          <Icon icon={Tag} size={13} /> {tag}
        </span>
      ))}
    </span>
  );
}
