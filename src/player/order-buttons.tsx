/** Buttons that end, pause and resume a running session. */
import { CircleStop, Pause, Play } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import { MAX_REASON_LENGTH, type OrderAction } from '../wire/recorder-api/session-order.ts';
import { Icon } from './icon.tsx';
import { giveOrder, mayOrder } from './orders.ts';
import { Recorder } from './recorder-context.ts';

export function OrderButtons({ id }: { readonly id: string }): JSX.Element | null {
  const { ask } = useContext(Recorder);
  const [mayGive, setMayGive] = useState(false);
  const [reason, setReason] = useState('');
  const [outcome, setOutcome] = useState('');
  useEffect(() => {
    const gone = new AbortController();
    mayOrder(ask, id, gone.signal).then(setMayGive, () => setMayGive(false));
    return () => gone.abort();
  }, [id]);
  if (!mayGive) return null;
  const give = (action: OrderAction): void => {
    setOutcome('Waiting for the gateway…');
    giveOrder(ask, id, action, reason).then(
      () => setOutcome(`The gateway confirmed: ${action}.`),
      (error: unknown) => setOutcome(error instanceof Error ? error.message : String(error)),
    );
  };
  return (
    <>
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
