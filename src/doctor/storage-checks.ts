/** Where recordings and state are kept: writable, and with room. */
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';
import { directoryState, type DirectoryState } from './directory.ts';

export interface StoragePlace {
  readonly id: string;
  readonly title: string;
  /** Undefined: nobody named one. */
  readonly directory: string | undefined;
  /** The setting that names it, as a flag. */
  readonly flag: string;
  /** Below this nothing new is taken. */
  readonly minFreeBytes: number;
  /** The largest thing that may be written; less room than this is worth a warning. */
  readonly wantedBytes: number;
}

const MIN_FREE_SHARE = 0.05;
const MIN_FREE_FILES = 1000;

/** One check for the directory, one for the room in it. */
export function storageChecks(
  place: StoragePlace,
  examine: (directory: string) => Promise<DirectoryState> = directoryState,
): readonly Check[] {
  const { id, title, directory, flag } = place;
  return [
    {
      id,
      title,
      remedy: `use a directory that this user may write to: ${flag} <directory>`,
      async run() {
        if (directory === undefined) {
          return failed('no directory is set', `set the directory for recordings: ${flag} <directory>`);
        }
        const state = await examine(directory);
        if (!state.usable) return failed(`${directory}: ${state.problem}`, state.remedy);
        return ok(state.exists ? `${directory} is writable` : `${directory} will be created`);
      },
    },
    {
      id: `${id}-space`,
      title: `space in ${title}`,
      needs: [id],
      remedy: 'free space, or use a directory on a larger volume',
      async run() {
        const state = await examine(directory ?? '');
        return state.usable ? judgeRoom(state, place) : failed(state.problem, state.remedy);
      },
    },
  ];
}

function judgeRoom(state: DirectoryState & { readonly usable: true }, place: StoragePlace): CheckVerdict {
  const { freeBytes, totalBytes, freeFiles } = state;
  const share = totalBytes === 0 ? 1 : freeBytes / totalBytes;
  const summary = `${size(freeBytes)} free of ${size(totalBytes)}`;
  const remedy = `delete unneeded files, or set ${place.flag} to a larger volume`;
  if (freeBytes < place.minFreeBytes) {
    return failed(`${summary}: less than the required ${size(place.minFreeBytes)}`, remedy);
  }
  if (freeFiles !== undefined && freeFiles < MIN_FREE_FILES) {
    return failed(`only ${freeFiles} free inodes, although ${size(freeBytes)} are free`, remedy);
  }
  if (freeBytes < place.wantedBytes || share < MIN_FREE_SHARE) {
    const why = share < MIN_FREE_SHARE ? '' : `; one recording may need ${size(place.wantedBytes)}`;
    return warning(`${summary}${why}`, remedy);
  }
  return ok(summary);
}

function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  const unit = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${unit === 0 ? bytes : (bytes / 1024 ** unit).toFixed(1)} ${units[unit] ?? ''}`;
}
