/** Evidence about a recording: the result of the check, the signer, the viewers and other events. */
import { Radio, ShieldAlert, ShieldCheck, ShieldQuestionMark } from 'lucide';
import type { ComponentChildren, JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { readEvidence, type Evidence, type StoredEvent } from './evidence.ts';
import { CheckNow } from './check-now.tsx';
import { Icon, type IconShape } from './icon.tsx';
import { Recorder } from './recorder-context.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import type { Trust } from '../wire/recorder-api/recording-status.ts';
import { trustText, whereText, whoText } from './format.ts';
import { formatRoute } from './route.ts';
import { StatusBadges } from './status-badges.tsx';
import { wallText, type Zone } from './wall-text.ts';

/**
 * Maximum size of a recording that is checked automatically, in bytes. The check reads the complete recording, so the
 * viewer starts the check of a larger recording with a click.
 */
const MAX_UNASKED_BYTES = 16 * 1024 ** 2;

const VERDICTS: Readonly<Record<Evidence['evidence']['verdict'], string>> = {
  verified: 'The recording is unchanged since its recorder signed it.',
  unverified: 'The signature is from a key that this recorder does not trust. The recording can be forged.',
  failed: 'The recording differs from what its recorder signed.',
  none: 'The recording has no signature, so changes cannot be detected.',
  running: 'The session is running. The recorder signs the recording at its end.',
};

export function EvidenceView({
  recording,
  zone,
}: {
  readonly recording: ListedRecording;
  readonly zone: Zone;
}): JSX.Element {
  const { id, bytes } = recording;
  const { ask, exportRecording } = useContext(Recorder);
  const [asked, setAsked] = useState(bytes <= MAX_UNASKED_BYTES || exportRecording === undefined);
  const [found, setFound] = useState<Evidence | string>();
  useEffect(() => {
    if (!asked) return undefined;
    const gone = new AbortController();
    readEvidence(ask, id, gone.signal).then(setFound, (error: unknown) => {
      if (!gone.signal.aborted) setFound(error instanceof Error ? error.message : String(error));
    });
    return () => gone.abort();
  }, [id, asked]);
  return (
    <details class="card evidence">
      <summary>
        {exportRecording === undefined ? 'Facts from the recorder' : 'Evidence'}
        {typeof found === 'object' && exportRecording !== undefined ? (
          <VerdictText evidence={found.evidence} zone={zone} />
        ) : null}
      </summary>
      <CheckNow asked={asked} done={found !== undefined} onAsk={() => setAsked(true)} />
      {typeof found === 'string' ? <p class="notice problem">{found}</p> : null}
      {typeof found === 'object' ? (
        <Found found={found} zone={zone} isChecked={exportRecording !== undefined} />
      ) : null}
    </details>
  );
}

function VerdictText({
  evidence: { verdict, checkedAt },
  zone,
}: {
  readonly evidence: Evidence['evidence'];
  readonly zone: Zone;
}): JSX.Element {
  return (
    <span
      class={`verdict verdict-${verdict}`}
      data-verdict={verdict}
      title={`Checked ${wallText(new Date(checkedAt), zone)}`}
    >
      <Icon icon={VERDICT_ICONS[verdict]} /> {VERDICTS[verdict]}
    </span>
  );
}

const VERDICT_ICONS: Readonly<Record<Evidence['evidence']['verdict'], IconShape>> = {
  verified: ShieldCheck,
  unverified: ShieldQuestionMark,
  failed: ShieldAlert,
  none: ShieldQuestionMark,
  running: Radio,
};

function Found({
  found,
  zone,
  isChecked,
}: {
  readonly found: Evidence;
  readonly zone: Zone;
  /**
   * True if the recorder offers a check. In an exported bundle, the page checks the recording in the browser instead.
   */
  readonly isChecked: boolean;
}): JSX.Element {
  const { evidence, session, gaps, gapCount, parts, related, accesses, events } = found;
  const { signedBy } = evidence;
  return (
    <>
      <ul class="findings">
        {evidence.findings.map(({ code, message }) => (
          <li key={`${code} ${message}`}>{message}</li>
        ))}
        {gaps.map(({ at, bytes, reason }) => (
          <li key={at}>
            Missing: {bytes === undefined ? 'output' : `${bytes} bytes`} ({reason})
          </li>
        ))}
        {gapCount > gaps.length ? <li>{gapCount - gaps.length} more gaps</li> : null}
      </ul>
      <dl class="facts">
        <SignedBy signedBy={signedBy} isChecked={isChecked} />
        <Fact name="Parts">{parts > 1 ? String(parts) : undefined}</Fact>
        <Fact name="As user">{session?.user}</Fact>
        <Fact name="Groups">{session?.groups?.join(', ')}</Fact>
        <Fact name="Arguments">{session?.argv?.map((part) => JSON.stringify(part)).join(' ')}</Fact>
        <Fact name="Request">{session?.path}</Fact>
      </dl>
      <Related title="Same user, within a day" recordings={related.caller} zone={zone} />
      <Related title="Same pod, within a day" recordings={related.pod} zone={zone} />
      <Events
        title="Viewers of this recording"
        events={accesses}
        isIncomplete={found.accessesIncomplete}
        zone={zone}
        describe={describeAccess}
      />
      <Events
        title="API requests of the same user during the session"
        events={events}
        isIncomplete={found.eventsIncomplete}
        zone={zone}
        describe={describeEvent}
      />
    </>
  );
}

function SignedBy({
  signedBy,
  isChecked,
}: {
  readonly signedBy: Evidence['evidence']['signedBy'];
  readonly isChecked: boolean;
}): JSX.Element | null {
  if (signedBy === undefined) return null;
  const { key, owner, log, entry, adopted } = signedBy;
  return (
    <>
      <Fact name="Signed by">{isChecked ? `${key} (${KEY_OWNERS[owner]})` : key}</Fact>
      <Fact name="Log entry">{`${log}, entry ${entry}`}</Fact>
      <Fact name="Taken over from">
        {adopted === undefined ? undefined : `log ${adopted.log}, entry ${adopted.entry}, key ${adopted.key}`}
      </Fact>
    </>
  );
}

const KEY_OWNERS = {
  'this recorder': 'key of this recorder',
  trusted: 'key of a trusted recorder',
  published: 'key that is published in the store',
  unknown: 'unknown key',
} as const;

function Fact({
  name,
  children,
}: {
  readonly name: string;
  readonly children: string | undefined;
}): JSX.Element | null {
  if (children === undefined || children === '') return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Fold({
  title,
  count,
  children,
}: {
  readonly title: string;
  readonly count: number;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <details>
      <summary>
        {title} <span class="badge">{count}</span>
      </summary>
      <ul>{children}</ul>
    </details>
  );
}

function Related({
  title,
  recordings,
  zone,
}: {
  readonly title: string;
  readonly recordings: readonly ListedRecording[];
  readonly zone: Zone;
}): JSX.Element | null {
  if (recordings.length === 0) return null;
  return (
    <Fold title={title} count={recordings.length}>
      {recordings.map((recording) => (
        <li key={recording.id}>
          <a href={formatRoute({ view: 'recording', id: recording.id, at: undefined })}>
            {wallText(new Date(recording.startedAt), zone)}
          </a>{' '}
          {whoText(recording)} · {whereText(recording)} · <code>{recording.command ?? recording.kind}</code> ·{' '}
          <StatusBadges recording={recording} />
        </li>
      ))}
    </Fold>
  );
}

/** Badge for an event without a valid signature of a trusted recorder. */
function Distrust({ of }: { readonly of: Partial<Trust> }): JSX.Element | null {
  const text = trustText(of);
  return text === undefined || text === 'verified' ? null : <strong class="problem"> {text}</strong>;
}

/** List of events. The events may concern other recordings, so `events` is undefined for restricted viewers. */
function Events({
  title,
  events,
  isIncomplete = false,
  zone,
  describe,
}: {
  readonly title: string;
  readonly events: readonly StoredEvent[] | undefined;
  readonly isIncomplete?: boolean | undefined;
  readonly zone: Zone;
  readonly describe: (event: StoredEvent['event']) => string;
}): JSX.Element | null {
  if (events === undefined || (events.length === 0 && !isIncomplete)) return null;
  return (
    <Fold title={isIncomplete ? `${title} (incomplete)` : title} count={events.length}>
      {isIncomplete ? (
        <li class="problem">This list is incomplete: older or unread events are missing.</li>
      ) : null}
      {events.map(({ event, ...trust }, index) => (
        <li key={index}>
          {wallText(new Date(event.timestamp * 1000), zone)} {describe(event)}
          <Distrust of={trust} />
        </li>
      ))}
    </Fold>
  );
}

function callerOf({ source }: StoredEvent['event']): string {
  return source?.nodeUser ?? source?.nodeTags?.join(', ') ?? source?.node ?? '';
}

function describeAccess(event: StoredEvent['event']): string {
  return `${callerOf(event)} (${event.source?.node ?? ''}) ${event.action ?? ''}`;
}

function describeEvent({ kubernetes, request }: StoredEvent['event']): string {
  const { Verb, Resource, Namespace, Name } = kubernetes ?? {};
  const what = [Verb, Resource, [Namespace, Name].filter((part) => part).join('/')].filter((part) => part);
  return what.length > 0 ? what.join(' ') : `${request?.method ?? ''} ${request?.path ?? ''}`;
}
