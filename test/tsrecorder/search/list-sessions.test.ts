/**
 * Cost of a list with a condition on names and a condition on text. The cost is the number of sessions whose text is
 * searched.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { compileQuery } from '../../../src/tsrecorder/search/sqlite/compile.ts';
import { openSessions } from '../../../src/tsrecorder/search/sqlite/database.ts';
import { listSessions } from '../../../src/tsrecorder/search/sqlite/list-sessions.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { doc, names, query } from './engine-suite.ts';

/** One more than the maximum number of sessions that the index checks one by one. */
const SESSIONS = 2001;
/** Every 300th session belongs to bob, seven sessions in total. */
const BOB_EVERY = 300;
/** Number of sessions with the text `rare`: the first ones. */
const RARE = 5;

it('searches text in sessions with the names, or names in sessions with the text if these are few', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-list-'));
  const writer = new IndexWriter(directory);
  const all = Array.from({ length: SESSIONS }, (_, at) => {
    const user = at % BOB_EVERY === 0 ? 'bob' : 'alice';
    const { startedAtMs } = names(`n_${at}`);
    const order = `${new Date(startedAtMs).toISOString().slice(0, -1)}000000Z n`;
    const searched = at < RARE ? 'common rare' : 'common';
    const listing = { order, version: '1', recording: '{}', searched, bytes: 1 };
    return { doc: { ...doc(`n_${at}`, { user }), listing }, moments: [], partial: false };
  });
  writer.putAll(all);
  writer.close();
  const sessions = openSessions(directory);
  onTestFinished(() => sessions.close());
  let tried = 0;
  // replaces SQLite's `instr`, to count the sessions whose text is searched
  sessions.function('instr', { deterministic: true }, (text, part) => {
    tried += 1;
    return String(text).indexOf(String(part)) + 1;
  });
  const { value } = sessions.prepare(`SELECT value FROM meta WHERE key = 'key'`).get() ?? {};
  const list = (user: string, text: string): readonly [found: number, tried: number] => {
    tried = 0;
    const ask = { query: query(`user:${user}`), may: 'everything', text, limit: SESSIONS } as const;
    const found = [...listSessions(sessions, ask, compileQuery(ask.query, ask.may, String(value)))];
    return [found.length, tried];
  };
  expect(list('bob', 'common')).toEqual([7, 7]);
  // the user is compared before the text, so the text of bob's session among the rare ones is not searched
  expect(list('alice', 'rare')).toEqual([RARE - 1, RARE - 1]);
});
