/** Sessions known to have ended well, so that an uploader that missed the last acknowledgement gets it. */
const MAX_REMEMBERED = 1000;

export class EndedSessions {
  readonly #bytes = new Map<string, number>();

  /** @param bodyBytes of the whole session; the oldest is forgotten when there are too many */
  remember(token: string | undefined, bodyBytes: number): void {
    if (token === undefined) return;
    const [oldest] = this.#bytes.keys();
    if (this.#bytes.size >= MAX_REMEMBERED && oldest !== undefined) this.#bytes.delete(oldest);
    this.#bytes.set(token, bodyBytes);
  }

  /** Body bytes of a session that has ended; undefined when nothing is known of it. */
  bytesOf(token: string | undefined): number | undefined {
    return token === undefined ? undefined : this.#bytes.get(token);
  }
}
