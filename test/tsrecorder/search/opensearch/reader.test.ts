/** The reader with incomplete responses. */
import { createServer } from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { createSearchServer } from '../../../../src/tsrecorder/search/opensearch/client.ts';
import { ServerIndexReader } from '../../../../src/tsrecorder/search/opensearch/reader.ts';
import { query } from '../engine-suite.ts';
import { listenOn } from '../../../support/listen.ts';

const CONTENT = JSON.stringify({ t0: 1, t1: 1, rows: [{ at: 1, text: 'needle' }] });

async function readerOf(docs: readonly object[]): Promise<ServerIndexReader> {
  const hits = ['n_1', 'n_2'].map((session) => ({
    _source: { session, order: session },
    inner_hits: { first: { hits: { hits: [{ _source: { content: CONTENT } }] } } },
  }));
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(request.url?.includes('_mget') === true ? { docs } : { hits: { hits } }));
  });
  const url = `http://127.0.0.1:${await listenOn(server)}`;
  const asked = createSearchServer({ url });
  onTestFinished(() => {
    asked.close();
    server.closeAllConnections();
    server.close();
  });
  return new ServerIndexReader(asked, { url, name: 't', which: 'current', shards: 1, owner: 'me' });
}

const found = { found: true, _source: { partial: false, version: '1' } };

it('omits a session that was removed, and not one that is unreadable at the moment', async () => {
  const ask = (reader: ServerIndexReader) => reader.find(query('needle'), 'everything', { limit: 5 });
  expect((await ask(await readerOf([found, found]))).sessions.map(({ id }) => id)).toEqual(['n_1', 'n_2']);
  expect((await ask(await readerOf([found, { found: false }]))).sessions).toHaveLength(1);
  const error = { type: 'no_shard_available_action_exception' };
  for (const docs of [[found, { error }], [found], []])
    await expect(ask(await readerOf(docs)), JSON.stringify(docs)).rejects.toThrow('could not read all');
});
