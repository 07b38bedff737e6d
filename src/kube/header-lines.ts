/** Searches headers in a flat list, `[name, value, name, value, …]`, in which repeated headers are separate. */
/** Returns every value of the header `name` (lower case). */
export function headerLines(rawHeaders: readonly string[], name: string): readonly string[] {
  const lines: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.toLowerCase() === name) lines.push(rawHeaders[index + 1] ?? '');
  }
  return lines;
}

/** Returns the value of the header `name` (lower case) if it occurs once. Several values would be ambiguous. */
export function onlyLine(rawHeaders: readonly string[], name: string): string | undefined {
  const [value, ...more] = headerLines(rawHeaders, name);
  return more.length === 0 ? value : undefined;
}

/** Returns the list without the header `name` (lower case). */
export function withoutHeader(rawHeaders: readonly string[], name: string): readonly string[] {
  const kept: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const line = rawHeaders[index] ?? '';
    if (line.toLowerCase() !== name) kept.push(line, rawHeaders[index + 1] ?? '');
  }
  return kept;
}
