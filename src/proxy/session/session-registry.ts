/** Registry of all upgraded connections of the gateway. A shutdown ends each of them with a reason. */

/** Ends one connection with a reason, which the client sees if the protocol allows it. */
export type EndSession = (reason: string) => void;

export type SessionRegistry = ReturnType<typeof createSessionRegistry>;

export function createSessionRegistry() {
  const sessions = new Map<object, { readonly end: EndSession; readonly finished: Promise<void> }>();
  let closing = false;
  return {
    get size(): number {
      return sessions.size;
    },
    /** True after `endAll` was called: no new connection may start. */
    get closing(): boolean {
      return closing;
    },
    /**
     * Adds a connection.
     * @param end called at most once
     * @param finished resolves when the connection and its recording are complete; the entry is then removed
     */
    add(end: EndSession, finished: Promise<unknown>): void {
      const key = {};
      const gone = (): void => {
        sessions.delete(key);
      };
      sessions.set(key, { end, finished: finished.then(gone, gone) });
    },
    /** Ends all connections and refuses new connections. Resolves when all have finished. */
    async endAll(reason: string): Promise<void> {
      closing = true;
      const all = [...sessions.values()];
      for (const { end } of all) end(reason);
      await Promise.all(all.map(({ finished }) => finished));
    },
  };
}
