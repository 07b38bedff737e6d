/** Registry of all upgraded connections of the gateway. A shutdown ends each of them with a reason. */

/** Ends one connection with a reason, which the client sees if the protocol allows it. */
export type EndSession = (reason: string) => void;

export interface SessionRegistry {
  readonly size: number;
  /** True after `endAll` was called: no new connection may start. */
  readonly closing: boolean;
  /**
   * Adds a connection.
   * @param end called at most once
   * @param finished resolves when the connection and its recording are complete; the entry is then removed
   */
  add(end: EndSession, finished: Promise<unknown>): void;
  /** Ends all connections and refuses new connections. Resolves when all have finished. */
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
