/** Lines of a byte stream, each bounded. */

/**
 * The lines of `source` without their `\n`; empty lines are left out, so is an unfinished last one.
 * @throws Error when a line is longer than `maxBytes`
 */
export async function* readLines(source: AsyncIterable<unknown>, maxBytes: number): AsyncGenerator<string> {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  for await (const chunk of source) {
    if (!Buffer.isBuffer(chunk)) continue;
    let rest = chunk;
    for (let end = rest.indexOf(0x0a); end !== -1; end = rest.indexOf(0x0a)) {
      if (keptBytes + end > maxBytes) throw new Error(`a line is longer than ${maxBytes} bytes`);
      const line = Buffer.concat([...kept, rest.subarray(0, end)])
        .toString('utf8')
        .trim();
      kept = [];
      keptBytes = 0;
      rest = rest.subarray(end + 1);
      if (line !== '') yield line;
    }
    keptBytes += rest.length;
    if (keptBytes > maxBytes) throw new Error(`a line is longer than ${maxBytes} bytes`);
    if (rest.length > 0) kept.push(rest);
  }
}
