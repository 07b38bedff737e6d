/**
 * When each event of a recording is shown: pure arithmetic, no timers.
 *
 * @param options.speed factor, 2 = twice as fast.
 * @param options.idleLimitSeconds pauses longer than this are cut to it; undefined keeps them.
 * @returns a function from the event's recorded time (seconds) to the moment it is due (seconds since the replay began).
 *   Times that go back are shown at once.
 */
export function createReplayClock(options: {
  readonly speed: number;
  readonly idleLimitSeconds: number | undefined;
}): (recordedSeconds: number) => number {
  let last = 0;
  let due = 0;
  return (recordedSeconds) => {
    const pause = Math.max(0, recordedSeconds - last);
    last = Math.max(last, recordedSeconds);
    due += Math.min(pause, options.idleLimitSeconds ?? Number.POSITIVE_INFINITY) / options.speed;
    return due;
  };
}
