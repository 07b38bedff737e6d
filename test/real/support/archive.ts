/** Reads recordings through the recorder's API and parses them without code of tailcast. */

export interface StoredRecording {
  readonly id: string;
  readonly state: string;
  readonly startedAt: string;
  readonly durationSeconds?: number;
  readonly command?: string;
  readonly kind: string;
  readonly result?: string;
  readonly trust?: string;
  readonly width: number;
  readonly height: number;
  readonly kubernetes?: { readonly namespace: string; readonly pod: string; readonly container: string };
  readonly source: { readonly user?: string };
}

/**
 * One recording's output. The bytes are exact, because the notes contain the original bytes of lines that are not valid
 * UTF-8.
 */
export interface RecordedOutput {
  readonly header: Readonly<Record<string, unknown>>;
  /** Complete output of the cast as text: stdout and stderr in the order of the events. */
  readonly text: string;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** All sizes of the terminal except the first one, as `COLSxROWS`. */
  readonly resizes: readonly string[];
  readonly outcome: string | undefined;
}

export interface Archive {
  readonly url: string;
  /** Returns all recordings of a pod, oldest first, including running ones. */
  of(pod: string): Promise<readonly StoredRecording[]>;
  /** Returns this number of recordings of the pods, oldest first, when all of them are complete. */
  whole(pods: readonly string[], count: number): Promise<readonly StoredRecording[]>;
  count(): Promise<number>;
  read(id: string): Promise<RecordedOutput>;
}

const WAIT_MS = 15_000;
const POLL_MS = 25;

export function openArchive(url: string): Archive {
  const get = async (path: string): Promise<Response> => {
    const response = await fetch(new URL(`/api/v1/${path}`, url));
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  const list = async (query: string): Promise<StoredRecording[]> => {
    const found: StoredRecording[] = [];
    for (let cursor = ''; ;) {
      const page = (await (await get(`recordings?limit=500${query}${cursor}`)).json()) as {
        recordings: StoredRecording[];
        next?: string;
      };
      found.push(...page.recordings);
      if (page.next === undefined) return found.toReversed();
      cursor = `&cursor=${encodeURIComponent(page.next)}`;
    }
  };
  const of = async (pod: string): Promise<StoredRecording[]> =>
    (await list(`&pod=${encodeURIComponent(pod)}`)).filter(({ kubernetes }) => kubernetes?.pod === pod);
  // The recorder stores the sidecar last.
  const isWhole = async ({ id, state }: StoredRecording): Promise<boolean> =>
    state !== 'running' && (await fetch(new URL(`/api/v1/recordings/${id}/sidecar`, url))).ok;

  // Running sessions and sessions of the reference's gateway have no notes.
  const notesOf = async (id: string): Promise<string> => {
    const response = await fetch(new URL(`/api/v1/recordings/${id}/notes`, url));
    const text = await response.text();
    if (response.ok) return text;
    if (response.status === 404 && text.includes('it has no notes')) return '';
    throw new Error(`notes of ${id}: ${response.status} ${text}`);
  };

  return {
    url,
    of,
    count: async () => (await list('')).length,
    async whole(pods, count) {
      const deadline = Date.now() + WAIT_MS;
      for (;;) {
        const found = (await Promise.all(pods.map(of)))
          .flat()
          .toSorted((a, b) => (a.startedAt < b.startedAt ? -1 : 1));
        const whole = await Promise.all(found.map(isWhole));
        if (found.length >= count && whole.every(Boolean)) return found;
        if (Date.now() > deadline) {
          const seen = found.map(({ kind, command, state }) => `${kind} ${command ?? ''} (${state})`);
          throw new Error(
            `${count} recordings of ${pods.join(', ')} expected, there are: ${seen.join('; ')}`,
          );
        }
        await new Promise((done) => setTimeout(done, POLL_MS));
      }
    },
    async read(id) {
      const [cast, notes] = await Promise.all([
        get(`recordings/${id}/cast`).then((response) => response.text()),
        notesOf(id),
      ]);
      return takeApart(cast, notes);
    },
  };
}

interface Note {
  /** Position in the cast at which the first line after the note starts. */
  readonly at: number;
  readonly note: {
    readonly kind: string;
    readonly name?: string;
    readonly base64?: string;
    readonly outcome?: string;
  };
}

function takeApart(cast: string, noteLines: string): RecordedOutput {
  const notes = noteLines
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Partial<Note>)
    .filter((line): line is Note => line.at !== undefined && line.note !== undefined);
  const streams = notes.filter(({ note }) => note.kind === 'stream');
  const raw = new Map(
    notes.filter(({ note }) => note.kind === 'raw').map(({ at, note }) => [at, note.base64]),
  );
  const lines = cast.trimEnd().split('\n');
  const output = { stdout: [] as Buffer[], stderr: [] as Buffer[], text: '', resizes: [] as string[] };
  let offset = Buffer.byteLength(lines[0] ?? '') + 1;
  let nextStream = 0;
  let stream = 'stdout';
  for (const line of lines.slice(1)) {
    for (
      let mark = streams[nextStream];
      mark !== undefined && mark.at <= offset;
      mark = streams[nextStream]
    ) {
      stream = mark.note.name ?? stream;
      nextStream += 1;
    }
    const [, code, data] = JSON.parse(line) as [number, string, string];
    if (code === 'o') {
      const exact = raw.get(offset);
      const bytes = exact === undefined ? Buffer.from(data) : Buffer.from(exact, 'base64');
      (stream === 'stderr' ? output.stderr : output.stdout).push(bytes);
      output.text += data;
    } else if (code === 'r') output.resizes.push(data);
    offset += Buffer.byteLength(line) + 1;
  }
  return {
    header: JSON.parse(lines[0] ?? '') as Record<string, unknown>,
    text: output.text,
    stdout: Buffer.concat(output.stdout),
    stderr: Buffer.concat(output.stderr),
    resizes: output.resizes,
    outcome: notes.find(({ note }) => note.kind === 'end')?.note.outcome,
  };
}
