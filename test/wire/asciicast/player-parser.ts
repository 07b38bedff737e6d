import { readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** A recording as asciinema-player parses it; times are in milliseconds from the start. */
export interface PlayerRecording {
  readonly cols: number;
  readonly rows: number;
  readonly events: readonly (readonly [number, string, unknown])[];
}

interface PlayerModule {
  readonly C: new (source: object, options: object) => unknown;
}

/**
 * Parses a recording with asciinema-player's own parser, for comparison. The package does not export the parser, so
 * this function gets the parser from the player's core. The core resolves a parser by name and stores the parser in its
 * source object.
 */
export async function parseLikePlayer(text: string): Promise<PlayerRecording> {
  const folder = fileURLToPath(new URL('../../../node_modules/asciinema-player/dist/', import.meta.url));
  const file = readdirSync(folder).find((name) => /^core-.*\.js$/.test(name));
  if (file === undefined) throw new Error('asciinema-player has no core file');
  const { C: Core } = (await import(`${folder}${file}`)) as PlayerModule;
  const source: { driver: string; parser: unknown } = { driver: 'recording', parser: 'asciicast' };
  void new Core(source, {});
  const parser = source.parser as (response: Response) => Promise<{
    cols: number;
    rows: number;
    events: { toArray(): PlayerRecording['events'] };
  }>;
  const { cols, rows, events } = await parser(new Response(text));
  return { cols, rows, events: events.toArray() };
}
