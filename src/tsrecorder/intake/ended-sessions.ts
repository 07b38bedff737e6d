/** Maximum number of remembered sessions. */
const MAX_REMEMBERED = 1000;

/** Complete sessions, so that an uploader that missed the last acknowledgement can get it again. */
export class EndedSessions {
  readonly #bytes = new Map<string, number>();

  /** Remembers a complete session with `bodyBytes` bytes. Above the limit, the oldest session is dropped. */
  remember(token: string | undefined, bodyBytes: number): void {
    if (token === undefined) return;
    const [oldest] = this.#bytes.keys();
    if (this.#bytes.size >= MAX_REMEMBERED && oldest !== undefined) this.#bytes.delete(oldest);
    this.#bytes.set(token, bodyBytes);
  }

  /** Returns the body bytes of a complete session; undefined if it is unknown. */
  bytesOf(token: string | undefined): number | undefined {
    return token === undefined ? undefined : this.#bytes.get(token);
  }
}
