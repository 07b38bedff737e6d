/**
 * Formats a duration like kubectl's AGE column: `5s`, `3m20s`, `45m`, `3h5m`, `2d4h`, `400d`, `2y30d`. Source:
 * apimachinery `pkg/util/duration/duration.go` (HumanDuration). A negative `ms` gives `0s`.
 */
export function humanDuration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60 * 2) return `${String(seconds)}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return join(minutes, 'm', seconds % 60, 's');
  if (minutes < 60 * 3) return `${String(minutes)}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return join(hours, 'h', minutes % 60, 'm');
  if (hours < 48) return `${String(hours)}h`;
  const days = Math.floor(hours / 24);
  if (hours < 24 * 8) return join(days, 'd', hours % 24, 'h');
  if (hours < 24 * 365 * 2) return `${String(days)}d`;
  const years = Math.floor(days / 365);
  return hours < 24 * 365 * 8 ? join(years, 'y', days % 365, 'd') : `${String(years)}y`;
}

function join(large: number, largeUnit: string, small: number, smallUnit: string): string {
  const head = `${String(large)}${largeUnit}`;
  return small === 0 ? head : `${head}${String(small)}${smallUnit}`;
}
