/** Checks that this version can read the files in a directory. See `folder-format`. */
import { TailcastError } from '../errors.ts';
import { failed, ok, skipped, type Check } from './checks.ts';

/**
 * @param place.look returns true if the directory has a format mark; throws the reason that prevents a start
 * @param place.folder undefined if there is none
 */
export function formatCheck(place: {
  readonly id: string;
  readonly title: string;
  readonly folder: string | undefined;
  readonly read: (folder: string) => Promise<boolean>;
}): Check {
  const { id, title, folder, read } = place;
  const remedy = 'start the version that wrote the directory, or a newer version; or use another directory';
  return {
    id: `${id}-format`,
    title: `format of the ${title}`,
    remedy,
    async run() {
      if (folder === undefined) return skipped('no directory is set');
      try {
        return ok(
          (await read(folder))
            ? `${folder} has a supported format`
            : `${folder} is new, or has the first format`,
        );
      } catch (error) {
        if (error instanceof TailcastError) return failed(error.detail ?? error.message, remedy);
        throw error;
      }
    },
  };
}
