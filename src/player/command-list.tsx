/** List of a session's commands, next to the screen. A click on a command seeks to it. */
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { clockText } from '../screen/clock-text.ts';
import type { PlayMark } from '../screen/play-index.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { exitCodeOf } from '../wire/recorder-api/recording-status.ts';
import { durationText } from './format.ts';

/** Entry of the list: a command or, in a session without detected commands, any other timeline mark. */
export interface CommandEntry extends Pick<PlayMark, 'at' | 'text' | 'seconds' | 'exit'> {
  readonly isCommand: boolean;
}

/**
 * Returns the entries of a recording, in order of time. Entries are commands that the shell marked or that follow a
 * prompt. If a session has no such commands, the entries are the command that started the session, and all other
 * timeline marks.
 */
export function commandEntries(
  { command, kind, durationSeconds, result }: ListedRecording,
  marks: readonly PlayMark[],
): readonly CommandEntry[] {
  const commands = marks.filter((mark) => mark.kind === 'command');
  if (commands.length > 0) return commands.map((mark) => ({ ...mark, isCommand: true }));
  const exit = exitCodeOf(result);
  const session = {
    at: 0,
    text: command ?? kind,
    isCommand: true,
    ...(durationSeconds === undefined ? {} : { seconds: durationSeconds }),
    ...(exit === undefined ? {} : { exit }),
  };
  return [
    session,
    ...marks.map(({ at, kind: name, text }) => ({ at, text: `${name}: ${text}`, isCommand: false })),
  ];
}

/** Returns the index of the last entry at or before a position, or -1 if the position is before all entries. */
export function currentEntry(entries: readonly CommandEntry[], position: number): number {
  return entries.findLastIndex(({ at }) => at <= position + 0.05);
}

export interface CommandListProps {
  /** Undefined while the entries load. */
  readonly entries: readonly CommandEntry[] | undefined;
  readonly position: number;
  readonly onSeek: (seconds: number) => void;
}

export function CommandList({ entries, position, onSeek }: CommandListProps): JSX.Element {
  const list = useRef<HTMLOListElement>(null);
  const current = entries === undefined ? -1 : currentEntry(entries, position);
  useEffect(() => {
    const scroller = list.current;
    const item = scroller?.children[current];
    if (!(item instanceof HTMLElement) || scroller === null) return;
    const top = item.offsetTop - scroller.offsetTop;
    if (top < scroller.scrollTop || top + item.offsetHeight > scroller.scrollTop + scroller.clientHeight)
      scroller.scrollTop = Math.max(0, top - scroller.clientHeight / 3);
  }, [current]);
  if (entries === undefined) return <p class="hint">Loading the commands…</p>;
  return (
    <ol ref={list} class="commands">
      {entries.map(({ at, text, seconds, exit, isCommand }, index) => (
        <li key={index}>
          <button
            type="button"
            aria-current={index === current ? 'step' : undefined}
            title={text}
            onClick={() => onSeek(at)}
          >
            <span class="at">{clockText(at)}</span>
            {isCommand ? (
              <code lang="zxx" translate={false}>
                {text}
              </code>
            ) : (
              <span class="soft">{text}</span>
            )}
            <span class="meta">
              {seconds === undefined || seconds < 0.05 ? '' : durationText(seconds)}
              {exit === undefined || exit === 0 ? null : <span class="failed"> exit {exit}</span>}
            </span>
          </button>
        </li>
      ))}
    </ol>
  );
}
