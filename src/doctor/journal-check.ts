/** What waits on disk for a recorder: see `recording/journal`. */
import type { JournalKey } from '../recording/journal/journal-key.ts';
import { surveyJournals, type JournalCount } from '../recording/journal/journal-directory.ts';
import { failed, ok, skipped, warning, type Check } from './checks.ts';

/** @param place undefined: nothing is kept on disk */
export function journalCheck(
  place: { readonly directory: string; readonly loadKey: () => Promise<JournalKey | undefined> } | undefined,
  needs: readonly string[] = [],
): Check {
  return {
    id: 'late',
    title: 'output that no recorder has acknowledged',
    needs,
    remedy: 'let this user read the directory and the key: --late-directory, --late-key-file',
    async run() {
      if (place === undefined) {
        return warning(
          'is kept in memory only: a gateway that is killed takes it along',
          'leave --late-directory to its default, or name a directory, and --late-delivery-bytes above 0',
        );
      }
      const { directory, loadKey } = place;
      const found = await surveyJournals(directory, await loadKey()).catch((error: unknown) => {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
        throw error;
      });
      if (found === undefined) return skipped(`${directory} is not there yet`);
      const { live, left, foreign, damaged } = found;
      if (foreign.files > 0) {
        return failed(
          `${said(foreign)} of other gateways are sealed under another key`,
          'give the gateway that key with --late-key-file; without it they cannot be read, and may be deleted',
        );
      }
      if (damaged.files > 0) {
        return failed(
          `${said(damaged)} cannot be read`,
          'the log of the gateway names them and says why; look for what changed them, then delete them',
        );
      }
      if (left.files > 0) {
        return warning(
          `${said(left)} of gateways that have ended wait for one`,
          'start a gateway, and see that their recorder answers',
        );
      }
      return ok(live.files === 0 ? 'nothing waits' : `${said(live)} of gateways that run`);
    },
  };
}

function said({ files, bytes }: JournalCount): string {
  return `${files} file${files === 1 ? '' : 's'} with ${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}
