import { tmpdir } from 'node:os';
import { createElasticBuffers, type ElasticBuffers } from '../../src/proxy/session/elastic-buffers.ts';

/** Opens buffers with the default limits of a gateway. */
export function openTestBuffers(): ElasticBuffers {
  return createElasticBuffers({
    memoryBytes: 4 * 1024 ** 2,
    diskBytes: 1024 ** 3,
    totalMemoryBytes: 128 * 1024 ** 2,
    totalDiskBytes: 4 * 1024 ** 3,
    directory: tmpdir(),
  });
}
