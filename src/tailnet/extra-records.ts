/**
 * DNS records that the control server publishes in addition to the records of devices. tailscaled reports the
 * additional records only on its notification bus.
 */
import { z } from 'zod';
import type { ExtraRecord } from './find-host.ts';
import { BUS_MASK, type LocalApi } from './local-api.ts';

const NOTIFY = z.object({
  NetMap: z.object({
    DNS: z
      .object({
        ExtraRecords: z
          .array(z.object({ Name: z.string(), Type: z.string().optional(), Value: z.string() }))
          .nullish(),
      })
      .nullish(),
  }),
});

/**
 * Reads the records once.
 *
 * @returns no records if the daemon has no network map, or reports nothing before the signal aborts.
 * @throws TailcastError `TAILNET_UNAVAILABLE`
 */
export async function readExtraRecords(
  localApi: Pick<LocalApi, 'watchBus'>,
  signal: AbortSignal,
): Promise<readonly ExtraRecord[]> {
  for await (const notify of localApi.watchBus(BUS_MASK.initialNetmap, signal)) {
    const map = NOTIFY.safeParse(notify);
    if (!map.success) continue;
    return (map.data.NetMap.DNS?.ExtraRecords ?? [])
      .filter(({ Type: type }) => ['', 'A', 'AAAA', undefined].includes(type))
      .map(({ Name: name, Value: address }) => ({ name: name.toLowerCase().replace(/\.$/, ''), address }));
  }
  return [];
}
