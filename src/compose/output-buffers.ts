/** Buffers for the output of sessions that waits, as the settings bound them. */
import { tmpdir } from 'node:os';
import type { GatewayConfig } from '../config/gateway.ts';
import { capacityOf, readMemory } from '../memory/capacity.ts';
import type { Metrics } from '../observe/metrics.ts';
import { createElasticBuffers, type ElasticBuffers } from '../proxy/session/elastic-buffers.ts';

/** What waits of all sessions, and what is told of it. */
export function openBuffers(config: GatewayConfig, metrics: Metrics): ElasticBuffers {
  const capacity = capacityOf(readMemory());
  const totalMemoryBytes = config.outputBufferTotalMemory ?? capacity.outputBytes;
  const buffers = createElasticBuffers({
    memoryBytes: config.outputBufferMemory ?? Math.min(capacity.outputBytesPerSession, totalMemoryBytes),
    diskBytes: config.outputBufferDisk,
    totalMemoryBytes,
    totalDiskBytes: config.outputBufferTotalDisk,
    directory: config.outputBufferDirectory ?? tmpdir(),
  });
  const { budget } = buffers;
  metrics.gauge(
    'tailcast_output_waiting_memory_bytes',
    'Output of sessions that waits in memory for its client or recorder.',
    () => budget.memoryBytes,
  );
  metrics.gauge(
    'tailcast_output_waiting_disk_bytes',
    'Disk taken by output of sessions that waits.',
    () => budget.diskBytes,
  );
  return buffers;
}
