/** Stores the user's choices in the browser. Without storage, choices are lost when the page is closed. */

/** Returns a stored choice, or undefined. */
export function recall(name: string): string | undefined {
  try {
    return localStorage.getItem(name) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Stores a choice. */
export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // without storage, the choice is not kept
  }
}
