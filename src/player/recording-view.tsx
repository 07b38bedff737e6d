import type { JSX } from 'preact';
import { useContext, useEffect, useRef, useState } from 'preact/hooks';
import { readRecording } from './archive.ts';
import { Recorder } from './recorder-context.ts';
import { recall, remember } from './remember.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { resultText, statusNotices } from '../wire/recorder-api/recording-status.ts';
import { wallText, type Zone } from './wall-text.ts';
import { durationText, sizeText, trustText, whereText, whoText } from './format.ts';
import { EvidenceView } from './evidence-view.tsx';
import { LiveScreen } from './live-screen.tsx';
import { Player } from './player.tsx';
import { StatusBadges } from './status-badges.tsx';

const VERIFIED =
  'verified: the description and the length are signed; the evidence check compares the content';

/** Interval of requests for the state of a running session. */
const LIVE_REFRESH_MS = 2000;
const LOOK_BACK_SECONDS = 30;

interface LookBack {
  readonly end: number;
  readonly from: number;
}

/** Position to look back to for a match in a running session; undefined for a finished one. */
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
  const [problem, setProblem] = useState<string>();
  const [zone, setZone] = useZone();
  /** Look-back in a running session: its length at the time of the click, and the start position. */
  const [back, setBack] = useState<LookBack>();
  const lookBack = (end: number): void => setBack({ end, from: Math.max(0, end - LOOK_BACK_SECONDS) });
  /** True if the viewer saw the session live; the view then stays at its end. */
  const wasLive = useRef(false);
  useEffect(() => scrollTo(0, 0), [id]);
  useEffect(() => {
    const abort = new AbortController();
    const begin = (found: ListedRecording): void => {
      setBack(query === '' ? undefined : hitBack(found, startAt));
      setRecording(found);
    };
    readRecording(ask, id, abort.signal).then(begin, (error: unknown) => {
      if (!abort.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    });
    return () => abort.abort();
  }, [id]);
  useEffect(() => {
    if (recording?.state !== 'running') return undefined;
    const abort = new AbortController();
    const timer = setInterval(() => {
      // keep the screen while the recorder is temporarily unreachable
      readRecording(ask, id, abort.signal).then(setRecording, () => undefined);
    }, LIVE_REFRESH_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [id, recording?.state]);
  useEffect(() => {
    if (recording !== undefined)
      document.title = `${whereText(recording)} — ${whoText(recording)} — tailcast`;
    wasLive.current ||= recording?.state === 'running';
  }, [recording]);
  if (problem !== undefined)
    return (
      <p class="notice problem" role="alert">
        {problem}
      </p>
    );
  if (recording === undefined) return <p class="notice">Loading…</p>;
  return (
    <article>
      <h1>
        {whereText(recording)} <StatusBadges recording={recording} />
      </h1>
      {statusNotices(recording).map((notice) => (
        <p key={notice} class="notice warning" data-notice="status">
          {notice}
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
      <Facts recording={recording} zone={zone} />
      {recording.state === 'running' ? null : <EvidenceView recording={recording} zone={zone} />}
    </article>
  );
}

const ZONE_KEY = 'tailcast.zone';

/** Time zone of displayed times; one choice for all recordings. */
function useZone(): [Zone, (zone: Zone) => void] {
  const [zone, setZone] = useState<Zone>(() => (recall(ZONE_KEY) === 'utc' ? 'utc' : 'local'));
  return [
    zone,
    (chosen) => {
      remember(ZONE_KEY, chosen);
      setZone(chosen);
    },
  ];
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
    ['Namespace', kubernetes?.namespace],
    ['Pod', kubernetes?.pod],
    ['Container', kubernetes?.container],
    ['Kind', recording.kind],
    ['Command', recording.command],
    ['Started', wallText(new Date(recording.startedAt), zone)],
    ['Length', durationText(recording.durationSeconds)],
    ['Size', sizeText(recording.bytes)],
    ['State', recording.problem === undefined ? recording.state : `${recording.state}: ${recording.problem}`],
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
