import { create, type Player } from 'asciinema-player';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { castAddress, liveAddress, readRecording, type Recording } from './archive.ts';
import { durationText, sizeText, stateText, whereText, whoText } from './format.ts';
import { formatRoute } from './route.ts';

const SPEEDS = [0.5, 1, 2, 4, 8];
/** Pauses longer than this are skipped while idle time is skipped. */
const IDLE_LIMIT_SECONDS = 2;
/** How often it is asked whether a running session has ended. */
const LIVE_REFRESH_MS = 2000;

/** One recording: the player, its settings, what is known about the session, and the files. */
export function RecordingView({
  id,
  startAt,
}: {
  readonly id: string;
  readonly startAt: number | undefined;
}): JSX.Element {
  const [recording, setRecording] = useState<Recording>();
  const [problem, setProblem] = useState<string>();
  useEffect(() => {
    const abort = new AbortController();
    readRecording(id, abort.signal).then(setRecording, (error: unknown) => {
      if (!abort.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    });
    return () => abort.abort();
  }, [id]);
  useEffect(() => {
    if (recording?.state !== 'open') return undefined;
    const abort = new AbortController();
    const timer = setInterval(() => {
      // A recorder that is away for a moment is no reason to take the screen from the viewer.
      readRecording(id, abort.signal).then(setRecording, () => undefined);
    }, LIVE_REFRESH_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [id, recording?.state]);
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
        {whereText(recording)} <span class={`badge state-${recording.state}`}>{stateText(recording)}</span>
      </h1>
      <Screen recording={recording} startAt={startAt} />
      <Facts recording={recording} />
    </article>
  );
}

function Screen({
  recording,
  startAt,
}: {
  readonly recording: Recording;
  readonly startAt: number | undefined;
}): JSX.Element {
  const screen = useRef<HTMLDivElement>(null);
  const player = useRef<Player>(undefined);
  const position = useRef(startAt ?? 0);
  const wasLive = useRef(false);
  const [speed, setSpeed] = useState(1);
  const [skipIdle, setSkipIdle] = useState(true);
  const live = recording.state === 'open';
  const { id, width, height } = recording;

  useEffect(() => {
    const element = screen.current;
    if (element === null) return undefined;
    const options = {
      ...(width > 0 && height > 0 ? { cols: width, rows: height } : {}),
      // Who watched a session to its end stays there.
      autoPlay: !wasLive.current,
      controls: true,
      fit: 'width' as const,
      speed,
      startAt: position.current,
      ...(skipIdle ? { idleTimeLimit: IDLE_LIMIT_SECONDS } : {}),
    };
    player.current = live
      ? create({ driver: 'websocket', url: liveAddress(id) }, element, options)
      : create({ url: castAddress(id, { normalise: true }) }, element, options);
    if (wasLive.current) void player.current.seek('100%');
    wasLive.current = live;
    return () => {
      position.current = player.current?.getCurrentTime() ?? 0;
      player.current?.dispose();
    };
  }, [id, live, speed, skipIdle]);

  const link = (): void => {
    const at = player.current?.getCurrentTime() ?? 0;
    history.replaceState(null, '', formatRoute({ view: 'recording', id, at }));
    void navigator.clipboard?.writeText(location.href);
  };

  return (
    <>
      <div ref={screen} class="screen" />
      <div class="controls">
        <fieldset disabled={live}>
          <legend>Speed</legend>
          {SPEEDS.map((factor) => (
            <label key={factor}>
              <input type="radio" name="speed" checked={factor === speed} onChange={() => setSpeed(factor)} />
              {factor}x
            </label>
          ))}
        </fieldset>
        <label>
          <input
            type="checkbox"
            checked={skipIdle}
            disabled={live}
            onChange={(event) => setSkipIdle(event.currentTarget.checked)}
          />
          skip idle time
        </label>
        <button type="button" onClick={link} disabled={live}>
          Link to this moment
        </button>
        <a class="button" href={castAddress(id, { normalise: false })} download={`${id}.cast`}>
          Download
        </a>
      </div>
    </>
  );
}

function Facts({ recording }: { readonly recording: Recording }): JSX.Element {
  const { kubernetes, source, destination } = recording;
  const facts: readonly (readonly [string, string | undefined])[] = [
    ['Who', whoText(recording)],
    ['From', source.node],
    ['Through', destination?.node],
    ['Namespace', kubernetes?.namespace],
    ['Pod', kubernetes?.pod],
    ['Container', kubernetes?.container],
    ['Kind', recording.kind],
    ['Command', recording.command],
    ['Started', new Date(recording.startedAt).toLocaleString()],
    ['Length', durationText(recording.durationSeconds)],
    ['Size', sizeText(recording.bytes)],
    [
      'State',
      recording.problem === undefined
        ? stateText(recording)
        : `${stateText(recording)} — ${recording.problem}`,
    ],
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
