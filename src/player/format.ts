/** Text for users: times, sizes and names. Pure. */
import { secondOf, type Zone } from './wall-text.ts';
import type { SearchIndexState } from './archive.ts';
import { podText, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { searchedResult, type Trust } from '../wire/recorder-api/recording-status.ts';

export function durationText(seconds: number | undefined): string {
  if (seconds === undefined) return '';
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const AGES: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400 * 365, 'y'],
  [86_400 * 30, 'mo'],
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'min'],
];

/** Age of a time, such as `2 h ago`. */
export function ageText(time: string, nowMs: number): string {
  const seconds = (nowMs - Date.parse(time)) / 1000;
  const [size, unit] = AGES.find(([least]) => seconds >= least) ?? [];
  if (size === undefined) return 'just now';
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const unit = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** unit).toFixed(1)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

/** User of the session: the login name, otherwise the tags, otherwise the name of the tailnet node. */
export function whoText({ source }: ListedRecording): string {
  return (
    source.user ??
    (source.tags !== undefined && source.tags.length > 0 ? source.tags.join(', ') : source.node)
  );
}

/**
 * Target of the session. For Kubernetes, it is `namespace/pod (container)`, with the prefix `cluster:` if the cluster
 * is known. For other sessions, it is the name of the tailnet node.
 */
export function whereText(recording: ListedRecording): string {
  const { kubernetes, destination } = recording;
  if (kubernetes === undefined) return destination.node;
  const container = kubernetes.container === '' ? '' : ` (${kubernetes.container})`;
  return `${podText(recording)}${container}`;
}

/** Separator between the target and the suffix in a title. */
export const TITLE_SEPARATOR = ' · ';

/**
 * Returns a unique title for each session. If sessions have the same target, a suffix distinguishes them: the user,
 * else the start time, else a number.
 */
export function tileTitles(recordings: readonly ListedRecording[], zone: Zone): readonly string[] {
  const suffixes: readonly ((recording: ListedRecording) => string)[] = [
    whoText,
    ({ startedAt }) => secondOf(new Date(startedAt), zone),
  ];
  return recordings.map((recording) => {
    const target = whereText(recording);
    const same = recordings.filter((other) => whereText(other) === target);
    if (same.length === 1) return target;
    const differs = suffixes.find((suffix) => new Set(same.map(suffix)).size === same.length);
    const suffix = differs === undefined ? `#${same.indexOf(recording) + 1}` : differs(recording);
    return [target, suffix].join(TITLE_SEPARATOR);
  });
}

/**
 * Returns the level of trust in a recording's signature, with the reason; undefined if the signature was not checked.
 */
export function trustText({ trust, trustReason = '' }: Partial<Trust>): string | undefined {
  if (trust === undefined || trust === 'verified') return trust;
  return `${trust}: ${trustReason}`;
}

/** Returns the field that contains the text of the filter, if the row does not show this field. */
export function hiddenMatch(recording: ListedRecording, text: string): string | undefined {
  const wanted = text.trim().toLowerCase();
  if (wanted === '') return undefined;
  const holds = (value: string | undefined): boolean => value?.toLowerCase().includes(wanted) === true;
  const { command, source, destination, kubernetes, problem, id } = recording;
  if ([whoText(recording), whereText(recording), command].some(holds)) return undefined;
  const hidden: readonly (readonly [string, string | undefined])[] = [
    ['from', source.node],
    ['through', destination.node],
    ['tags', source.tags?.join(', ')],
    ['container', kubernetes?.container],
    ['state', problem],
    ['result', searchedResult(recording)],
    ['trust', recording.trustReason],
    ['id', id],
  ];
  const found = hidden.find(([, value]) => holds(value));
  return found === undefined ? undefined : `${found[0]}: ${found[1]}`;
}

const LAG_SECONDS = 10;

/** Notices about the state of the search index. */
export function indexTexts(index: SearchIndexState | undefined): readonly string[] {
  if (index === undefined) return [];
  const { state, backlog, lagSeconds = 0, problem } = index;
  const texts: string[] = [];
  if (state === 'unavailable')
    texts.push(
      `The search index is unavailable (${problem ?? 'unknown reason'}). Results may be incomplete.`,
    );
  if (state === 'building')
    texts.push(
      `The recorder builds the search index, newest recordings first. ${backlog ?? 'Some'} ` +
        `recording${backlog === 1 ? ' is' : 's are'} missing.`,
    );
  if (lagSeconds > LAG_SECONDS)
    texts.push(`The search index is ${Math.round(lagSeconds)} seconds behind the running sessions.`);
  return texts;
}

/** Returns a description of a request that the page sent, derived from the URL. */
export function viewRequestText(url: string): string {
  const [, path = '', query] = /\/api\/v1\/([^?#]*)(?:\?([^#]*))?/.exec(url) ?? [];
  const [kind = '', id, part] = path.split('/').map(plainSegment);
  if (kind === 'recordings' && id !== undefined)
    return part === undefined ? `recording ${id}` : `${part} of recording ${id}`;
  if (kind === 'search') return `search for ${new URLSearchParams(query).get('q') ?? ''}`;
  return kind === 'recordings' ? 'list of recordings' : kind;
}

function plainSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
