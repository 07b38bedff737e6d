/** Iterates a stream, and cancels it if the loop ends early. NOTE: not every supported browser can iterate a stream. */
export async function* chunksOf(
  stream: ReadableStream<Uint8Array<ArrayBuffer>> | null,
): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const reader = stream?.getReader();
  if (reader === undefined) return;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    await reader.cancel();
  }
}
