/** Buttons that end, pause and resume a running session, or moderate a moderated session. */
import { CircleStop, Eye, EyeOff, Pause, Play } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import {
  MAX_REASON_LENGTH,
  WATCH_INTERVAL_MS,
  type ControlAction,
} from '../wire/recorder-api/session-order.ts';
import { Icon } from './icon.tsx';
import { giveOrder, readControl, type Control } from './orders.ts';
import { Recorder } from './recorder-context.ts';

const NOTHING: Control = { mayGive: false, isModerated: false };

/** Button for a moderator. The moderated session runs while the button is on and this page is open. */
function WatchButton({ id }: { readonly id: string }): JSX.Element {
  const { ask } = useContext(Recorder);
  const [isWatching, setIsWatching] = useState(false);
  const [outcome, setOutcome] = useState('');
  useEffect(() => {
    if (!isWatching) return undefined;
    const repeat = (): void =>
      void giveOrder(ask, id, 'watch', '').then(
        () => setOutcome('The session runs while you watch it.'),
        (error: unknown) => {
          setIsWatching(false);
          setOutcome(error instanceof Error ? error.message : String(error));
        },
      );
    repeat();
    const timer = setInterval(repeat, WATCH_INTERVAL_MS);
    return () => clearInterval(timer);
  }, [id, isWatching]);
  const toggle = (): void => {
    setIsWatching(!isWatching);
    setOutcome(
      isWatching ? 'The session ends soon, because no moderator watches it.' : 'Waiting for the gateway…',
    );
  };
  return (
    <>
      <button type="button" onClick={toggle}>
        <Icon icon={isWatching ? EyeOff : Eye} /> {isWatching ? 'Stop watching' : 'Watch, and let it run'}
      </button>
      <span class="soft" role="status">
        {outcome}
      </span>
    </>
  );
}

export function OrderButtons({ id }: { readonly id: string }): JSX.Element | null {
  const { ask } = useContext(Recorder);
  const [{ mayGive, isModerated }, setControl] = useState(NOTHING);
  const [reason, setReason] = useState('');
  const [outcome, setOutcome] = useState('');
  useEffect(() => {
    const gone = new AbortController();
    readControl(ask, id, gone.signal).then(setControl, () => setControl(NOTHING));
    return () => gone.abort();
  }, [id]);
  if (!mayGive) return isModerated ? <WatchButton id={id} /> : null;
  const give = (action: ControlAction): void => {
    setOutcome('Waiting for the gateway…');
    giveOrder(ask, id, action, reason).then(
      () => setOutcome(`The gateway confirmed: ${action}.`),
      (error: unknown) => setOutcome(error instanceof Error ? error.message : String(error)),
    );
  };
  return (
    <>
      {isModerated ? <WatchButton id={id} /> : null}
      <input
        type="text"
        aria-label="Reason"
        placeholder="Reason for the user"
        maxLength={MAX_REASON_LENGTH}
        value={reason}
        onInput={({ currentTarget }) => setReason(currentTarget.value)}
      />
      <button type="button" onClick={() => give('end')}>
        <Icon icon={CircleStop} /> End session
      </button>
      <button type="button" onClick={() => give('pause')}>
        <Icon icon={Pause} /> Pause session
      </button>
      <button type="button" onClick={() => give('resume')}>
        <Icon icon={Play} /> Resume session
      </button>
      <span class="soft" role="status">
        {outcome}
      </span>
    </>
  );
}
