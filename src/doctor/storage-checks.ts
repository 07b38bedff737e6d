/** Checks that the directories of recordings and state are writable and have free space. */
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';
import { directoryState, type DirectoryState } from './directory.ts';

export interface StoragePlace {
  readonly id: string;
  readonly title: string;
  /** Undefined if no directory is configured. */
  readonly directory: string | undefined;
  /** Command-line flag that sets the directory. */
  readonly flag: string;
  /** Minimum free space, in bytes. With less space, the gateway or the recorder accepts no new data. */
  readonly minFreeBytes: number;
  /** Recommended free space, in bytes. With less free space, the check returns a warning. */
  readonly wantedBytes: number;
}

const MIN_FREE_SHARE = 0.05;
const MIN_FREE_FILES = 1000;

/** Returns two checks: for the directory, and for its free space. */
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
        return state.usable ? spaceVerdict(state, place) : failed(state.problem, state.remedy);
      },
    },
  ];
}

function spaceVerdict(state: DirectoryState & { readonly usable: true }, place: StoragePlace): CheckVerdict {
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
