/**
 * Returns a function that converts the recorded time of an event to its due time, in seconds after the start of
 * playback. If an event has an earlier time than the previous event, the event is due immediately. Pure: no timers.
 *
 * @param options.speed factor: 2 plays twice as fast
 * @param options.idleLimitSeconds maximum length of a pause; undefined keeps all pauses
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
