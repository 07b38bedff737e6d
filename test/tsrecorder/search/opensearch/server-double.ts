/** A simulated OpenSearch for the writer of an index: documents with external versions, and faults on request. */
import { createServer, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { listenOn } from '../../../support/listen.ts';

export interface KeptDocument {
  readonly version: number;
  readonly source: Readonly<Record<string, unknown>>;
}

/** An error response of a request, or of each document in it. */
export interface Fault {
  readonly status: number;
  readonly type?: string;
  /** Returns true for documents that get this error. Default: all documents. */
  readonly of?: (id: string) => boolean;
}

export class ServerDouble {
  readonly documents = new Map<string, KeptDocument>();
  readonly requests: string[] = [];
  readonly aliases = new Map<string, string>();
  /** Faults of the next writes: each write gets one of them, in order. */
  readonly faults: Fault[] = [];
  /** Key: part of a path. Value: number of requests with this part that get a 503 response. */
  readonly unavailable = new Map<string, number>();
  /** Called before a write completes. */
  onBulk: (ids: readonly string[]) => void = () => undefined;
  readonly #server = createServer((request, response) => {
    void text(request).then((body) => this.#answer(`${request.method} ${request.url}`, body, response));
  });

  async listen(): Promise<string> {
    return `http://127.0.0.1:${await listenOn(this.#server)}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  /** Sorted ids of all documents. */
  ids(): readonly string[] {
    return [...this.documents.keys()].toSorted();
  }

  #answer(asked: string, body: string, response: ServerResponse): void {
    this.requests.push(asked);
    const answer = (status: number, value: unknown): void =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    if (this.#isUnavailable(asked)) {
      answer(503, { error: { type: 'busy' }, status: 503 });
      return;
    }
    const [, alias = ''] = /^GET \/_alias\/(.+)$/.exec(asked) ?? [];
    if (alias !== '') {
      const index = this.aliases.get(alias);
      answer(
        index === undefined ? 404 : 200,
        index === undefined ? { error: 'no', status: 404 } : { [index]: {} },
      );
    } else if (asked.startsWith('PUT /')) {
      const made = JSON.parse(body) as { aliases: Record<string, unknown> };
      for (const name of Object.keys(made.aliases)) this.aliases.set(name, asked.slice(5));
      answer(200, { acknowledged: true });
    } else if (asked.includes('/_bulk?')) this.#bulk(asked, body, answer);
    else if (asked.includes('/_doc/')) {
      const id = decodeURIComponent(/\/_doc\/([^?]+)/.exec(asked)?.[1] ?? '');
      const known = this.documents.get(id);
      if (known === undefined) answer(404, { found: false });
      else answer(200, { found: true, _version: known.version, _source: known.source });
    } else answer(200, {});
  }

  #isUnavailable(asked: string): boolean {
    for (const [part, times] of this.unavailable) {
      if (times === 0 || !asked.includes(part)) continue;
      this.unavailable.set(part, times - 1);
      return true;
    }
    return false;
  }

  #bulk(asked: string, body: string, answer: (status: number, value: unknown) => void): void {
    const fault = this.faults.shift();
    if (fault !== undefined && fault.of === undefined) {
      answer(fault.status, { error: { type: fault.type ?? 'busy' }, status: fault.status });
      return;
    }
    const alias = /^POST \/([^/]+)\//.exec(asked)?.[1] ?? '';
    const lines = body.trimEnd().split('\n');
    const items: unknown[] = [];
    const writes: (readonly [string, number, Record<string, unknown> | undefined])[] = [];
    while (lines.length > 0) {
      const head = JSON.parse(lines.shift()!) as Record<string, { _id: string; version: number }>;
      const [[action, { _id: id, version }]] = Object.entries(head) as [
        [string, { _id: string; version: number }],
      ];
      const source = action === 'index' ? (JSON.parse(lines.shift()!) as Record<string, unknown>) : undefined;
      writes.push([id, version, source]);
    }
    this.onBulk(writes.map(([id]) => id));
    for (const [id, version, source] of writes) {
      const status = fault?.of?.(id) === true ? fault.status : this.#write(id, version, source);
      items.push({ index: { _index: this.aliases.get(alias), status } });
    }
    answer(200, { items });
  }

  #write(id: string, version: number, source: Readonly<Record<string, unknown>> | undefined): number {
    const known = this.documents.get(id);
    if (known !== undefined && known.version > version) return 409;
    if (source === undefined) return this.documents.delete(id) ? 200 : 404;
    this.documents.set(id, { version, source });
    return 200;
  }
}
