/** Every upgraded connection of the gateway, so that a shutdown can tell each of them why it ends. */

/** Ends one connection with a reason its user is told where that is possible. */
export type EndSession = (reason: string) => void;

export interface SessionRegistry {
  readonly size: number;
  /** After `endAll` no connection may begin. */
  readonly closing: boolean;
  /**
   * @param finished resolves when the connection and its recording are complete; the entry is dropped then
   * @param end called at most once
   */
  add(end: EndSession, finished: Promise<unknown>): void;
  /** Ends every connection, lets none begin from now on, and resolves when all have finished. */
  endAll(reason: string): Promise<void>;
}

export function createSessionRegistry(): SessionRegistry {
  const sessions = new Map<object, { readonly end: EndSession; readonly finished: Promise<void> }>();
  let closing = false;
  return {
    get size() {
      return sessions.size;
    },
    get closing() {
      return closing;
    },
    add(end, finished) {
      const key = {};
      const gone = (): void => {
        sessions.delete(key);
      };
      sessions.set(key, { end, finished: finished.then(gone, gone) });
    },
    async endAll(reason) {
      closing = true;
      const all = [...sessions.values()];
      for (const { end } of all) end(reason);
      await Promise.all(all.map(({ finished }) => finished));
    },
  };
}
