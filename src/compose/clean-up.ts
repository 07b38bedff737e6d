/** What is done, last come first, when something ends: the platform's `AsyncDisposableStack`, which Node 22 has not. */
export class CleanUp implements AsyncDisposable {
  #actions: (() => unknown)[] = [];

  /** `action` runs when everything ends; it may be asynchronous. */
  defer(action: () => unknown): void {
    this.#actions.push(action);
  }

  /**
   * Runs what was deferred, each action once, whatever becomes of the others.
   *
   * @throws what the first failing action threw
   */
  async disposeAsync(): Promise<void> {
    const problems: unknown[] = [];
    for (let action = this.#actions.pop(); action !== undefined; action = this.#actions.pop()) {
      try {
        await action();
      } catch (error) {
        problems.push(error);
      }
    }
    if (problems.length > 0) throw problems[0];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.disposeAsync();
  }
}
