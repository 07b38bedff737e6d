/** Recording times as text. Pure. */

/** Formats seconds as `1:02:03` or, with tenths, as `1:02:03.4`. */
export function clockText(seconds: number, withTenths = false): string {
  const tenths = Math.floor(Math.max(0, seconds) * 10 + 1e-6);
  const whole = Math.floor(tenths / 10);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const rest = `${String(whole % 60).padStart(2, '0')}${withTenths ? `.${tenths % 10}` : ''}`;
  return hours > 0 ? `${hours}:${String(minutes).padStart(2, '0')}:${rest}` : `${minutes}:${rest}`;
}

/** Parses `90`, `1:30`, `1:02:03.5` or `1m30s` into seconds; undefined for other text. */
export function parseClock(text: string): number | undefined {
  const trimmed = text.trim();
  const units = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?$/.exec(trimmed);
  if (trimmed !== '' && units !== null) {
    const [, hours = '0', minutes = '0', seconds = '0'] = units;
    return Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds);
  }
  // only the first number may be larger than 59
  if (!/^\d+(?::[0-5]?\d){1,2}(?:\.\d+)?$/.test(trimmed)) return undefined;
  return trimmed.split(':').reduce((sum, part) => sum * 60 + Number(part), 0);
}

/**
 * Returns the notice for a recording that cannot be rendered completely, because it costs too much or the emulator
 * failed.
 *
 * @param seconds second at which rendering stopped
 */
export function stoppedText(seconds: number): string {
  const at = clockText(seconds, true);
  return `Stopped: the rest of this recording cannot be rendered. The shown output ends at ${at}.`;
}
