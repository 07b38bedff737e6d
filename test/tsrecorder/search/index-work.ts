/**
 * Writes a few sessions to an index. If a kill interrupts the writes, repeating all of them must produce the same
 * index.
 */
import type { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { doc, moment, names } from './engine-suite.ts';

export function work(writer: IndexWriter): void {
  writer.put(doc('n_1', {}, '1'), [moment(1, 'old')], false);
  writer.put(listed('n_1', '2'), [moment(1, 'alpha')], false);
  writer.append(names('n_2', { state: 'running' }), [moment(1, 'beta one')], true, false);
  writer.append(names('n_2', { state: 'running' }), [moment(2, 'old beta')], false, false);
  writer.put(listed('n_2', '1'), [moment(1, 'beta one'), moment(2, 'beta two')], false);
  writer.putAll([
    { doc: listed('n_3', '1'), moments: [moment(1, 'gone')], partial: false },
    {
      doc: {
        ...listed('n_4', '1'),
        names: names('n_4', { startedAtMs: Date.parse('2026-01-05T00:00:00Z') }),
      },
      moments: [moment(1, 'month two')],
      partial: true,
    },
    { doc: listed('n_5', '1'), moments: [], partial: false },
  ]);
  writer.remove('n_3');
  writer.compact();
}

function listed(id: string, version: string): ReturnType<typeof doc> {
  const minutes = id.slice(-1).padStart(2, '0');
  const listing = {
    order: `2026-02-01T00:${minutes}:00.000000000Z n`,
    version,
    recording: JSON.stringify({ id }),
    searched: `${id}\nprod`,
    bytes: 1,
  };
  return { ...doc(id, { namespace: 'prod' }, version), listing };
}
