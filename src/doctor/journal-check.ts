/** Checks whether journals contain pending output; see `recording/journal`. */
import type { JournalKey } from '../recording/journal/journal-key.ts';
import { surveyJournals, type JournalCount } from '../recording/journal/journal-directory.ts';
import { failed, ok, skipped, warning, type Check } from './checks.ts';
import { ifPresent } from '../errors.ts';

/**
 * @param place journal directory, and the function that loads the key of its journals; undefined if journals are
 * disabled
 */
export function journalCheck(
  place: { readonly directory: string; readonly loadKey: () => Promise<JournalKey | undefined> } | undefined,
  needs: readonly string[] = [],
): Check {
  return {
    id: 'late',
    title: 'unacknowledged output',
    needs,
    remedy: 'allow this user to read the directory and the key: --late-directory, --late-key-file',
    async run() {
      if (place === undefined) {
        return warning(
          'is in memory only, and is lost if the gateway is killed',
          'set --late-directory to a directory or its default',
        );
      }
      const { directory, loadKey } = place;
      const found = await ifPresent(surveyJournals(directory, await loadKey()));
      if (found === undefined) return skipped(`${directory} does not exist yet`);
      const { live, left, foreign, damaged } = found;
      if (foreign.files > 0) {
        return failed(
          `${sizeText(foreign)} of other gateways have another key`,
          'give the gateway that key with --late-key-file; without the key, delete the files',
        );
      }
      if (damaged.files > 0) {
        return failed(
          `${sizeText(damaged)} cannot be read`,
          'read the reason in the log of the gateway, find the cause, then delete the files',
        );
      }
      if (left.files > 0) {
        return warning(
          `${sizeText(left)} of stopped gateways wait for a gateway`,
          'start a gateway, and check that their recorder responds',
        );
      }
      return ok(live.files === 0 ? 'no pending output' : `${sizeText(live)} of running gateways`);
    },
  };
}

function sizeText({ files, bytes }: JournalCount): string {
  return `${files} file${files === 1 ? '' : 's'} with ${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}
