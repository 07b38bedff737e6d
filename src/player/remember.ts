/** What somebody chose, for the next time. A browser that keeps nothing is no reason to show nothing. */

export function recall(name: string): string | undefined {
  try {
    return localStorage.getItem(name) ?? undefined;
  } catch {
    return undefined;
  }
}

export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it is asked again
  }
}
