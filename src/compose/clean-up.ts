/** Runs deferred actions in reverse order. Replaces `AsyncDisposableStack`, which Node.js 22 does not have. */
export class CleanUp implements AsyncDisposable {
  #actions: (() => unknown)[] = [];

  /** Registers an action, which may return a promise. */
  defer(action: () => unknown): void {
    this.#actions.push(action);
  }

  /**
   * Runs each deferred action once, even if another action fails.
   *
   * @throws the error of the first failing action
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
