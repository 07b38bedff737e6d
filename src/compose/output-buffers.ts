/** Buffers for pending output of sessions, with the limits in the settings. */
import { tmpdir } from 'node:os';
import type { GatewayConfig } from '../config/gateway.ts';
import { capacityOf, readMemory } from '../memory/capacity.ts';
import type { Metrics } from '../observe/metrics.ts';
import { createElasticBuffers, type ElasticBuffers } from '../proxy/session/elastic-buffers.ts';

/** Maximum total size of pending output in files, as a multiple of the maximum for one session. */
const SESSIONS_ON_DISK = 4;

/** Creates the buffers of pending output, and their metrics. */
export function openBuffers(config: GatewayConfig, metrics: Metrics): ElasticBuffers {
  const capacity = capacityOf(readMemory());
  const buffers = createElasticBuffers({
    memoryBytes: config.outputBufferMemory ?? capacity.outputBytesPerSession,
    diskBytes: config.outputBufferDisk,
    totalMemoryBytes: capacity.outputBytes,
    totalDiskBytes: SESSIONS_ON_DISK * config.outputBufferDisk,
    directory: tmpdir(),
  });
  const { memory, disk } = buffers;
  metrics.gauge(
    'tailcast_output_waiting_memory_bytes',
    'Output of sessions that waits in memory for its client or recorder.',
    () => memory.bytes,
  );
  metrics.gauge(
    'tailcast_output_waiting_disk_bytes',
    'Disk taken by output of sessions that waits.',
    () => disk.bytes,
  );
  return buffers;
}
