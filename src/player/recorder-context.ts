/** Source of recordings for the page: a recorder, or the exported file itself. */
import { createContext } from 'preact';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';

/** Requests a path below the address of the page. Rejects if the recorder cannot be reached. */
export type Ask = (
  path: string,
  options: {
    readonly signal: AbortSignal;
    readonly headers: Readonly<Record<string, string>>;
    readonly method?: 'POST';
    readonly body?: string;
  },
) => Promise<Response>;

export interface RecorderPage {
  readonly ask: Ask;
  /** Exports a recording as a file; undefined in an exported file. */
  readonly exportRecording:
    | ((
        recording: ListedRecording,
        signal: AbortSignal,
        onProgress: (share: number) => void,
      ) => Promise<Blob>)
    | undefined;
}

/** Context of all views, set in `main.tsx` and `offline.tsx`. */
export const Recorder = createContext<RecorderPage>({
  ask: () => Promise.reject(new Error('this page has no recorder')),
  exportRecording: undefined,
});
