import { ServerOff, TriangleAlert } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { readRecording } from './archive.ts';
import { Recorder } from './recorder-context.ts';
import { Icon } from './icon.tsx';
import { usePreference } from './preferences.ts';
import { RecorderProblem } from './problem-view.tsx';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { resultText, stateText, statusNotices } from '../wire/recorder-api/recording-status.ts';
import { momentOf, wallText, type Zone } from './wall-text.ts';
import { ageText, durationText, sizeText, trustText, whereText, whoText } from './format.ts';
import { EvidenceView } from './evidence-view.tsx';
import { LiveScreen } from './live-screen.tsx';
import { Player } from './player.tsx';
import { StatusBadges } from './status-badges.tsx';

const VERIFIED =
  'verified: the description and the length are signed; the evidence check compares the content';

/** Interval between requests for the state of a running session, in milliseconds. */
const LIVE_REFRESH_MS = 2000;
const LOOK_BACK_SECONDS = 30;

interface LookBack {
  readonly end: number;
  readonly from: number;
}

/**
 * Returns the range to play (`LookBack`) for a link to a match in a running session; undefined for a finished session.
 */
function hitBack({ state, durationSeconds }: ListedRecording, hit: number | undefined): LookBack | undefined {
  return state === 'running' && hit !== undefined
    ? { end: durationSeconds ?? hit + LOOK_BACK_SECONDS, from: hit }
    : undefined;
}

export interface RecordingViewProps {
  readonly id: string;
  readonly startAt: number | undefined;
  /** Text to find in the transcript. */
  readonly find: string;
  /** Query that found the recording. */
  readonly query: string;
}

/** One recording: the player or the live view, and the facts about the session. */
export function RecordingView({ id, startAt, find, query }: RecordingViewProps): JSX.Element {
  const { ask } = useContext(Recorder);
  const [recording, setRecording] = useState<ListedRecording>();
  const [problem, setProblem] = useState<Error>();
  const lostAt = useRefresh(id, recording?.state === 'running', setRecording);
  const [zone, setZone] = usePreference('zone');
  /**
   * Look-back in a running session: the session's length at the time of the click, and the position at which playback
   * starts.
   */
  const [back, setBack] = useState<LookBack>();
  const lookBack = (end: number): void => setBack({ end, from: Math.max(0, end - LOOK_BACK_SECONDS) });
  /** True if the viewer saw the session live. The view then stays at the end when the session stops. */
  const wasLive = useRef(false);
  useEffect(() => scrollTo(0, 0), [id]);
  useEffect(() => {
    const abort = new AbortController();
    const begin = (found: ListedRecording): void => {
      setBack(query === '' ? undefined : hitBack(found, startAt));
      setRecording(found);
    };
    readRecording(ask, id, abort.signal).then(begin, (error: unknown) => {
      if (!abort.signal.aborted) setProblem(error instanceof Error ? error : new Error(String(error)));
    });
    return () => abort.abort();
  }, [id]);
  useEffect(() => {
    if (recording !== undefined)
      document.title = `${whereText(recording)} — ${whoText(recording)} — tailcast`;
    wasLive.current ||= recording?.state === 'running';
  }, [recording]);
  if (problem !== undefined) return <RecorderProblem problem={problem} />;
  if (recording === undefined) return <PlayerSkeleton />;
  return (
    <article>
      <Headline recording={recording} zone={zone} />
      {lostAt === undefined ? null : (
        <p class="notice warning" data-notice="lost" role="status">
          <Icon icon={ServerOff} /> The recorder does not respond. It last responded{' '}
          {ageText(new Date(lostAt).toISOString(), Date.now())}. The page retries automatically.
        </p>
      )}
      {statusNotices(recording).map((notice) => (
        <p key={notice} class="notice warning" data-notice="status">
          <Icon icon={TriangleAlert} /> {notice}
        </p>
      ))}
      {recording.state === 'running' && back === undefined ? (
        <LiveScreen recording={recording} onLookBack={lookBack} />
      ) : (
        <Player
          recording={
            recording.state === 'running' && back !== undefined
              ? { ...recording, durationSeconds: back.end }
              : recording
          }
          startAt={back?.from ?? (wasLive.current ? recording.durationSeconds : startAt)}
          find={find}
          query={query}
          zone={zone}
          onZone={() => setZone(zone === 'utc' ? 'local' : 'utc')}
          onLive={recording.state === 'running' ? () => setBack(undefined) : undefined}
        />
      )}
      <details class="card">
        <summary>Details</summary>
        <Facts recording={recording} zone={zone} />
      </details>
      {recording.state === 'running' ? null : <EvidenceView recording={recording} zone={zone} />}
    </article>
  );
}

/**
 * Reads the recording regularly while its session runs.
 *
 * @returns the time of the last response before the recorder became unreachable, in milliseconds since the epoch
 */
function useRefresh(
  id: string,
  isRunning: boolean,
  setRecording: (recording: ListedRecording) => void,
): number | undefined {
  const { ask } = useContext(Recorder);
  const [lostAt, setLostAt] = useState<number>();
  useEffect(() => {
    if (!isRunning) return undefined;
    const abort = new AbortController();
    let seenAt = Date.now();
    const timer = setInterval(() => {
      readRecording(ask, id, abort.signal).then(
        (found) => {
          seenAt = Date.now();
          setLostAt(undefined);
          setRecording(found);
        },
        // the screen stays while the recorder is temporarily unreachable
        () => {
          if (!abort.signal.aborted) setLostAt(seenAt);
        },
      );
    }, LIVE_REFRESH_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [id, isRunning]);
  return lostAt;
}

/** Placeholder with the size of the player. */
function PlayerSkeleton(): JSX.Element {
  const [side] = usePreference('side');
  return (
    <div class="player" aria-busy="true">
      <div class="headline">
        <h1>Loading…</h1>
      </div>
      <div class={side === 'closed' ? 'stage' : 'stage with-side'}>
        <div class="terminal placeholder" />
        {side === 'closed' ? null : <div class="side" />}
      </div>
    </div>
  );
}

/** User, command, target, time and result in one line. */
function Headline({
  recording,
  zone,
}: {
  readonly recording: ListedRecording;
  readonly zone: Zone;
}): JSX.Element {
  const { startedAt, command, kind } = recording;
  return (
    <div class="headline">
      <h1>
        <strong>{whoText(recording)}</strong>
        <code title={command}>{shortText(command ?? kind)}</code>
        <span>{whereText(recording)}</span>
        <time class="soft" dateTime={startedAt} title={wallText(new Date(startedAt), zone)}>
          {momentOf(new Date(startedAt), zone)} ({ageText(startedAt, Date.now())})
        </time>
      </h1>
      <StatusBadges recording={recording} isDetailed />
    </div>
  );
}

const MAX_HEADLINE = 60;

function shortText(text: string): string {
  return text.length > MAX_HEADLINE ? `${text.slice(0, MAX_HEADLINE).toWellFormed()}…` : text;
}

function Facts({
  recording,
  zone,
}: {
  readonly recording: ListedRecording;
  readonly zone: Zone;
}): JSX.Element {
  const { kubernetes, source, destination } = recording;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['Who', whoText(recording)],
    ['From', source.node],
    ['Through', destination.node],
    ['Cluster', recording.cluster],
    ['Namespace', kubernetes?.namespace],
    ['Pod', kubernetes?.pod],
    ['Container', kubernetes?.container],
    ['Kind', recording.kind],
    ['Command', recording.command],
    ['Started', wallText(new Date(recording.startedAt), zone)],
    ['Length', durationText(recording.durationSeconds)],
    ['Size', sizeText(recording.bytes)],
    ['State', stateText(recording)],
    ['Result', resultText(recording)],
    ['Trust', recording.trust === 'verified' ? VERIFIED : trustText(recording)],
    ['ID', recording.id],
  ];
  return (
    <dl class="facts">
      {facts
        .filter(([, value]) => value !== undefined && value !== '')
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
