/** Whom the page asks: the recorder it came from, or the file that it is part of. */
import { createContext } from 'preact';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';

/** Asks for what lies under a path below the page. Rejects when there is nobody to answer. */
export type Ask = (
  path: string,
  options: { readonly signal: AbortSignal; readonly headers: Readonly<Record<string, string>> },
) => Promise<Response>;

export interface RecorderPage {
  readonly ask: Ask;
  /** A recording as one file; undefined where the page is that file. */
  readonly exportRecording:
    | ((
        recording: ListedRecording,
        signal: AbortSignal,
        onProgress: (share: number) => void,
      ) => Promise<Blob>)
    | undefined;
}

/** There is one around each page: `main.tsx`, `offline.tsx`. */
export const Recorder = createContext<RecorderPage>({
  ask: () => Promise.reject(new Error('nobody is asked here')),
  exportRecording: undefined,
});
